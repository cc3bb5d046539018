package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// kvB names the products that make keys and values from latents. The tensor of both has, head by head, the rows of
// keys, then of values; of the two separate tensors, the keys' has its matrices transposed.
var kvB = struct{ both, keys, values family.Part }{
	family.Part{GGUF: "attn_kv_b", HF: "kv_b_proj"}, family.Part{GGUF: "attn_k_b",
		HF: "k_b_proj"}, family.Part{GGUF: "attn_v_b", HF: "v_b_proj"},
}

// cutLatents replaces each kv_b_proj, of a folder or an old GGUF file, by two tensors. A tensor of another shape stays;
// binding reports the shape.
func (c *weights) cutLatents() error {
	if !c.Family.Latent() {
		return nil
	}
	n := c.Values.Int
	heads, plain, value, rank := n("num_attention_heads"), n("qk_nope_head_dim"), n("v_head_dim"), n("kv_lora_rank")
	names := c.set.Names
	c.set.Names = nil
	for _, name := range names {
		layer, ok := strings.CutSuffix(name, "."+c.Name(kvB.both.GGUF, kvB.both.HF))
		t := c.set.ByName[name]
		if !ok || !slices.Equal(t.Shape, tensor.Shape{heads * (plain + value), rank}) {
			c.set.Names = append(c.set.Names, name)
			continue
		}
		delete(c.set.ByName, name)
		v := halved{in: t, step: plain + value, from: plain, rows: value}
		if t.DType.Quantized() || isDecoded(t) { // blocks lie along rows, and rows become columns
			var err error
			if t, err = dequantize(t); err != nil {
				return fmt.Errorf("%s: %w", c.Path, err)
			}
		}
		k := halved{in: t, step: plain + value, rows: plain, turned: true}
		if err := errors.Join(c.addHalf(layer, kvB.keys, &k, heads),
			c.addHalf(layer, kvB.values, &v, heads)); err != nil {
			return err
		}
	}
	return nil
}

// addHalf adds a tensor by heads.
func (c *weights) addHalf(layer string, name family.Part, h *halved, heads int) error {
	t := tensor.Tensor{Name: h.in.Name, DType: h.in.DType, Shape: tensor.Shape{heads, h.rows, h.in.Shape[1]}, Source: h}
	if h.turned {
		t.Shape[1], t.Shape[2] = t.Shape[2], t.Shape[1]
	}
	own := layer + "." + c.Name(name.GGUF, name.HF)
	if _, twice := c.set.ByName[own]; twice {
		return fmt.Errorf("%s: tensor %s: a part of it is there as %s, too", c.Path, t.Name, own)
	}
	c.set.Names = append(c.set.Names, own)
	c.set.ByName[own] = t
	return nil
}

// dequantize returns t in F32, in memory.
func dequantize(t tensor.Tensor) (tensor.Tensor, error) {
	whole, err := t.Whole()
	if err != nil {
		return t, err
	}
	v := make([]float32, t.Shape.Size())
	if err := quant.Dequantize(t.DType, v, whole.Data); err != nil {
		return t, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return tensor.Tensor{Name: t.Name, DType: tensor.F32, Shape: t.Shape, Data: bytesOf(v)}, nil
}

// inF32 returns t with its values as F32, decoded as they are read.
func inF32(t tensor.Tensor) tensor.Tensor {
	if t.DType != tensor.F32 {
		t.DType, t.Data, t.Source, t.At = tensor.F32, nil, dequantized{t}, 0
	}
	return t
}

// dequantized is the Source of the values of in, of another type, as F32.
type dequantized struct{ in tensor.Tensor }

// ReadAt implements io.ReaderAt. A unit is a block.
func (d dequantized) ReadAt(p []byte, off int64) (n int, err error) {
	var v [256]float32 // the longest block
	var buf []byte
	in, block := d.in, d.in.DType.BlockSize()
	in.Shape = tensor.Shape{in.Shape.Size() / block, block}
	return tensor.ReadUnits(p, off, 4*block, in.Rows(), func(p []byte, first int) error {
		for ; len(p) > 0; p, first = p[4*block:], first+1 {
			if err := quant.Dequantize(in.DType, v[:block], in.Span(first, first+1, &buf)); err != nil {
				return err
			}
			copy(p, bytesOf(v[:block]))
		}
		return nil
	})
}

// Origin implements the Origin of tensor.Source.
func (d dequantized) Origin() [][]byte { return d.in.Origin() }

// halved is the Source of a part of each head of in: of every step rows, so many rows from row from on. If turned, rows
// and columns of a head are exchanged.
type halved struct {
	in               tensor.Tensor
	step, from, rows int
	turned           bool
}

// ReadAt implements io.ReaderAt. A unit is an element where heads are transposed, else a row.
func (h *halved) ReadAt(p []byte, off int64) (n int, err error) {
	unit, all := h.in.DType.RowBytes(h.in.Shape[1]), h.in.Shape[0]/h.step*h.rows
	if h.turned {
		unit, all = h.in.DType.BlockBytes(), all*h.in.Shape[1]
	}
	return tensor.ReadUnits(p, off, unit, all, func(p []byte, first int) error { return h.readUnits(p, unit, first) })
}

// readUnits fills p with whole units, beginning at unit first.
func (h *halved) readUnits(p []byte, unit, first int) error {
	columns := h.in.Shape[1]
	for n := 0; n < len(p); n += unit {
		k := first + n/unit
		at := k/h.rows*h.step + h.from + k%h.rows // a row of in
		if h.turned {
			head, in := k/(h.rows*columns), k%(h.rows*columns)
			at = (head*h.step+h.from+in%h.rows)*columns + in/h.rows // an element
		}
		if h.in.Source != nil {
			if m, err := h.in.Source.ReadAt(p[n:n+unit], h.in.At+int64(at*unit)); m < unit { // else io.EOF is no error
				return err
			}
		} else {
			copy(p[n:n+unit], h.in.Data[at*unit:])
		}
	}
	return nil
}

// JoinLatents returns the weights as a folder has them, with the halves of each kv_b_proj joined.
func (c *weights) JoinLatents(weights []*graph.Weight) []*graph.Weight {
	if !c.Family.Latent() {
		return weights
	}
	var out []*graph.Weight
	values := map[string]*graph.Weight{}
	for _, w := range weights {
		if layer, ok := strings.CutSuffix(w.GGUF, "."+kvB.values.GGUF); ok {
			values[layer] = w
		}
	}
	for _, w := range weights {
		layer, keys := strings.CutSuffix(w.GGUF, "."+kvB.keys.GGUF)
		v := values[layer]
		switch {
		case keys && v != nil:
			out = append(out, joinHalves(w, v))
		case !strings.HasSuffix(w.GGUF, "."+kvB.values.GGUF):
			out = append(out, w)
		}
	}
	return out
}

// joinHalves returns the tensor with the halves k and v, in F32 where they are quantized.
func joinHalves(k, v *graph.Weight) *graph.Weight {
	j := joinedHalves{k.Tensor, v.Tensor, k.DType}
	if k.DType.Quantized() || k.DType != v.DType {
		j.to = tensor.F32
	}
	rename := func(name string) string { return strings.TrimSuffix(name, kvB.keys.HF) + kvB.both.HF }
	return &graph.Weight{HF: rename(k.HF), GGUF: strings.TrimSuffix(k.GGUF, kvB.keys.GGUF) + kvB.both.GGUF,
		Tensor: tensor.Tensor{
			Name: k.Name, DType: j.to, Shape: tensor.Shape{k.Shape[0] * (k.Shape[2] + v.Shape[1]),
				k.Shape[1]}, Source: j}}
}

// joinedHalves is the Source of k [heads, rank, plain], transposed, and v [heads, value, rank], head by head.
type joinedHalves struct {
	k, v tensor.Tensor
	to   tensor.DType
}

// ReadAt implements io.ReaderAt for whole rows.
func (u joinedHalves) ReadAt(p []byte, off int64) (n int, err error) {
	rank, plain, value := u.k.Shape[1], u.k.Shape[2], u.v.Shape[1]
	size := u.to.BlockBytes()
	row := rank * size
	var k, v []byte
	for r, head := int(off)/row, -1; n < len(p); r++ {
		h, i := r/(plain+value), r%(plain+value)
		if h >= u.k.Shape[0] {
			return n, io.EOF
		}
		if h != head {
			head = h
			if k, err = u.head(u.k, h); err == nil {
				v, err = u.head(u.v, h)
			}
			if err != nil {
				return n, err
			}
		}
		if i >= plain {
			n += copy(p[n:n+row], v[(i-plain)*row:])
			continue
		}
		for c := range rank {
			n += copy(p[n:n+size], k[(c*plain+i)*size:])
		}
	}
	return n, nil
}

// head returns a head's matrix of t, in the type of the whole.
func (u joinedHalves) head(t tensor.Tensor, h int) ([]byte, error) {
	m := t.Matrix(h)
	m, err := m.Whole()
	if err != nil || m.DType == u.to {
		return m.Data, err
	}
	m, err = dequantize(m)
	return m.Data, err
}

// bytesOf returns the bytes of v.
func bytesOf(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// isDecoded reports whether t's values are made of others when they are read.
func isDecoded(t tensor.Tensor) bool {
	_, ok := t.Source.(tensor.Decoded)
	return ok
}
