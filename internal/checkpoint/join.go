package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// PartName returns the name, in config.json's format, of part i of the model's tensor hf.
func (h Habit) PartName(hf string, i int) string {
	at := strings.LastIndex(hf+".", "."+h.Joined+".")
	if at < 0 {
		return hf
	}
	at += len(h.Joined) + 1
	return fmt.Sprintf("%s.%d%s", hf[:at], i, hf[at:])
}

// splitPart splits a part's name into the name of the joined tensor and the number of the part.
func (c *weights) splitPart(name string) (joined string, i int, ok bool) {
	if c.Format == HuggingFace {
		for _, h := range c.Family.Habits {
			if stem, number, found := cutLast(name); found && h.Joined != "" && strings.HasSuffix(stem, "."+h.Joined) {
				i, err := strconv.Atoi(number)
				return stem, i, err == nil && strconv.Itoa(i) == number
			}
		}
		before, after, found := strings.Cut(name, ".experts.")
		number, role, two := strings.Cut(after, ".")
		i, err := strconv.Atoi(number)
		return before + ".experts." + role, i, found && two && err == nil && strconv.Itoa(i) == number
	}
	for _, h := range c.Family.Habits {
		if joined, i, ok = splitOldPart(h, name); ok {
			return joined, i, ok
		}
	}
	return "", 0, false
}

// cutLast splits a name at its last dot.
func cutLast(name string) (stem, last string, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	return name[:max(dot, 0)], name[dot+1:], dot >= 0
}

// splitOldPart splits a name of early GGUF files: blk.0.ffn_gate.3 is matrix 3 of blk.0.ffn_gate_exps.
func splitOldPart(h family.Habit, name string) (joined string, i int, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || h.Joined == "" {
		return "", 0, false
	}
	joined = name[:dot] + "_exps"
	i, err := strconv.Atoi(name[dot+1:])
	return joined, i, err == nil && strconv.Itoa(i) == name[dot+1:] && hasEnding(joined, h.Ends)
}

// join joins the parts of tensors, in a Hugging Face folder or an early GGUF file. No data is copied.
func (c *weights) join() error {
	parts := map[string]map[int]tensor.Tensor{}
	var names []string
	for _, name := range c.set.Names {
		joined, i, ok := c.splitPart(name)
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
		if slices.ContainsFunc(list, func(t tensor.Tensor) bool { return t.DType != list[0].DType }) {
			for i := range list {
				if list[i] = packing.ToF32(list[i]); list[i].DType.Float() {
					list[i] = inF32(list[i]) // left out of the packing
				}
			}
		}
		t, err := tensor.Join(joined+".weight", list)
		if err == nil && (len(t.Shape) == 2 || !strings.Contains(joined, "experts")) { // biases, and others
			t, err = t.Whole()
		}
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

// unweave splits tensors of a Hugging Face folder that have the rows of several tensors, by turns or in sequence. No
// data is copied.
func (c *weights) unweave() error {
	var names []string
	for _, name := range c.set.Names {
		h := wovenHabit(c, name)
		if h == nil {
			names = append(names, name)
			continue
		}
		t, whole, parts := c.set.ByName[name], h.Woven[0], h.Woven[1:]
		if c.Format == GGUF {
			whole, parts = h.Older, h.Ends
		}
		if h.Turned && isPlainMatrix(t) {
			t = tensor.Turn(t)
		}
		pick, rows := tensor.Pick, 1 // the divided dimension
		if h.Runs {
			pick, rows = tensor.Cut, len(t.Shape)-2
		}
		if h.Shares != nil {
			m := c.meshOf(*h)
			if len(t.Shape) != 2 || t.Shape[0] != len(m.parts) {
				return fmt.Errorf("%s: tensor %s: shape %v, the configuration says %d rows", c.Path, t.Name,
					[]int(t.Shape), len(m.parts))
			}
			pick = func(t tensor.Tensor, i, _ int) tensor.Tensor {
				return tensor.Gather(t.Name, []tensor.Tensor{t}, len(m.rows[i]),
					func(row int) (int, int) { return 0, m.rows[i][row] })
			}
		} else if n := len(t.Shape); n != 3 && (n != 2 || t.DType.Quantized() && !h.Runs) ||
			t.Shape[rows]%len(parts) != 0 {
			return fmt.Errorf("%s: tensor %s: %v %v has no rows of %d tensors", c.Path, t.Name, t.DType, []int(t.Shape),
				len(parts))
		}
		delete(c.set.ByName, name)
		for i, part := range parts {
			own := strings.TrimSuffix(name, whole) + strings.TrimPrefix(part, ".")
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

// share divides the rows of tensors of a folder that divides them evenly as the model has them. Nothing is copied.
func share(c *weights) {
	for _, h := range c.Family.Habits {
		if h.Even == nil {
			continue
		}
		for _, name := range c.set.Names {
			t := c.set.ByName[name]
			layer, ok := strings.CutSuffix(name, h.Even[0])
			if !ok || len(t.Shape) == 0 {
				continue
			}
			_, shares := h.Shares(c.Values)
			var parts []tensor.Tensor
			n, rows := t.Shape[0], 0
			for i, s := range shares {
				part := c.set.ByName[layer+h.Even[i]]
				if rows += s.Rows; part.DType != t.DType || !slices.Equal(part.Shape, t.Shape) {
					break
				}
				parts = append(parts, part)
			}
			if len(parts) < len(shares) || rows != n*len(parts) {
				continue // binding reports other shapes
			}
			rows = 0
			for i, s := range shares {
				first := rows
				own := tensor.Gather(parts[i].Name, parts, s.Rows, func(row int) (part, from int) {
					return (first + row) / n, (first + row) % n
				})
				own.Shape = append(tensor.Shape{s.Rows}, t.Shape[1:]...)
				c.set.ByName[layer+h.Even[i]] = own
				rows += s.Rows
			}
		}
	}
}

// Weave returns the weight of config.json's format for a GGUF file's weight w: w, or w woven with others; nil for these
// others.
func (c *weights) Weave(weights []*graph.Weight, w *graph.Weight) *graph.Weight {
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
		all = append(all, weights[i].Tensor) // binding has found all parts
	}
	weave := tensor.Weave
	if h.Runs {
		weave = tensor.Stack
	}
	if h.Shares != nil {
		m := c.meshOf(family.Habit{Woven: h.Woven, Shares: h.Shares})
		weave = func(name string, parts []tensor.Tensor) tensor.Tensor {
			return tensor.Gather(name, parts, len(m.parts),
				func(row int) (int, int) { return m.parts[row][0], m.parts[row][1] })
		}
	}
	return &graph.Weight{Tensor: weave(w.Name, all), GGUF: w.GGUF, HF: stem + whole}
}

// mesh is where the rows of a whole lie in its parts, whose rows lie by groups.
type mesh struct {
	rows  [][]int  // of a part, the row of the whole for each
	parts [][2]int // of the whole, the part and its row for each
}

// meshOf returns the rows of h's parts in the whole; none where settings are out of range.
func (c *weights) meshOf(h family.Habit) (m mesh) {
	groups, shares := h.Shares(c.Values)
	each := 0
	for _, s := range shares {
		if s.Rows < 1 || s.Rows > 1<<24 {
			return mesh{}
		}
		each += s.Rows
	}
	if groups < 1 || groups > 1<<16 || groups*each > 1<<24 {
		return mesh{}
	}
	m = mesh{rows: make([][]int, len(h.Woven)-1), parts: make([][2]int, groups*each)}
	first := 0
	for _, s := range shares {
		for g := range groups {
			for i := range s.Rows {
				row := g*each + first + i
				m.parts[row] = [2]int{s.Part, len(m.rows[s.Part])}
				m.rows[s.Part] = append(m.rows[s.Part], row)
			}
		}
		first += s.Rows
	}
	return m
}

// wovenHabit returns the family's habit of a woven tensor, nil for others.
func wovenHabit(c *weights, name string) *family.Habit {
	for i, h := range c.Family.Habits {
		if whole := wholeName(c, h); whole != "" && strings.HasSuffix(name, "."+whole) {
			return &c.Family.Habits[i]
		}
	}
	return nil
}

// wholeName returns the end of names of a habit's woven tensor in the file, "" for none.
func wholeName(c *weights, h family.Habit) string {
	if c.Format == GGUF || len(h.Woven) == 0 {
		return h.Older
	}
	return h.Woven[0]
}

// divided lists tensors that some programs write whole and others in parts. The rows of the parts lie in
// sequence, in stacks of matrices for each matrix. (create_tensor_qkv and create_tensor_gate_up_exps in
// llama.cpp/src/llama-model.cpp read both.)
var divided = []struct {
	whole string
	parts []string
	turns bool // a model with the parts also takes the whole
}{
	{"attn_qkv", []string{"attn_q", "attn_k", "attn_v"}, false},
	{"attn_qkv.bias", []string{"attn_q.bias", "attn_k.bias", "attn_v.bias"}, false},
	{"ffn_gate_up_exps", []string{"ffn_gate_exps", "ffn_up_exps"}, true},
	{"experts.gate_up_proj", []string{"experts.gate_proj", "experts.up_proj"}, true}, // of folders
}

// matchParts joins or cuts the divided tensors as the model has them.
func (c *weights) matchParts() error {
	for _, d := range divided {
		whole := c.Family.Model.Claims(strings.TrimSuffix(d.whole, ".bias")) && !c.Family.Model.Claims(d.parts[0])
		for _, name := range slices.Clone(c.set.Names) {
			var err error
			if layer, ok := strings.CutSuffix(name, "."+d.parts[0]); ok && whole {
				err = c.stack(layer, d.whole, d.parts)
			} else if layer, ok := strings.CutSuffix(name, "."+d.whole); ok && !whole && d.turns {
				err = c.cut(layer, d.whole, d.parts)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Path, err)
			}
		}
	}
	return nil
}

// cut replaces the whole by its parts without copying. An indivisible tensor stays; binding reports the shape.
func (c *weights) cut(layer, whole string, parts []string) error {
	t := c.set.ByName[layer+"."+whole]
	if n := len(t.Shape); n < 2 || t.Shape[n-2]%len(parts) != 0 {
		return nil
	}
	c.set.Drop(layer + "." + whole)
	for i, part := range parts {
		if err := c.add(layer+"."+part, tensor.Cut(t, i, len(parts))); err != nil {
			return err
		}
	}
	return nil
}

// stack copies the parts into the whole, in F32 where their types differ. Parts that do not fit each other stay, for
// binding to report.
func (c *weights) stack(layer, whole string, parts []string) error {
	all := make([]tensor.Tensor, len(parts))
	for i, part := range parts {
		t, ok := c.set.ByName[layer+"."+part]
		if !ok || len(t.Shape) != len(c.set.ByName[layer+"."+parts[0]].Shape) ||
			len(t.Shape) > 1 && t.Shape.Last() != all[0].Shape.Last() && i > 0 {
			return nil
		}
		all[i] = t
	}
	if _, twice := c.set.ByName[layer+"."+whole]; twice {
		return fmt.Errorf("tensor %s.%s: parts of it are there, too", layer, whole)
	}
	if len(all[0].Shape) == 3 { // matrices of equal type and shape, stacked matrix by matrix
		if !slices.Equal(all[0].Shape, all[1].Shape) || all[0].DType != all[1].DType {
			return nil
		}
		return c.replace(layer, whole, parts, tensor.Stack(layer+"."+whole, all))
	}
	mixed := slices.ContainsFunc(all, func(t tensor.Tensor) bool { return t.DType != all[0].DType })
	t := tensor.Tensor{Name: layer + "." + whole, Shape: slices.Clone(all[0].Shape)}
	t.Shape[0] = 0
	for _, part := range all {
		data, err := part.Whole()
		if err == nil && mixed {
			data, err = dequantize(part)
		}
		if err != nil {
			return err
		}
		t.DType, t.Data = data.DType, append(t.Data, data.Data...)
		t.Shape[0] += part.Shape[0]
		for _, b := range part.Origin() { // no second copy stays in memory
			mmap.Drop(b)
		}
	}
	return c.replace(layer, whole, parts, t)
}

// replace replaces the parts by the whole.
func (c *weights) replace(layer, whole string, parts []string, t tensor.Tensor) error {
	for _, part := range parts {
		c.set.Drop(layer + "." + part)
	}
	return c.add(layer+"."+whole, t)
}
