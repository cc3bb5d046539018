package processor

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/image"
)

// facts are what transformers' processor makes of a picture.
type facts struct {
	Resized    [][2]int `json:"resized_wh"`
	SHA256     []string `json:"resized_sha256"`
	Shape      []int    `json:"pixel_values_shape"`
	Values     string   `json:"pixel_values_sha256"`
	Rows, Cols int
	PanAndScan struct {
		Crops  int      `json:"num_crops"`
		Values []string `json:"pixel_values_sha256"`
	} `json:"pan_and_scan"`
}

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// digestOf hashes float32 numbers, with zeros up to n.
func digestOf(x []float32, n int) string {
	b := make([]byte, 0, 4*n)
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return digest(append(b, make([]byte, 4*n-len(b))...))
}

// planes returns the numbers of a whole picture, [channel, row, column].
func (p *Processor) planes(m *image.Image) []float32 {
	v := p.Values
	var out []float32
	for c := range 3 {
		for i := c; i < len(m.Pix); i += 3 {
			out = append(out, v.levels[c][m.Pix[i]])
		}
	}
	return out
}

func read(t *testing.T, dir string, library image.Resizer, edit func(map[string]any)) *Processor {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "preprocessor_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		edit(m)
		b, _ = json.Marshal(m)
	}
	p, err := Read(b, library)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRecords wants the pictures and numbers of transformers' processors.
func TestRecords(t *testing.T) {
	root := golden.Shared(t, "goldens/vision")
	pictures := map[string]*image.Image{}
	for _, name := range []string{"gradient", "checker", "noise", "rings", "scene", "dot"} {
		data, err := os.ReadFile(filepath.Join(root, "images", name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		if pictures[name], err = image.Decode(data, image.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, model := range []string{"qwen3vl", "qwen35", "qwen25vl", "gemma3", "gemma4", "gemma4-moe", "smolvlm", "mistral3", "lfm2vl"} {
		t.Run(model, func(t *testing.T) {
			dir := filepath.Join(root, model)
			var record struct{ Images map[string]facts }
			b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			if err == nil {
				err = json.Unmarshal(b, &record)
			}
			if err != nil || len(record.Images) != len(pictures) {
				t.Fatalf("%d pictures, %v", len(record.Images), err)
			}
			p := read(t, dir, "", nil)
			for name, want := range record.Images {
				in, err := p.Prepare(pictures[name])
				if err != nil {
					t.Fatal(err)
				}
				p.compare(t, name, in, want)
				if len(want.PanAndScan.Values) > 0 {
					p := read(t, dir, "", func(m map[string]any) {
						m["do_pan_and_scan"], m["pan_and_scan_min_crop_size"] = true, 16
						m["pan_and_scan_max_num_crops"], m["pan_and_scan_min_ratio_to_activate"] = 4, 1.2
					})
					in, err := p.Prepare(pictures[name])
					if err != nil || max(in.Rows*in.Cols, 0) != want.PanAndScan.Crops {
						t.Fatalf("%s: %d crops, want %d, %v", name, in.Rows*in.Cols, want.PanAndScan.Crops, err)
					}
					var got []string
					for _, m := range slices.Concat(in.Tiles[len(in.Tiles)-1:], in.Tiles[:len(in.Tiles)-1]) {
						got = append(got, digestOf(p.planes(m), 3*m.Width*m.Height))
					}
					if !slices.Equal(got, want.PanAndScan.Values) {
						t.Errorf("%s: other numbers with pan and scan", name)
					}
				}
			}
		})
	}
}

func (p *Processor) compare(t *testing.T, name string, in *Input, want facts) {
	t.Helper()
	var sizes [][2]int
	var hashes []string
	var values []float32
	for _, m := range in.Tiles {
		sizes, hashes = append(sizes, [2]int{m.Width, m.Height}), append(hashes, digest(m.Pix))
		one := p.planes(m)
		if len(want.Shape) < 4 {
			one = p.Patches(m)
		}
		if last := len(want.Shape) - 1; len(want.Shape) == 3 { // patches are padded
			one = append(one, make([]float32, want.Shape[last]*want.Shape[last-1]-len(one))...)
		}
		values = append(values, one...)
	}
	if !slices.Equal(sizes, want.Resized) || !slices.Equal(hashes, want.SHA256) {
		t.Errorf("%s: other pictures: sizes %v, want %v", name, sizes, want.Resized)
		return
	}
	if r, c := max(in.Rows, 1), max(in.Cols, 1); want.Rows > 0 && (r != want.Rows || c != want.Cols) {
		t.Errorf("%s: %dx%d tiles, want %dx%d", name, r, c, want.Rows, want.Cols)
	}
	n := 1
	for _, d := range want.Shape {
		n *= d
	}
	if got := digestOf(values, n); got != want.Values {
		t.Errorf("%s: other numbers, %d of %d", name, len(values), n)
	}
}

// TestRefused: settings without a meaning are errors that name the setting.
func TestRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{`: "JSON", `{}`: `type is ""`, `{"image_processor_type": "X"}`: `"X"`,
		`{"image_processor_type": "Qwen2VLImageProcessor", "resample": 9}`:                                                         "resample is 9",
		`{"image_processor_type": "Qwen2VLImageProcessor", "resample": null}`:                                                      "resample is missing",
		`{"image_processor_type": "Gemma3ImageProcessor", "image_mean": [0, 0]}`:                                                   "image_mean has 2",
		`{"image_processor_type": "Gemma3ImageProcessor", "image_std": [1, 0, 1]}`:                                                 "image_std",
		`{"image_processor_type": "Gemma3ImageProcessor", "do_resize": false}`:                                                     "do_resize is false",
		`{"image_processor_type": "Gemma3ImageProcessor"}`:                                                                         "size.height is 0",
		`{"image_processor_type": "PixtralImageProcessor", "patch_size": {"height": 2, "width": 3}}`:                               "patch_size",
		`{"image_processor_type": "Gemma3ImageProcessor", "pan_and_scan_max_num_crops": 20000}`:                                    "pan_and_scan_max_num_crops is 20000",
		`{"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 1}}`: "4194304 tiles",
		`{"image_processor_type": "Gemma4ImageProcessor", "patch_size": 0}`:                                                        "patch_size is 0",
		`{"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 70000}`:                                               "patch_size is 70000",
	} {
		p, err := Read([]byte(config), "")
		if err == nil {
			_, err = p.Prepare(&image.Image{Width: 1, Height: 1, Pix: make([]byte, 3)})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestManyTiles refuses a picture of too many tiles before any has pixels.
func TestManyTiles(t *testing.T) {
	p, err := Read([]byte(`{"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 896, "width": 896}, `+
		`"do_pan_and_scan": true, "pan_and_scan_min_crop_size": 1, "pan_and_scan_max_num_crops": 1024, `+
		`"pan_and_scan_min_ratio_to_activate": 1}`), "")
	if err != nil {
		t.Fatal(err)
	}
	m := &image.Image{Width: 2048, Height: 1, Pix: make([]byte, 3*2048)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = p.Prepare(m)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "1025 tiles") {
		t.Errorf("%v, want a refusal of 1025 tiles", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("the refusal took %d bytes", n)
	}
}

// TestPassing: the picture between the two passes of resizing is bounded as the result is.
func TestPassing(t *testing.T) {
	for size, want := range map[string]string{`{"height": 1, "width": 1000}`: "", `{"height": 1, "width": 2000}`: "2000x60000"} {
		p, err := Read([]byte(`{"image_processor_type": "Gemma3ImageProcessor", "size": `+size+`}`), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Prepare(&image.Image{Width: 1, Height: 60000, Pix: make([]byte, 180000)})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", size, err, want)
		}
	}
}

// TestOmitted: settings that publishers' files leave out are those of transformers' classes.
func TestOmitted(t *testing.T) {
	for config, want := range map[string][2]int{ // of a picture of 3000x1000
		`{"image_processor_type": "Qwen2_5_VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056}`: {2996, 1008},
		`{"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "image_mean": [0.5, 0.5, 0.5],
			"image_std": [0.5, 0.5, 0.5], "size": {"longest_edge": 16777216, "shortest_edge": 65536}}`: {3008, 992},
		`{"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 401408}`:                               {1092, 364},
		`{"image_processor_type": "Qwen2VLImageProcessor", "size": {"max_pixels": 401408, "min_pixels": 3136}}`: {1092, 364},
		`{"image_processor_type": "Qwen2VLImageProcessor"}`:                                                     {1708, 560},
		`{"image_processor_type": "Gemma4ImageProcessor"}`:                                                      {1344, 432},
		`{"image_processor_type": "Lfm2VlImageProcessorFast"}`:                                                  {512, 512},
	} {
		p, err := Read([]byte(config), "")
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		in, err := p.Prepare(&image.Image{Width: 3000, Height: 1000, Pix: make([]byte, 9000000)})
		if err != nil {
			t.Errorf("%s: %v", config, err)
		} else if size := [2]int{in.Tiles[0].Width, in.Tiles[0].Height}; size != want {
			t.Errorf("%s: %v, want %v", config, size, want)
		}
	}
}

// FuzzRead: any settings prepare a picture, or are an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 2, "merge_size": 2, "resample": 3, "image_mean": [0, 0, 0], "image_std": [1, 1, 1], "size": {"longest_edge": 640, "shortest_edge": 16}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		p, err := Read(config, "")
		if err != nil {
			return
		}
		m := &image.Image{Width: 3, Height: 2, Pix: make([]byte, 18)}
		in, err := p.Prepare(m)
		if err != nil {
			return
		}
		for _, m := range in.Tiles {
			if m.Width*m.Height < 1 || len(m.Pix) != 3*m.Width*m.Height {
				t.Fatalf("a tile of %dx%d", m.Width, m.Height)
			}
			if p.patch > 0 && m.Width*m.Height < 1<<16 {
				p.Patches(m)
			}
		}
	})
}

// Patches returns the patches of a tile, [patches, values]. Pixels behind the last whole patch are left out.
func (v *Values) Patches(m *image.Image) []float32 {
	rows, cols, p := m.Height/v.patch, m.Width/v.patch, v.patch
	out := make([]float32, 0, rows*cols*p*p*3)
	if v.order != BlocksTwice {
		for i := range rows * cols {
			out = v.Patch(out, m, i%cols*p, i/cols*p, p)
		}
		return out
	}
	for block := range rows / v.merge * (cols / v.merge) {
		x, y := block%(cols/v.merge)*v.merge, block/(cols/v.merge)*v.merge
		for i := range v.merge * v.merge {
			out = v.Patch(out, m, (x+i%v.merge)*p, (y+i/v.merge)*p, p)
		}
	}
	return out
}
