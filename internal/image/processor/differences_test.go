package processor

import (
	"fmt"
	"testing"
)

// TestDifferences: files that spell one meaning in two ways are equal, and each setting that changes pictures has its name.
func TestDifferences(t *testing.T) {
	const qwen, gemma = `"image_processor_type": "Qwen2VLImageProcessor"`, `"image_processor_type": "Gemma4ImageProcessor"`
	const pixtral, small = `"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 1540}`, `"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 896, "width": 896}`
	const lfm = `"image_processor_type": "Lfm2VlImageProcessor"`
	for _, c := range [][3]string{
		{qwen + `, "min_pixels": 3136, "max_pixels": 9000`, `"image_processor_type": "Qwen2VLImageProcessorFast", "size": {"shortest_edge": 3136, "longest_edge": 9000}`, "[]"},
		{qwen + `, "min_pixels": 3136, "max_pixels": 9000`, qwen, "[{size.longest_edge 9000 1003520}]"},
		{gemma + `, "max_soft_tokens": 70`, gemma, "[{max_soft_tokens 70 280}]"},
		{pixtral + `, "patch_size": 14`, pixtral + `, "patch_size": {"height": 28, "width": 28}`, "[]"},
		{small, small + `, "do_pan_and_scan": true`, "[{do_pan_and_scan false true}]"},
		{small + `, "resample": 3, "rescale_factor": 0.5`, small, "[{resample 3 2} {rescale_factor 0.5 0.00392156862745098}]"},
		{small + `, "do_rescale": false, "do_resize": true`, small, "[{rescale_factor 1 0.00392156862745098}]"},
		{lfm + `, "max_tiles": 1`, lfm + `, "do_image_splitting": false, "tile_size": 9`, "[]"},
		{lfm + `, "tile_size": 256`, lfm, "[{tile_size 256 512}]"},
	} {
		got, err := Differences([]byte("{"+c[0]+"}"), []byte("{"+c[1]+"}"))
		if fmt.Sprint(got) != c[2] || err != nil {
			t.Errorf("%s, %s: %v, %v, want %s", c[0], c[1], got, err, c[2])
		}
	}
}
