// Package processor prepares pictures for models that see, as the processors of Hugging Face's transformers do:
// resizing, tiles, values and patches.
//
// Files in reading order: processor.go (Read), a file for each rule: square.go, budget.go, tiles.go, side.go,
// grid.go, area.go; then values.go and settings.go.
package processor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/image"
)

// Processor prepares pictures for one model.
type Processor struct {
	settings
	tiles func(s *settings, m *image.Image) (*Input, error)
	Values
}

// kinds are the processors by their names in preprocessor_config.json, without "Fast" and "Pil" at the end. Settings
// that a file leaves out are the class's in transformers: Qwen's own files name no filter.
var kinds = map[string]struct {
	tiles   func(s *settings, m *image.Image) (*Input, error)
	order   Order
	library image.Resizer // nothing but torchvision's exists for some
	omitted string
	effects func(s *settings, all map[string]any) // adds the settings read by tiles
	as      string                                // name of another kind with the same rule; "" if there is none
}{
	"Qwen2VLImageProcessor":    {byArea, BlocksTwice, image.Pillow, area, areaEffects, ""},
	"Qwen2_5_VLImageProcessor": {byArea, BlocksTwice, image.Pillow, area, areaEffects, "Qwen2VLImageProcessor"},
	"Gemma3ImageProcessor":     {toSquare, ChannelFirst, image.Pillow, `{"resample": 2` + half, squareEffects, ""},
	"Gemma4ImageProcessor": {toBudget, ChannelLast, image.Pillow, `{"resample": 3, "do_normalize": false, ` +
		`"patch_size": 16, "pooling_kernel_size": 3, "max_soft_tokens": 280, "image_mean": [0, 0, 0], ` +
		`"image_std": [1, 1, 1]}`, budgetEffects, ""},
	"SmolVLMImageProcessor": {toTiles, ChannelFirst, image.Pillow, `{"resample": 1` + half, tileEffects, ""},
	"Idefics3ImageProcessor": {toTiles, ChannelFirst, image.Pillow, `{"resample": 1` + half, tileEffects,
		"SmolVLMImageProcessor"},
	"PixtralImageProcessor": {bySide, ChannelFirst, image.Pillow, `{"resample": 3` + clip, sideEffects, ""},
	"Lfm2VlImageProcessor": {toGrid, ChannelLast, image.Torchvision, `{"resample": 2, "encoder_patch_size": 16, ` +
		`"downsample_factor": 2, "min_image_tokens": 64, "max_image_tokens": 256, "max_pixels_tolerance": 2, ` +
		`"min_tiles": 2, "max_tiles": 10, "tile_size": 512, "use_thumbnail": true` + half, gridEffects, ""},
}

// Means and deviations of pixels, and the settings of bounds of the area.
const (
	half = `, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
	clip = `, "image_mean": [0.48145466, 0.4578275, 0.40821073], ` +
		`"image_std": [0.26862954, 0.26130258, 0.27577711]}`
	area = `{"resample": 3, "patch_size": 14, "merge_size": 2, "size": {"shortest_edge": 3136, ` +
		`"longest_edge": 1003520}` + clip
)

// Align makes the sides of Pixtral's pictures multiples of the tower's blocks. Mistral's files have a patch's side, and
// the publisher's program multiplies by the merge. (transformers, models/pixtral/processing_pixtral.py)
func (p *Processor) Align(block int) { p.settings.block = block }

// Steps are the parts of preparing that another program may do otherwise. The zero value is a processor's own.
type Steps struct {
	Library image.Resizer
	Round   func(sides float64) float64 // of sides in multiples; nil is half to even
	Resize  func(m *image.Image, width, height int, f image.Filter) (*image.Image, error)
}

// Read returns the processor of a preprocessor_config.json. Another library than the processor's own may be asked for:
// publishers' files name the fast processors, which resize by torchvision, or the others, which resize by Pillow.
func Read(config []byte, library image.Resizer) (*Processor, error) {
	return ReadWith(config, Steps{Library: library})
}

// ReadWith returns the processor of a preprocessor_config.json with other steps.
func ReadWith(config []byte, steps Steps) (*Processor, error) {
	var named settings
	if err := json.Unmarshal(config, &named); err != nil {
		return nil, fmt.Errorf("preprocessor_config.json: %w", err)
	}
	kind, ok := kinds[named.kind()]
	if !ok {
		return nil, fmt.Errorf("preprocessor_config.json: image_processor_type is %q, which Karat does not know; "+
			"want %s", named.Type, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	s, err := readSettings([]byte(kind.omitted), config)
	if err != nil {
		return nil, fmt.Errorf("preprocessor_config.json: %w", err)
	}
	if s.Steps = steps; s.Library == "" {
		s.Library = kind.library
	}
	p := &Processor{settings: *s, tiles: kind.tiles}
	p.Values = p.settings.values(kind.order)
	return p, nil
}

// OrderOf returns the order of the processors with a name, without "Fast" and "Pil" at the end.
func OrderOf(name string) (o Order, ok bool) {
	kind, ok := kinds[name]
	return kind.order, ok
}

// Means returns the mean and the deviation of pixels, the class's where the file has none.
func (p *Processor) Means() (mean, std []any) {
	for i := range p.Mean {
		mean, std = append(mean, p.Mean[i]), append(std, p.Std[i])
	}
	return mean, std
}

// Filter returns the filter that resizes pictures.
func (p *Processor) Filter() image.Filter { return p.filter }

// mostPixels bounds the pixels of a picture's tiles; publishers' settings make at most 17 million.
const mostPixels = 32 << 20

// Prepare resizes a picture and cuts it into tiles. Of a picture without pixels the tiles have none either.
func (p *Processor) Prepare(m *image.Image) (*Input, error) {
	sizes, err := p.tiles(&p.settings, &image.Image{Width: m.Width, Height: m.Height})
	if err != nil || m.Pix == nil {
		return sizes, err
	}
	pixels := 0
	for _, t := range sizes.Tiles {
		if pixels += t.Width * t.Height; pixels > mostPixels {
			return nil, fmt.Errorf("preprocessor_config.json: %d tiles would have %dx%d pixels and more, the limit is "+
				"%d in all", len(sizes.Tiles), t.Width, t.Height, mostPixels)
		}
	}
	return p.tiles(&p.settings, m)
}
