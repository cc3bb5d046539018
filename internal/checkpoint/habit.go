package checkpoint

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
)

// Habit describes how converters to GGUF change a tensor: they permute rows of query and key projections for
// interleaved rotation, add 1 to norms, transpose matrices, and join tensors. The zero value changes nothing.
type Habit struct {
	Heads  int     // how many heads the permuted rows belong to; 0 where none are
	Halves int     // of a head's rows the first so many are permuted, the other way
	Plus   float32 // added to every value
	Turned bool    // matrices are transposed
	Joined string  // module with the numbered parts of the tensor
	Woven  []string
	Runs   bool
	Shares func(s family.Settings) (groups int, shares []family.Share)
	NegExp bool // GGUF has -e^x of the logarithm x
	Form   family.Form
	Groups int                     // of a Grouped tensor
	Skip   int                     // number of first rows, of padding, absent from GGUF
	Rows   int                     // of a matrix in GGUF, if more than in the folder
	Times  func(row int) []float64 // multipliers of a row, on the way to GGUF; nil for none
	tiled  tiled
	fused  fused
}

// fused describes the heads of queries and the groups of a projection to queries, keys and values.
type fused struct{ heads, groups int }

// moveRow returns the place, with or without groups, of row r of the other order.
func (f fused) moveRow(r, rows int, toGroups bool) int {
	heads := f.heads + 2*f.groups
	if heads == 0 || rows%heads != 0 || f.heads%f.groups != 0 {
		return r
	}
	dim, per := rows/heads, f.heads/f.groups
	h, i := r/dim, r%dim
	switch group, j := h/(per+2), h%(per+2); {
	case toGroups && h < f.heads:
		h = h/per*(per+2) + h%per
	case toGroups:
		h = (h-f.heads)%f.groups*(per+2) + per + (h-f.heads)/f.groups
	case j < per:
		h = group*per + j
	default:
		h = f.heads + (j-per)*f.groups + group
	}
	return h*dim + i
}

// tiled describes heads sharing groups, in order of groups or by turns.
type tiled struct {
	groups, heads, size int
	columns             bool
}

// byTurns returns the place by turns of head h by groups; byGroups is the inverse.
func (t tiled) byTurns(h int) int { per := t.heads / t.groups; return h%per*t.groups + h/per }

func (t tiled) byGroups(h int) int { return h%t.groups*(t.heads/t.groups) + h/t.groups }

// moveRow returns the place of row r after moving its head. The heads' rows are the last of all rows.
func (t tiled) moveRow(r, rows int, place func(int) int) int {
	first := rows - t.heads*t.size
	if first < 0 || r < first {
		return r
	}
	i := r - first
	return first + place(i/t.size)*t.size + i%t.size
}

// Permutes reports whether the formats have rows in another order.
func (h Habit) Permutes() bool {
	return h.Heads > 0 || h.tiled.groups > 0 && !h.tiled.columns || h.fused.groups > 0
}

// Regroup returns a folder's tensor with the columns of heads in GGUF's order, or with back the inverse. No data is
// copied. Where a head ends within a block, the values are in F32.
func (h Habit) Regroup(t tensor.Tensor, back bool) tensor.Tensor {
	g := h.tiled
	if !g.columns || g.groups == 0 || len(t.Shape) != 2 || t.Shape[1] != g.heads*g.size {
		return t
	}
	outer, inner := g.groups, g.heads/g.groups
	if back {
		outer, inner = inner, outer
	}
	if r, ok := packing.Reorder(t, outer, inner); ok {
		for _, b := range t.Origin() {
			mmap.Drop(b)
		}
		return r
	}
	if g.size%t.DType.BlockSize() != 0 {
		t = inF32(t)
	}
	return tensor.Regroup(t, outer, inner)
}

// Habit returns the converter's change to a tensor, given GGUF's name without .weight.
func (c *weights) Habit(gguf string) Habit {
	for _, h := range c.Family.Habits {
		if hasEnding(gguf, h.Ends) {
			skip := 0
			if h.Padded {
				skip = c.Padding()
			}
			var times func(row int) []float64
			if h.Times != nil {
				times = func(row int) []float64 { return h.Times(c.Values, row) }
			}
			halves := 0
			if h.Halves {
				p, _ := family.Object(c.RopeParameters()[family.FullAttention])
				if halves = c.Values.Int("head_dim"); p["partial_rotary_factor"] != nil {
					halves = int(float64(halves) * family.Settings(p).Number("partial_rotary_factor"))
				}
				if c.Values["mrope_section"] == nil {
					continue
				}
			}
			return Habit{Times: times, Halves: halves, tiled: c.tiled(h.Tiled), fused: fusedOf(h.Fused, c.Values),
				Heads: c.Values.Int(h.Heads), Plus: h.Plus,
				Turned: h.Turned, Joined: h.Joined, Woven: h.Woven, Runs: h.Runs, Shares: h.Shares,
				NegExp: h.NegExp, Form: h.Form, Skip: skip,
				Rows: c.Values.Int(h.Filled), Groups: c.Values.Int(h.Groups)}
		}
	}
	return Habit{}
}

// tiled returns the sizes of t's heads; the zero value where the settings contradict each other.
func (c *weights) tiled(t *family.Tiled) (g tiled) {
	if t == nil {
		return g
	}
	n := c.Values.Int
	if g = (tiled{n(t.Groups), n(t.Heads), 1, t.Columns}); t.Size != "" {
		g.size = n(t.Size)
	}
	if g.groups < 1 || g.heads <= g.groups || g.heads%g.groups != 0 || g.size < 1 {
		return tiled{} // with a group for each head both orders are the same
	}
	return g
}

func fusedOf(f *family.Fused, s family.Settings) fused {
	if f == nil {
		return fused{}
	}
	return fused{s.Int(f.Heads), s.Int(f.Groups)}
}

// HFRow returns the row of config.json's tensor with the values of GGUF's row r. GGUF's rows (head, pair, half) lie
// there as (head, half, pair).
func (h Habit) HFRow(r, rows int) int {
	if h.fused.groups > 0 {
		return h.fused.moveRow(r, rows, true)
	}
	if h.tiled.groups > 0 {
		return h.tiled.moveRow(r, rows, h.tiled.byGroups)
	}
	if h.Heads == 0 || rows%(2*h.Heads) != 0 {
		return r
	}
	dim := rows / h.Heads
	i := r % dim // pair*2 + half
	if h.Halves > 0 {
		return r - i + turn(i, h.Halves, true)
	}
	return r - i + turn(i, dim, false)
}

// GGUFRow returns the inverse of HFRow. Rows that do not divide into heads keep their places; binding reports the
// shape.
func (h Habit) GGUFRow(r, rows int) int {
	if h.fused.groups > 0 {
		return h.fused.moveRow(r, rows, false)
	}
	if h.tiled.groups > 0 {
		return h.tiled.moveRow(r, rows, h.tiled.byTurns)
	}
	if h.Heads == 0 || rows%(2*h.Heads) != 0 {
		return r
	}
	dim := rows / h.Heads
	i := r % dim // half*dim/2 + pair
	if h.Halves > 0 {
		return r - i + turn(i, h.Halves, false)
	}
	return r - i + turn(i, dim, true)
}

// turn returns the place of row i, of the first dim rows of a head, by pairs if it lies by halves, or the inverse.
func turn(i, dim int, pairs bool) int {
	switch {
	case i >= dim:
		return i
	case pairs:
		return i%(dim/2)*2 + i/(dim/2)
	}
	return i%2*(dim/2) + i/2
}

// Transpose returns a tensor of plain matrices transposed. Others are returned unchanged; binding reports the shape.
// Woven tensors have been transposed already, and a packed weight has rows of outputs: packings hold linear modules.
func (h Habit) Transpose(t tensor.Tensor) tensor.Tensor {
	if !h.Turned || h.Woven != nil || !isPlainMatrix(t) {
		return t
	}
	return tensor.Turn(t)
}

// isPlainMatrix reports whether t consists of matrices with plain elements in memory.
func isPlainMatrix(t tensor.Tensor) bool {
	return (len(t.Shape) == 2 || len(t.Shape) == 3) && !t.DType.Quantized() && t.Data != nil
}

// ChangesValues reports whether the formats have different values, beyond their order.
func (h Habit) ChangesValues() bool { return h.Plus != 0 || h.NegExp }

// ToGGUF returns GGUF's value for x of config.json's format.
func (h Habit) ToGGUF(x float32) float32 {
	if h.NegExp {
		return float32(-rope.Exp(float64(x)))
	}
	return x + h.Plus
}

// FromGGUF returns the inverse of ToGGUF; NaN where there is none.
func (h Habit) FromGGUF(x float32) float32 {
	if h.NegExp {
		return float32(rope.Ln(-float64(x)))
	}
	return x - h.Plus
}

// ToModel returns t in the model's shape. A tensor with an unexpected shape is returned unchanged; binding reports the
// shape.
func (h Habit) ToModel(f Format, t tensor.Tensor) tensor.Tensor {
	switch s := t.Shape; {
	case f == GGUF && len(s) == 2 &&
		(h.Form == family.Column && s[1] == 1 || h.Form == family.Grouped && s[0] == h.Groups):
		t.Shape = tensor.Shape{s[0] * s[1]}
	case h.Form == family.Squeezed && len(s) > 1:
		t.Shape = slices.DeleteFunc(slices.Clone(s), func(n int) bool { return n == 1 })
		if len(t.Shape) == 0 {
			t.Shape = tensor.Shape{1}
		}
	case h.Form == family.Lone && len(s) == 2 && s[0] == 1:
		t.Shape = tensor.Shape{s[1]}
	case f == GGUF && h.Form == family.Row && len(s) == 1:
		t.Shape = tensor.Shape{1, s[0]}
	case f == HuggingFace && h.Form == family.Depthwise && len(s) == 3 && s[1] == 1:
		t.Shape = tensor.Shape{s[0], s[2]}
	case f == HuggingFace && h.Skip > 0 && len(s) == 2 && s[0] > h.Skip && t.Source == nil && t.Data != nil:
		t.Shape, t.Data = tensor.Shape{s[0] - h.Skip, s[1]}, t.Data[h.Skip*t.DType.RowBytes(s[1]):]
	}
	return t
}

// ToFile returns the inverse of ToModel.
func (h Habit) ToFile(f Format, s tensor.Shape) tensor.Shape {
	switch {
	case h.Form == family.Lone && len(s) == 1:
		return tensor.Shape{1, s[0]}
	case h.Form == family.Squeezed && len(s) == 1:
		return tensor.Shape{1, 1, s[0], 1}
	case h.Form == family.Squeezed && len(s) == 2 && f == GGUF:
		return tensor.Shape{1, s[0], 1, s[1]}
	case f == GGUF && len(s) == 2 && h.Rows > s[0]:
		return tensor.Shape{h.Rows, s[1]}
	case f == GGUF && h.Form == family.Column && len(s) == 1:
		return tensor.Shape{s[0], 1}
	case f == GGUF && h.Form == family.Grouped && len(s) == 1 && h.Groups > 0 && s[0]%h.Groups == 0:
		return tensor.Shape{h.Groups, s[0] / h.Groups}
	case f == HuggingFace && (h.Form == family.Depthwise || h.Form == family.Squeezed) && len(s) == 2:
		return tensor.Shape{s[0], 1, s[1]}
	}
	return s
}

// Pad returns t with rows of zeros for padding.
func (h Habit) Pad(t tensor.Tensor) (tensor.Tensor, error) {
	if h.Skip == 0 || len(t.Shape) != 2 {
		return t, nil
	}
	t, err := t.Whole()
	if err != nil {
		return t, err
	}
	t.Data = append(make([]byte, h.Skip*t.DType.RowBytes(t.Shape[1])), t.Data...)
	t.Shape = tensor.Shape{t.Shape[0] + h.Skip, t.Shape[1]}
	return t, nil
}

// Fill returns t with GGUF's number of rows, of zeros behind t's. No data is copied.
func (h Habit) Fill(t tensor.Tensor) tensor.Tensor {
	if len(t.Shape) != 2 || h.Rows <= t.Shape[0] {
		return t
	}
	rows := t.Shape[0]
	zeros := tensor.Tensor{DType: t.DType, Shape: tensor.Shape{1, t.Shape[1]},
		Data: make([]byte, t.DType.RowBytes(t.Shape[1]))}
	return tensor.Gather(t.Name, []tensor.Tensor{t, zeros}, h.Rows, func(row int) (part, own int) {
		if row < rows {
			return 0, row
		}
		return 1, 0
	})
}

// hasEnding reports whether a name ends with one of the endings.
func hasEnding(name string, with []string) bool {
	return slices.ContainsFunc(with, func(end string) bool { return strings.HasSuffix(name, end) })
}
