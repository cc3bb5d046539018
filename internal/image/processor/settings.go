package processor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/image"
)

// settings are the fields of preprocessor_config.json.
type settings struct {
	Type      string    `json:"image_processor_type"`
	Resample  *int      `json:"resample"`
	Resizes   *bool     `json:"do_resize"`
	Rescales  *bool     `json:"do_rescale"`
	Rescale   *float64  `json:"rescale_factor"`
	Normalize *bool     `json:"do_normalize"`
	Mean      []float64 `json:"image_mean"`
	Std       []float64 `json:"image_std"`
	Size      size      `json:"size"`
	Patch     side      `json:"patch_size"`
	Merge     int       `json:"merge_size"`

	Steps
	filter image.Filter
	block  int // pixels along a side of the tower's blocks; 0 if unknown
	areaSettings
	cropSettings
	budgetSettings
	tileSettings
	gridSettings
}

// areaSettings are bounds of a picture's area in pixels, which win over Size's edges.
type areaSettings struct {
	MinPixels int `json:"min_pixels"`
	MaxPixels int `json:"max_pixels"`
}

// cropSettings are pan and scan's.
type cropSettings struct {
	PanAndScan bool    `json:"do_pan_and_scan"`
	MinCrop    int     `json:"pan_and_scan_min_crop_size"`
	MaxCrops   int     `json:"pan_and_scan_max_num_crops"`
	MinRatio   float64 `json:"pan_and_scan_min_ratio_to_activate"`
}

// budgetSettings are the tokens of a picture.
type budgetSettings struct {
	Pooling    int `json:"pooling_kernel_size"`
	SoftTokens int `json:"max_soft_tokens"`
}

// tileSettings are a tile's.
type tileSettings struct {
	Splitting    *bool `json:"do_image_splitting"`
	MaxImageSize size  `json:"max_image_size"`
}

// gridSettings are bounds of tokens and tiles.
type gridSettings struct {
	EncoderPatch int     `json:"encoder_patch_size"`
	Downsample   int     `json:"downsample_factor"`
	MinTokens    int     `json:"min_image_tokens"`
	MaxTokens    int     `json:"max_image_tokens"`
	Tolerance    float64 `json:"max_pixels_tolerance"`
	MinTiles     int     `json:"min_tiles"`
	MaxTiles     int     `json:"max_tiles"`
	TileSize     int     `json:"tile_size"`
	Thumbnail    bool    `json:"use_thumbnail"`
}

// Input is a picture as a model's tower takes it.
type Input struct {
	Tiles      []*image.Image // by rows; then the whole picture, if the tiles are parts of the picture
	Rows, Cols int            // of tiles; 0 if the picture is whole
}

// size is an area's or a side's bounds, or a size.
type size struct {
	Longest  int `json:"longest_edge"`
	Shortest int `json:"shortest_edge"`
	Height   int `json:"height"`
	Width    int `json:"width"`
	areaSettings
}

// side is a square's side, written as a number or as a height and a width.
type side int

// UnmarshalJSON implements json.Unmarshaler.
func (s *side) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*int)(s)) == nil {
		return nil
	}
	var z size
	if err := json.Unmarshal(b, &z); err != nil || z.Height != z.Width {
		return fmt.Errorf("patch_size is %s, want a square", b)
	}
	*s = side(z.Height)
	return nil
}

// mostTiles bounds the tiles of a picture.
const mostTiles = 1 << 10

// filters are Pillow's numbers of filters.
var filters = map[int]image.Filter{1: image.Lanczos, 2: image.Bilinear, 3: image.Bicubic}

// readSettings reads files, the later ones replacing settings of the earlier ones.
func readSettings(files ...[]byte) (*settings, error) {
	var s settings
	for _, f := range files {
		if err := json.Unmarshal(f, &s); err != nil {
			return nil, err
		}
	}
	if s.Resample == nil {
		return nil, errors.New("resample is missing")
	}
	if !isOn(s.Resizes) {
		return nil, errors.New("do_resize is false: pictures that are not resized are not supported")
	}
	var ok bool
	if s.filter, ok = filters[*s.Resample]; !ok {
		return nil, fmt.Errorf("resample is %d, want 1, 2 or 3", *s.Resample)
	}
	if len(s.Mean) != 3 || len(s.Std) != 3 {
		return nil, fmt.Errorf("image_mean has %d numbers and image_std %d, want 3", len(s.Mean), len(s.Std))
	}
	for _, v := range s.Std {
		if v <= 0 || math.IsInf(v, 0) {
			return nil, fmt.Errorf("image_std is %v", s.Std)
		}
	}
	for name, v := range map[string]int{"max_tiles": s.MaxTiles, "pan_and_scan_max_num_crops": s.MaxCrops} {
		if v > mostTiles {
			return nil, fmt.Errorf("%s is %d, want at most %d", name, v, mostTiles)
		}
	}
	const most = 1 << 16 // no side is longer
	for name, v := range map[string]int{"patch_size": int(s.Patch), "merge_size": s.Merge, "size.height": s.Size.Height,
		"size.width": s.Size.Width, "pooling_kernel_size": s.Pooling, "max_soft_tokens": s.SoftTokens,
		"max_image_size.longest_edge": s.MaxImageSize.Longest, "tile_size": s.TileSize, "max_tiles": s.MaxTiles,
		"downsample_factor": s.Downsample, "encoder_patch_size": s.EncoderPatch} {
		if v < 0 || v > most {
			return nil, fmt.Errorf("%s is %d, want 0 to %d", name, v, most)
		}
	}
	return &s, nil
}

// effects returns the settings by which a picture is prepared, apart from mean and deviation, by their names.
func (p *Processor) effects() map[string]any {
	kind := kinds[p.kind()]
	all := map[string]any{"image_processor_type": cmp.Or(kind.as, p.kind()), "resample": *p.Resample,
		"rescale_factor": p.scale(), "do_normalize": isOn(p.Normalize)}
	kind.effects(&p.settings, all)
	return all
}

// isOn reports the value of a switch, on where a file has none.
func isOn(b *bool) bool { return b == nil || *b }

// scale returns the factor of a level.
func (s *settings) scale() float64 {
	switch {
	case !isOn(s.Rescales):
		return 1
	case s.Rescale != nil:
		return *s.Rescale
	}
	return 1.0 / 255
}

// A Difference is a setting by which two files prepare pictures otherwise.
type Difference struct {
	Name string
	A, B any
}

// Differences compares two files, apart from mean and deviation.
func Differences(a, b []byte) (all []Difference, err error) {
	p, err := Read(a, "")
	if err != nil {
		return nil, err
	}
	q, err := Read(b, "")
	if err != nil {
		return nil, err
	}
	x, y := p.effects(), q.effects()
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if x[name] != y[name] {
			all = append(all, Difference{name, x[name], y[name]})
		}
	}
	return all, nil
}

// kind returns the processor's name without the library's.
func (s *settings) kind() string {
	return strings.TrimSuffix(strings.TrimSuffix(s.Type, "Fast"), "Pil")
}

// need returns an error naming the first setting that is not positive, of names and values in turns.
func need(of ...any) error {
	for i := 0; i < len(of); i += 2 {
		if of[i+1].(int) < 1 {
			return fmt.Errorf("preprocessor_config.json: %s is %d, want a positive number", of[i], of[i+1])
		}
	}
	return nil
}

func (s *settings) resize(m *image.Image, width, height int) (*image.Image, error) {
	high := max(height, m.Height) // columns are resized last
	if most := 64 << 20; width > 0 && high > most/width {
		return nil, fmt.Errorf("preprocessor_config.json: a picture would have %dx%d pixels, the limit is %d", width,
			high, most)
	}
	if m.Pix == nil {
		return &image.Image{Width: width, Height: height}, nil
	}
	if s.Resize != nil {
		return s.Resize(m, width, height, s.filter)
	}
	return m.Resize(width, height, s.filter, s.Library)
}

// whole returns a picture of one tile.
func (s *settings) whole(m *image.Image, width, height int) (*Input, error) {
	m, err := s.resize(m, width, height)
	if err != nil {
		return nil, err
	}
	return &Input{Tiles: []*image.Image{m}}, nil
}

// multiple returns x rounded to a multiple of n, half to even as Python does.
func (s *settings) multiple(x, n int) int {
	round := math.RoundToEven
	if s.Round != nil {
		round = s.Round
	}
	return int(round(float64(x)/float64(n))) * n
}

// cut returns the tiles of a picture by rows. The last of a row or column may be smaller.
func cut(m *image.Image, width, height int) (tiles []*image.Image, rows, cols int) {
	for y := 0; y < m.Height; y += height {
		for x := 0; x < m.Width; x += width {
			tiles = append(tiles, m.Part(x, y, min(width, m.Width-x), min(height, m.Height-y)))
		}
	}
	return tiles, (m.Height + height - 1) / height, (m.Width + width - 1) / width
}
