package checkpoint

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// Tensor implements bind.Source.
func (c *weights) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	name := c.Name(gguf, hf)
	t, ok := c.set.ByName[name]
	if ok {
		var err error
		if t, err = c.restore(gguf, t); err != nil {
			t.Data, t.Source = nil, tensor.Unread{Err: err}
		}
	}
	return t, ok
}

// Tensors lists the model's tensors in file order: the parts of joined tensors, and the whole of halves.
func (c *weights) Tensors() (all []tensor.Tensor) {
	for _, n := range c.set.Names {
		t := c.set.ByName[n]
		switch of := t.Source.(type) {
		case tensor.Joined:
			all = append(all, of...)
		case *halved:
			if of.from == 0 {
				all = append(all, of.in)
			}
		default:
			all = append(all, t)
		}
	}
	return all
}

// restore makes the model's tensor of a file's tensor with GGUF's name. The result is laid out for multiplication:
// tensors in another form are copied.
func (c *weights) restore(name string, t tensor.Tensor) (tensor.Tensor, error) {
	if _, half := t.Source.(*halved); half {
		return t.Whole()
	}
	h := c.Habit(name)
	t = h.ToModel(c.Format, t)
	if c.Format != GGUF {
		if h.NegExp {
			return mapValues(t, h.ToGGUF)
		}
		t, err := gather(h.Regroup(h.Transpose(t), false))
		if err == nil && h.fused.groups > 0 {
			return order(t, h.HFRow), nil
		}
		return t, err
	}
	t, err := gather(t)
	switch {
	case err != nil:
		return t, err
	case h.Plus != 0:
		return mapValues(t, h.FromGGUF)
	case h.Permutes() && h.fused.groups == 0:
		return order(t, h.GGUFRow), nil
	}
	return t, nil
}

// order returns t with its rows in the model's order: from says which row of the file is row r.
func order(t tensor.Tensor, from func(r, rows int) int) tensor.Tensor {
	switch {
	case len(t.Shape) == 2 && (t.DType.Quantized() || t.Source != nil):
		t.Order = func(row int) int { return from(row, t.Shape[0]) }
	case len(t.Shape) > 0:
		return unpermute(t, from)
	}
	return t
}

// gather returns a tensor laid out for multiplication. A tensor in another form, in memory, is copied.
func gather(t tensor.Tensor) (tensor.Tensor, error) {
	origin := t.Origin()
	if _, joined := t.Source.(tensor.Joined); t.Source == nil || joined || origin == nil || isDecoded(t) {
		return t, nil
	}
	t, err := t.Whole()
	for _, b := range origin {
		mmap.Drop(b)
	}
	return t, err
}

// mapValues returns t with other values, in float32. Subtraction is exact for weights from 0.5 to 2,
// and elsewhere rounds as the addition did.
func mapValues(t tensor.Tensor, value func(float32) float32) (tensor.Tensor, error) {
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

// unpermute copies a matrix with its rows in the graph's order.
func unpermute(t tensor.Tensor, from func(r, rows int) int) tensor.Tensor {
	rows := t.Shape[0]
	size := len(t.Data) / rows
	data := make([]byte, len(t.Data))
	for r := range rows {
		copy(data[r*size:(r+1)*size], t.Data[from(r, rows)*size:])
	}
	mmap.Drop(t.Data) // no second copy stays in memory
	t.Data = data
	return t
}

// Stored is a bind.Source of a Checkpoint's tensors with the files' values. No data is copied.
type Stored struct{ *Checkpoint }

// Tensor implements bind.Source.
func (s Stored) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	t, ok := s.set.ByName[s.Name(gguf, hf)]
	if !ok {
		return t, false
	}
	h := s.Habit(gguf)
	if t = h.ToModel(s.Format, t); s.Format == HuggingFace {
		t = h.Regroup(h.Transpose(t), false)
	}
	return t, true
}

// TensorName returns the format's name for a tensor, given the name without .weight. Parameters outside modules have no
// .weight.
func (c *weights) TensorName(f Format, name string) string {
	if f == HuggingFace {
		root, _, _ := strings.Cut(c.Family.Model.Embedding(), ".")
		if rest, ok := strings.CutPrefix(name, root+"."); ok && c.root() != "" {
			name = c.root() + "." + rest
		}
		name = c.Family.Apart(name, c.Values)
	}
	if hasEnding(name, []string{".bias", ".scale"}) || hasEnding(name, c.Family.Bare) {
		return name
	}
	return name + ".weight"
}

// root returns the name of the embedding's module in config.json's format; "" for the name in Model.Embedding.
func (c *weights) root() string { return c.Type().Root }
