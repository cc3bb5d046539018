package mistake

import (
	"bytes"
	"encoding/json"
	"fmt"
	stdimage "image"
	_ "image/jpeg" // another decoder
	_ "image/png"  // likewise
	"maps"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/image/jpeg"
	"github.com/karat-run/karat/internal/image/processor"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/vision"
)

// Look is a mistake in preparing a picture, before the tower: a change of one stage.
type Look struct {
	Cause    string
	Op       string // stage: Decode, Size, Resize, Tiles, Normalize or Patches
	Detail   detail
	Computed string

	kind   string // looks of a kind exclude each other
	change func(s *sight)
}

// sight is an engine's way of preparing a picture. The zero value of a field is the model's way.
type sight struct {
	config map[string]any
	steps  processor.Steps
	decode func(data []byte) (*image.Image, error)
	before func(m *image.Image) *image.Image
	filter filter
	fit    fit
	size   func(m *image.Image, width, height int) (int, int)
	tiles  func(in *processor.Input)
	rows   func(m *vision.Model, t *vision.Tile)
	marks  func(p *vision.Picture)
}

// resize resizes a picture.
type resize func(m *image.Image, width, height int) (*image.Image, error)

// filter resizes where the model's filter is f; fit fits a picture into a size.
type (
	filter func(m *image.Image, width, height int, f image.Filter) (*image.Image, error)
	fit    func(m *image.Image, width, height int, by resize) (*image.Image, error)
)

// See prepares the picture in a file as an engine with some looks does.
func See(m *vision.Model, data []byte, library image.Resizer, looks ...*Look) (*lab.Shown, error) {
	s := &sight{steps: processor.Steps{Library: library}}
	if err := json.Unmarshal(m.Config, &s.config); err != nil {
		return nil, err
	}
	for _, l := range looks {
		l.change(s)
	}
	config, err := json.Marshal(s.config)
	if err != nil {
		return nil, err
	}
	if s.filter != nil || s.fit != nil || s.size != nil {
		s.steps.Resize = s.resized
	}
	by, err := processor.ReadWith(config, s.steps)
	if err != nil {
		return nil, err
	}
	if s.decode == nil {
		s.decode = func(data []byte) (*image.Image, error) { return image.Decode(data, image.Limits{}) }
	}
	pixels, err := s.decode(data)
	if err != nil {
		return nil, err
	}
	if s.before != nil {
		pixels = s.before(pixels)
	}
	p, err := m.PrepareBy(by, pixels, s.tiles)
	if err != nil {
		return nil, err
	}
	if p.Marks = slices.DeleteFunc(p.Marks, func(x family.Mark) bool { return x.To > p.Rows }); s.marks != nil {
		s.marks(p)
	}
	x := &lab.Shown{Picture: p, Tiles: m.Tiles(p)}
	for i := range x.Tiles {
		if s.rows != nil {
			s.rows(m, &x.Tiles[i])
		}
	}
	return x, nil
}

// resized resizes by the engine's size, fit and filter.
func (s *sight) resized(m *image.Image, width, height int, f image.Filter) (*image.Image, error) {
	if s.size != nil {
		width, height = s.size(m, width, height)
	}
	by := func(m *image.Image, width, height int) (*image.Image, error) {
		if s.filter != nil {
			return s.filter(m, width, height, f)
		}
		return m.Resize(width, height, f, s.steps.Library)
	}
	if s.fit != nil {
		return s.fit(m, width, height, by)
	}
	return by(m, width, height)
}

// OfSize returns the look of an engine that resizes a picture of one tile to a size of its own.
func OfSize(width, height int) *Look {
	return &Look{Cause: "image_size", Op: "Size", kind: "size", Detail: detail{"rule": "another",
		"width": float64(width), "height": float64(height)},
		Computed: fmt.Sprintf("resizes the picture to %dx%d pixels", width, height),
		change: func(s *sight) {
			s.size = func(*image.Image, int, int) (int, int) { return width, height }
		}}
}

// Looks lists what engines may do otherwise with a picture of a model, the likelier first.
func Looks(m *vision.Model) (all []*Look) {
	add := func(cause, op, kind string, d detail, computed string, change func(s *sight)) {
		all = append(all, &Look{cause, op, d, computed, kind, change})
	}
	by, err := processor.Read(m.Config, "")
	if err != nil {
		return nil
	}
	own := by.Filter()
	for _, f := range filters {
		cause, said := "image_filter", f.word
		if f.kernel == own && !f.wide {
			cause = "image_antialias"
		}
		if f.kernel != own || !f.wide {
			add(cause, "Resize", "filter", detail{"filter": string(f.kernel), "form": said}, "resizes by "+said,
				func(s *sight) { s.filter = f.by })
		}
	}
	for _, f := range fits() {
		add("image_fit", "Resize", "fit", f.detail, f.computed, func(s *sight) { s.fit = f.by })
	}
	for _, r := range []struct {
		word string
		by   func(float64) float64
	}{{"half up", func(x float64) float64 { return math.Floor(x + 0.5) }}, {"down", math.Floor}, {"up", math.Ceil}} {
		add("image_size", "Size", "size", detail{"rule": r.word}, "rounds sides "+r.word,
			func(s *sight) { s.steps.Round = r.by })
	}
	add("image_channels", "Decode", "channels", nil, "has blue before red", func(s *sight) { s.before = swapped })
	for _, d := range decoders {
		add("image_decoder", "Decode", "decoder", detail{"form": d.word}, d.computed,
			func(s *sight) { s.decode = d.by })
	}
	for _, t := range tilings {
		add("image_tiles", "Tiles", "tiles", detail{"order": t.word}, t.computed, func(s *sight) { s.tiles = t.by })
	}
	for _, v := range levels {
		add(v.cause, "Normalize", "values", detail{"form": v.word}, v.computed,
			func(s *sight) { maps.Copy(s.config, v.keys) })
	}
	if m.Takes().By != 0 {
		add("image_range", "Normalize", "values", detail{"form": "0 to 1"}, "leaves values from 0 to 1", unitRange)
	}
	for _, o := range orders {
		add("patch_order", "Patches", "rows", detail{"order": o.word}, o.computed, func(s *sight) { s.rows = o.by })
	}
	return all
}

// Around lists what engines may do otherwise with a picture's place in a prompt.
func Around() (all []*Look) {
	add := func(cause, op, word, computed string, change func(p *vision.Picture)) {
		all = append(all, &Look{Cause: cause, Op: op, Detail: detail{"form": word}, Computed: computed, kind: cause,
			change: func(s *sight) { s.marks = change }})
	}
	text := func(p *vision.Picture, last bool) int {
		at := -1
		for i, m := range p.Marks {
			if m.Text != "" && (at < 0 || last) {
				at = i
			}
		}
		return at
	}
	for _, last := range []bool{false, true} {
		where := map[bool]string{false: "first", true: "last"}[last]
		add("image_markers", "Embed", "no "+where, "leaves out the "+where+" marker of a picture",
			func(p *vision.Picture) {
				if at := text(p, last); at >= 0 {
					p.Marks = slices.Delete(slices.Clone(p.Marks), at, at+1)
				}
			})
		add("image_markers", "Embed", "double "+where, "writes the "+where+" marker of a picture twice",
			func(p *vision.Picture) {
				if at := text(p, last); at >= 0 {
					p.Marks = slices.Insert(slices.Clone(p.Marks), at, p.Marks[at])
				}
			})
	}
	add("image_advance", "RoPE", "rows", "goes on after a picture by the number of its rows",
		func(p *vision.Picture) { p.Advance = p.Rows })
	add("image_advance", "RoPE", "one", "goes on after a picture by one position",
		func(p *vision.Picture) { p.Advance = 1 })
	add("image_advance", "RoPE", "more", "goes on after a picture by one position too many",
		func(p *vision.Picture) { p.Advance++ })
	return all
}

// Excludes reports whether an engine has at most one of two looks.
func (l *Look) Excludes(x *Look) bool { return l.kind == x.kind }

// levels are other numbers of a level.
var levels = []struct {
	cause, word, computed string
	keys                  map[string]any
}{
	{"image_mean", "clip", "normalizes by CLIP's mean and deviation", map[string]any{"do_normalize": true,
		"image_mean": []any{0.48145466, 0.4578275, 0.40821073},
		"image_std":  []any{0.26862954, 0.26130258, 0.27577711}}},
	{"image_mean", "half", "normalizes by 0.5 and 0.5", map[string]any{"do_normalize": true,
		"image_mean": []any{0.5, 0.5, 0.5}, "image_std": []any{0.5, 0.5, 0.5}}},
	{"image_mean", "imagenet", "normalizes by ImageNet's mean and deviation", map[string]any{"do_normalize": true,
		"image_mean": []any{0.485, 0.456, 0.406}, "image_std": []any{0.229, 0.224, 0.225}}},
	{"image_mean", "none", "does not normalize", map[string]any{"do_normalize": false}},
	{"image_range", "0 to 255", "takes levels from 0 to 255 for numbers", map[string]any{"rescale_factor": 1.0}},
	{"image_range", "256", "divides levels by 256", map[string]any{"rescale_factor": 1.0 / 256}},
	{"image_range", "twice", "divides levels by 255 twice", map[string]any{"rescale_factor": 1.0 / 255 / 255}},
}

// unitRange leaves out the step to -1 to 1.
func unitRange(s *sight) {
	s.rows = func(_ *vision.Model, t *vision.Tile) {
		for _, row := range t.Embeddings {
			for i, v := range row {
				row[i] = (v + 1) / 2
			}
		}
	}
}

// swapped returns a picture with blue before red.
func swapped(m *image.Image) *image.Image {
	x := &image.Image{Width: m.Width, Height: m.Height, Pix: slices.Clone(m.Pix)}
	for i := 0; i < len(x.Pix); i += 3 {
		x.Pix[i], x.Pix[i+2] = x.Pix[i+2], x.Pix[i]
	}
	return x
}

// decoders are other ways to pixels.
var decoders = []struct {
	word, computed string
	by             func(data []byte) (*image.Image, error)
}{
	{"turn", "does not turn the picture as EXIF says", func(data []byte) (*image.Image, error) {
		rgb, h, err := jpeg.Decode(data, nil)
		if err != nil { // a picture of another form
			return image.Decode(data, image.Limits{})
		}
		return &image.Image{Width: h.Width, Height: h.Height, Pix: rgb}, nil
	}},
	{"jpeg", "decodes JPEG with other rounding, and chroma without interpolation", laid(nil)},
	{"black", "lays transparent pixels over black", laid([]byte{0, 0, 0})},
	{"white", "lays transparent pixels over white", laid([]byte{255, 255, 255})},
}

// laid returns a decoder with Go's library: of JPEG, or of other forms, whose transparent pixels lie over a color.
func laid(under []byte) func(data []byte) (*image.Image, error) {
	return func(data []byte) (*image.Image, error) {
		src, form, err := stdimage.Decode(bytes.NewReader(data))
		if err != nil { // neither
			return image.Decode(data, image.Limits{})
		}
		if (form == "jpeg") == (under != nil) {
			return image.Decode(data, image.Limits{})
		}
		b := src.Bounds()
		m := &image.Image{Width: b.Dx(), Height: b.Dy()}
		for y := b.Min.Y; y < b.Max.Y; y++ {
			for x := b.Min.X; x < b.Max.X; x++ {
				r, g, bl, a := src.At(x, y).RGBA()
				for i, v := range []uint32{r, g, bl} {
					if under != nil {
						v += uint32(under[i]) * 257 * (0xffff - a) / 0xffff
					}
					m.Pix = append(m.Pix, byte(v>>8))
				}
			}
		}
		return m, nil
	}
}

// tilings are other orders of tiles. In a picture of several tiles the whole picture comes last.
var tilings = []struct {
	word, computed string
	by             func(in *processor.Input)
}{
	{"whole first", "has the whole picture before its parts", func(in *processor.Input) {
		if n := len(in.Tiles) - 1; n > 0 && n >= in.Rows*in.Cols {
			in.Tiles = append([]*image.Image{in.Tiles[n]}, in.Tiles[:n]...)
		}
	}},
	{"no whole", "leaves out the whole picture beside its parts", func(in *processor.Input) {
		if n := len(in.Tiles) - 1; n > 0 && n == in.Rows*in.Cols {
			in.Tiles = in.Tiles[:n]
		}
	}},
	{"columns", "has the parts by columns", func(in *processor.Input) {
		was := slices.Clone(in.Tiles)
		for i := range in.Rows * in.Cols {
			in.Tiles[i] = was[i%in.Cols*in.Rows+i/in.Cols]
			if in.Rows > 1 && in.Cols > 1 {
				in.Tiles[i] = was[i%in.Rows*in.Cols+i/in.Rows]
			}
		}
	}},
}

// orders are other orders of a patch's numbers, and of patches.
var orders = []struct {
	word, computed string
	by             func(m *vision.Model, t *vision.Tile)
}{
	{"channels", "has the channels of a patch in another place", func(m *vision.Model, t *vision.Tile) {
		within(t, m.Order() == processor.ChannelLast, func(c, y, x, side int) int { return (y*side+x)*3 + c },
			func(c, y, x, side int) int { return (c*side+y)*side + x })
	}},
	{"columns", "has the numbers of a patch by columns", func(m *vision.Model, t *vision.Tile) {
		if m.Order() == processor.ChannelLast {
			within(t, false, func(c, y, x, side int) int { return (y*side+x)*3 + c },
				func(c, y, x, side int) int { return (x*side+y)*3 + c })
			return
		}
		within(t, false, func(c, y, x, side int) int { return (c*side+y)*side + x },
			func(c, y, x, side int) int { return (c*side+x)*side + y })
	}},
	{"blocks", "takes patches by rows for patches by blocks, or the reverse", func(m *vision.Model, t *vision.Tile) {
		side, wide := m.Takes().Side, t.Grid.Width
		patches(t, func(row, col int) (int, int) {
			if m.Order() == processor.BlocksTwice { // patch i of a block order is patch i by rows
				block := row/side*(wide/side) + col/side
				i := block*side*side + row%side*side + col%side
				return i / wide, i % wide
			}
			i := row*wide + col
			block, in := i/(side*side), i%(side*side)
			return block/(wide/side)*side + in/side, block%(wide/side)*side + in%side
		})
	}},
	{"patches by columns", "has the patches by columns", func(_ *vision.Model, t *vision.Tile) {
		patches(t, func(row, col int) (int, int) {
			i := row*t.Grid.Width + col
			return i % t.Grid.Height, i / t.Grid.Height
		})
	}},
}

// within moves the numbers of each patch from places by one rule to places by another, or back.
func within(t *vision.Tile, back bool, first, second func(c, y, x, side int) int) {
	if back {
		first, second = second, first
	}
	for _, row := range t.Embeddings {
		side := int(math.Sqrt(float64(len(row) / 3)))
		times := 1
		if side*side*3 != len(row) {
			side, times = int(math.Sqrt(float64(len(row)/6))), 2
		}
		was, n := slices.Clone(row), side*side
		for c := range 3 {
			for time := range times {
				at := func(by func(c, y, x, side int) int, y, x int) int {
					if i := by(c, y, x, side); times > 1 { // [channel, time, row, column]
						return i/n*n*2 + time*n + i%n
					}
					return by(c, y, x, side)
				}
				for i := range n {
					row[at(first, i/side, i%side)] = was[at(second, i/side, i%side)]
				}
			}
		}
	}
}

// patches gives each patch the numbers of the patch at another place.
func patches(t *vision.Tile, from func(row, col int) (int, int)) {
	by := map[[2]int][]float32{}
	for i, p := range t.Parts {
		by[[2]int{int(p[1]), int(p[2])}] = t.Embeddings[i]
	}
	for i, p := range t.Parts {
		row, col := from(int(p[1]), int(p[2]))
		if x := by[[2]int{row, col}]; x != nil {
			t.Embeddings[i] = x
		}
	}
}

// lookIDs are the mistakes in preparing pictures and in their places in prompts.
var lookIDs = []string{"image_markers", "image_advance", "image_decoder", "image_channels", "image_size",
	"image_filter",
	"image_antialias", "image_fit", "image_tiles", "image_mean", "image_range", "patch_order"}

func isLook(id string) bool { return slices.Contains(lookIDs, id) }

// Engine is an engine's eye with mistakes built in.
type Engine struct {
	Graph *graph.Graph // the tower's
	Edits reference.Edits
	Looks []*Look
	Done  []Injected
}

// InjectSight builds mistakes into the part of a model that sees: into the tower, and as looks, the likeliest of a
// mistake's or the one with a word as the value.
func InjectSight(m *vision.Model, faults []Fault) (e *Engine, err error) {
	e = &Engine{Graph: m.Graph}
	var tower []Fault
	all := append(Looks(m), Around()...)
	for _, f := range faults {
		if f.Tower {
			f.Tower = false
			tower = append(tower, f)
			continue
		}
		at := slices.IndexFunc(all, func(l *Look) bool { return l.is(f) })
		if at < 0 || f.Where != "" || f.Layers != "" {
			return nil, fmt.Errorf("%v: the model's pictures have no such form", f)
		}
		l := all[at]
		e.Looks = append(e.Looks, l)
		e.Done = append(e.Done, Injected{Cause: l.Cause, Fault: f.String(), Op: l.Op, Layers: []int{},
			Detail: l.Computed, Positions: 1})
	}
	if len(tower) == 0 {
		return e, nil
	}
	var done []Injected
	e.Graph, e.Edits, done, err = Inject(m.Graph, tower)
	for _, x := range done {
		x.Fault = towerMark + x.Fault
		e.Done = append(e.Done, x)
	}
	return e, err
}

// is reports whether l is the form of a fault.
func (l *Look) is(f Fault) bool {
	if l.Cause != f.ID {
		return false
	}
	for _, v := range l.Detail {
		if f.Value == v {
			return true
		}
	}
	return f.Value == ""
}

// Eye returns an eye that sees as the engine does.
func (e *Engine) Eye(right *lab.Eye, m *vision.Model) *lab.Eye {
	x := *right
	m.Graph = e.Graph
	x.Model, x.Prepare = m, func(data []byte) (*lab.Shown, error) { return See(m, data, "", e.Looks...) }
	return &x
}
