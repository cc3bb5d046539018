package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
)

// Habit is what converters to GGUF do to a tensor: they permute the rows of some
// families' query and key projections for interleaved rotation, add 1 to the
// norms of others, transpose matrices, and make one tensor of many. The zero value is nothing.
type Habit struct {
	Heads  int     // how many heads the permuted rows belong to; 0 where none are
	Plus   float32 // added to every value
	Turned bool    // matrices are transposed
	Joined string  // the module that lists the parts of a tensor
	Woven  []string
	Runs   bool
	NegExp bool // GGUF has -e^x of the logarithm x
	Form   family.Form
	Groups int                     // of a Grouped tensor
	Skip   int                     // first rows that GGUF leaves out: those of padding
	Times  func(row int) []float64 // multipliers of a row, on the way to GGUF; nil for none
	tiled  tiled
}

// tiled is heads that share groups, and lie by groups or by turns.
type tiled struct {
	groups, heads, size int
	columns             bool
}

// at returns the place of head h where heads are by turns, given its place by groups; back is the inverse.
func (t tiled) at(h int) int { per := t.heads / t.groups; return h%per*t.groups + h/per }

func (t tiled) back(h int) int { return h%t.groups*(t.heads/t.groups) + h/t.groups }

// row returns r, of rows whose last ones are the heads', with its head in another place.
func (t tiled) row(r, rows int, place func(int) int) int {
	first := rows - t.heads*t.size
	if first < 0 || r < first {
		return r
	}
	i := r - first
	return first + place(i/t.size)*t.size + i%t.size
}

// Permutes reports whether the formats have rows in another order.
func (h Habit) Permutes() bool { return h.Heads > 0 || h.tiled.groups > 0 && !h.tiled.columns }

// Regroup returns a folder's t with the columns of heads in GGUF's order, or with back the inverse. It copies nothing.
func (h Habit) Regroup(t tensor.Tensor, back bool) tensor.Tensor {
	g := h.tiled
	if !g.columns || g.groups == 0 || len(t.Shape) != 2 || t.Shape[1] != g.heads*g.size || t.DType.Quantized() && g.size%t.DType.BlockSize() != 0 {
		return t
	}
	if back {
		return tensor.Regroup(t, g.heads/g.groups, g.groups)
	}
	return tensor.Regroup(t, g.groups, g.heads/g.groups)
}

// Habit returns the converter's change to the tensor of this name in GGUF, without .weight.
func (c *weights) Habit(gguf string) Habit {
	for _, h := range c.Family.Habits {
		if ends(gguf, h.Ends) {
			skip := 0
			if h.Padded {
				skip = c.Padding()
			}
			var times func(row int) []float64
			if h.Times != nil {
				times = func(row int) []float64 { return h.Times(c.Values, row) }
			}
			return Habit{Times: times, tiled: c.tiled(h.Tiled), Heads: c.Values.Int(h.Heads), Plus: h.Plus, Turned: h.Turned, Joined: h.Joined, Woven: h.Woven, Runs: h.Runs,
				NegExp: h.NegExp, Form: h.Form, Skip: skip, Groups: c.Values.Int(h.Groups)}
		}
	}
	return Habit{}
}

// tiled returns the heads that t says; none where the settings contradict each other.
func (c *weights) tiled(t *family.Tiled) (g tiled) {
	if t == nil {
		return g
	}
	n := c.Values.Int
	if g = (tiled{n(t.Groups), n(t.Heads), 1, t.Columns}); t.Size != "" {
		g.size = n(t.Size)
	}
	if g.groups < 1 || g.heads <= g.groups || g.heads%g.groups != 0 || g.size < 1 {
		return tiled{} // as many heads as groups are in one order
	}
	return g
}

// Stored returns which row of the other format's tensor GGUF's row r is, of rows:
// rows (head, half, pair) lie as (head, pair, half).
func (h Habit) Stored(r, rows int) int {
	if h.tiled.groups > 0 {
		return h.tiled.row(r, rows, h.tiled.back)
	}
	if h.Heads == 0 || rows%(2*h.Heads) != 0 {
		return r
	}
	dim := rows / h.Heads
	i := r % dim // pair*2 + half
	return r - i + i%2*(dim/2) + i/2
}

// Restored is the inverse of Stored. A tensor whose rows are no whole heads is
// left as it is; its shape is reported later.
func (h Habit) Restored(r, rows int) int {
	if h.tiled.groups > 0 {
		return h.tiled.row(r, rows, h.tiled.at)
	}
	if h.Heads == 0 || rows%(2*h.Heads) != 0 {
		return r
	}
	dim := rows / h.Heads
	i := r % dim // half*dim/2 + pair
	return r - i + i%(dim/2)*2 + i/(dim/2)
}

// Turn returns t transposed, where it is matrices of plain elements. Another one is left as it
// is; its shape is reported later. What was woven has been turned.
func (h Habit) Turn(t tensor.Tensor) tensor.Tensor {
	if !h.Turned || h.Woven != nil || !turns(t) {
		return t
	}
	return tensor.Turn(t)
}

// turns reports whether t is one matrix or several, of plain elements in memory.
func turns(t tensor.Tensor) bool {
	return (len(t.Shape) == 2 || len(t.Shape) == 3) && !t.DType.Quantized() && t.Data != nil
}

// Values reports whether the formats have other values, beyond their order.
func (h Habit) Values() bool { return h.Plus != 0 || h.NegExp }

// ToGGUF returns GGUF's value of x, which is the other format's.
func (h Habit) ToGGUF(x float32) float32 {
	if h.NegExp {
		return float32(-rope.Exp(float64(x)))
	}
	return x + h.Plus
}

// FromGGUF is the inverse of ToGGUF; NaN where there is none.
func (h Habit) FromGGUF(x float32) float32 {
	if h.NegExp {
		return float32(rope.Ln(-float64(x)))
	}
	return x - h.Plus
}

// Shaped returns t in the model's shape. One of another shape than the format has is left as it is; its
// shape is reported later.
func (h Habit) Shaped(f Format, t tensor.Tensor) tensor.Tensor {
	switch s := t.Shape; {
	case f == GGUF && len(s) == 2 && (h.Form == family.Column && s[1] == 1 || h.Form == family.Grouped && s[0] == h.Groups):
		t.Shape = tensor.Shape{s[0] * s[1]}
	case f == GGUF && h.Form == family.Row && len(s) == 1:
		t.Shape = tensor.Shape{1, s[0]}
	case f == HuggingFace && h.Form == family.Depthwise && len(s) == 3 && s[1] == 1:
		t.Shape = tensor.Shape{s[0], s[2]}
	case f == HuggingFace && h.Skip > 0 && len(s) == 2 && s[0] > h.Skip && t.Source == nil && t.Data != nil:
		t.Shape, t.Data = tensor.Shape{s[0] - h.Skip, s[1]}, t.Data[h.Skip*t.DType.RowBytes(s[1]):]
	}
	return t
}

// Filed is the inverse of Shaped.
func (h Habit) Filed(f Format, s tensor.Shape) tensor.Shape {
	switch {
	case f == GGUF && h.Form == family.Column && len(s) == 1:
		return tensor.Shape{s[0], 1}
	case f == GGUF && h.Form == family.Grouped && len(s) == 1 && h.Groups > 0 && s[0]%h.Groups == 0:
		return tensor.Shape{h.Groups, s[0] / h.Groups}
	case f == HuggingFace && h.Form == family.Depthwise && len(s) == 2:
		return tensor.Shape{s[0], 1, s[1]}
	}
	return s
}

// Part returns the name, in config.json's format, of part i of the tensor that the model has
// under the name hf.
func (h Habit) Part(hf string, i int) string {
	at := strings.LastIndex(hf, "."+h.Joined+".")
	if at < 0 {
		return hf
	}
	at += len(h.Joined) + 1
	return fmt.Sprintf("%s.%d%s", hf[:at], i, hf[at:])
}

// part takes a name apart: the one that the model has for the joined tensor, and the number
// of the part.
func (c *weights) part(name string) (joined string, i int, ok bool) {
	for _, h := range c.Family.Habits {
		if c.Format == GGUF {
			if joined, i, ok = oldPart(h, name); ok {
				return joined, i, ok
			}
			continue
		}
		before, after, found := strings.Cut(name, "."+h.Joined+".")
		number, role, two := strings.Cut(after, ".")
		if i, err := strconv.Atoi(number); h.Joined != "" && found && two && err == nil && strconv.Itoa(i) == number {
			return before + "." + h.Joined + "." + role, i, true
		}
	}
	return "", 0, false
}

// oldPart is part of a name in early files of GGUF: blk.0.ffn_gate.3 is matrix 3 of
// blk.0.ffn_gate_exps.
func oldPart(h family.Habit, name string) (joined string, i int, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || h.Joined == "" {
		return "", 0, false
	}
	joined = name[:dot] + "_exps"
	i, err := strconv.Atoi(name[dot+1:])
	return joined, i, err == nil && strconv.Itoa(i) == name[dot+1:] && ends(joined, h.Ends)
}

// join makes one tensor of several of a Hugging Face folder, or of an early file of GGUF.
// Nothing is copied.
func (c *weights) join() error {
	parts := map[string]map[int]tensor.Tensor{}
	var names []string
	for _, name := range c.set.Names {
		joined, i, ok := c.part(name)
		if !ok {
			names = append(names, name)
			continue
		}
		if parts[joined] == nil {
			parts[joined] = map[int]tensor.Tensor{}
			names = append(names, joined)
		}
		parts[joined][i] = c.set.ByName[name]
		delete(c.set.ByName, name)
	}
	for _, joined := range names {
		of := parts[joined]
		if of == nil {
			continue
		}
		list := make([]tensor.Tensor, len(of))
		for i := range list {
			var ok bool
			if list[i], ok = of[i]; !ok {
				return fmt.Errorf("%s: tensor %s: part %d is missing, of %d or more", c.Path, joined, i, len(of)+1)
			}
		}
		t, err := tensor.Join(joined+".weight", list)
		if err != nil {
			return fmt.Errorf("%s: tensor %s: %w", c.Path, joined, err)
		}
		if _, ok := c.set.ByName[joined]; ok {
			return fmt.Errorf("%s: tensor %s: it is there in parts, too", c.Path, joined)
		}
		c.set.ByName[joined] = t
	}
	c.set.Names = names
	return nil
}

// unweave takes the tensors of a Hugging Face folder apart whose rows are those of several of the
// model's, by turns or one after another. Nothing is copied.
func (c *weights) unweave() error {
	var names []string
	for _, name := range c.set.Names {
		h := c.woven(name)
		if h == nil {
			names = append(names, name)
			continue
		}
		t, whole, parts := c.set.ByName[name], h.Woven[0], h.Woven[1:]
		if h.Turned && turns(t) {
			t = tensor.Turn(t)
		}
		pick, rows := tensor.Pick, 1 // the dimension that is divided
		if h.Runs {
			pick, rows = tensor.Cut, len(t.Shape)-2
		}
		if n := len(t.Shape); n != 3 && (n != 2 || t.DType.Quantized() && !h.Runs) || t.Shape[rows]%len(parts) != 0 {
			return fmt.Errorf("%s: tensor %s: %v %v has no rows of %d tensors", c.Path, t.Name, t.DType, []int(t.Shape), len(parts))
		}
		delete(c.set.ByName, name)
		for i, part := range parts {
			own := strings.TrimSuffix(name, whole) + part
			if _, ok := c.set.ByName[own]; ok {
				return fmt.Errorf("%s: tensor %s: it is there as part of %s, too", c.Path, own, name)
			}
			c.set.ByName[own] = pick(t, i, len(parts))
			names = append(names, own)
		}
	}
	c.set.Names = names
	return nil
}

// Woven is, of a GGUF file's weight, the one that config.json's format has: w, or one woven of
// w and others; nil of those others.
func (c *weights) Woven(weights []*graph.Weight, w *graph.Weight) *graph.Weight {
	h := c.Habit(w.GGUF)
	if h.Woven == nil {
		return w
	}
	whole, parts := h.Woven[0], h.Woven[1:]
	stem, first := strings.CutSuffix(w.HF, parts[0])
	if !first {
		return nil
	}
	var all []tensor.Tensor
	for _, part := range parts {
		i := slices.IndexFunc(weights, func(o *graph.Weight) bool { return o.HF == stem+part })
		all = append(all, weights[i].Tensor) // binding found them all
	}
	weave := tensor.Weave
	if h.Runs {
		weave = tensor.Stack
	}
	return &graph.Weight{Tensor: weave(w.Name, all), GGUF: w.GGUF, HF: stem + whole}
}

// woven returns the family's habit of a woven tensor, nil for others.
func (c *weights) woven(name string) *family.Habit {
	for i, h := range c.Family.Habits {
		if len(h.Woven) > 0 && strings.HasSuffix(name, "."+h.Woven[0]) {
			return &c.Family.Habits[i]
		}
	}
	return nil
}

// restore makes the model's tensor of a file's. GGUF's name tells the habit that is undone
// there. One of a folder that lies there in another form is copied, as it is multiplied from
// then on.
func (c *weights) restore(name string, t tensor.Tensor) (tensor.Tensor, error) {
	if _, half := t.Source.(*halved); half {
		return t.Whole()
	}
	h := c.Habit(name)
	t = h.Shaped(c.Format, t)
	if c.Format != GGUF {
		if h.NegExp {
			return changed(t, h.ToGGUF)
		}
		return gathered(h.Regroup(h.Turn(t), false))
	}
	t, err := gathered(t)
	if err != nil {
		return t, err
	}
	switch {
	case h.Plus != 0:
		return changed(t, h.FromGGUF)
	case h.Permutes() && len(t.Shape) == 2 && (t.DType.Quantized() || t.Source != nil):
		t.Order = func(row int) int { return h.Restored(row, t.Shape[0]) }
	case h.Permutes() && len(t.Shape) > 0:
		return unpermute(t, h), nil
	}
	return t, nil
}

// gathered returns a tensor with its values as they are multiplied from then on: one that lies in another
// form in files in memory is copied.
func gathered(t tensor.Tensor) (tensor.Tensor, error) {
	origin := t.Origin()
	if _, joined := t.Source.(tensor.Joined); t.Source == nil || joined || origin == nil { // nil: of a file that is not in memory
		return t, nil
	}
	t, err := t.Whole()
	for _, b := range origin {
		mmap.Drop(b)
	}
	return t, err
}

// changed returns t with other values, in float32. Subtraction is exact for weights from 0.5 to 2,
// and elsewhere rounds as the addition did.
func changed(t tensor.Tensor, value func(float32) float32) (tensor.Tensor, error) {
	t, err := t.Whole()
	if err != nil {
		return t, err
	}
	values := make([]float32, t.Shape.Size())
	if err := quant.Dequantize(t.DType, values, t.Data); err != nil {
		return t, err
	}
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value(v)))
	}
	t.DType, t.Data = tensor.F32, data
	return t, nil
}

// unpermute copies a matrix with its rows in the order of the graph.
func unpermute(t tensor.Tensor, h Habit) tensor.Tensor {
	rows := t.Shape[0]
	size := len(t.Data) / rows
	data := make([]byte, len(t.Data))
	for r := range rows {
		copy(data[r*size:(r+1)*size], t.Data[h.Restored(r, rows)*size:])
	}
	mmap.Drop(t.Data) // else it would be in memory twice
	t.Data = data
	return t
}

// Stored is a Checkpoint as a bind.Source whose tensors have the values of the files:
// nothing of them is copied.
type Stored struct{ *Checkpoint }

// Tensor implements bind.Source.
func (s Stored) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	t, ok := s.set.ByName[s.Name(gguf, hf)]
	if !ok {
		return t, false
	}
	h := s.Habit(gguf)
	if t = h.Shaped(s.Format, t); s.Format == HuggingFace {
		t = h.Regroup(h.Turn(t), false)
	}
	return t, true
}

// TensorName returns the name that a format has for a tensor, given the one without
// .weight, which parameters that are no module's weight do not take.
func (c *weights) TensorName(f Format, name string) string {
	if f == HuggingFace {
		root, _, _ := strings.Cut(c.Family.Model.Embedding(), ".")
		if rest, ok := strings.CutPrefix(name, root+"."); ok && c.root() != "" {
			name = c.root() + "." + rest
		}
	}
	if ends(name, []string{".bias", ".scale"}) || ends(name, c.Family.Bare) {
		return name
	}
	return name + ".weight"
}

// root returns how the model's files in config.json's format call the module that the embedding is in; "" for as Family.Embedding does.
func (c *weights) root() string { return c.Type().Root }

// ends reports whether a name has one of the endings.
func ends(name string, with []string) bool {
	return slices.ContainsFunc(with, func(end string) bool { return strings.HasSuffix(name, end) })
}
