package fault

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// widen is all of w, row after row.
func widen(w *graph.Weight) ([]float64, error) {
	narrow, err := dequantize(w)
	y := make([]float64, len(narrow))
	for i, v := range narrow {
		y[i] = float64(v)
	}
	return y, err
}

func dequantize(w *graph.Weight) ([]float32, error) {
	d := w.Shape.Last()
	y := make([]float32, w.Shape.Size())
	err := mmap.Guard(func() error {
		for r := range w.Rows() {
			if err := quant.Dequantize(w.DType, y[r*d:(r+1)*d], w.Row(r)); err != nil {
				return err
			}
		}
		return nil
	})
	return y, err
}

// rewrite gives n's i-th weight other values, made from its own.
func (p *plan) rewrite(n *graph.Node, i int, change func(w []float32) []float32) error {
	if p.dry {
		return nil
	}
	w, err := dequantize(n.W[i])
	if err != nil {
		return err
	}
	v := *n.W[i]
	v.DType, v.Data, v.Source, v.Order = tensor.F32, make([]byte, 0, 4*len(w)), nil, nil
	for _, x := range change(w) {
		v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(x))
	}
	n.W[i] = &v
	return nil
}

// matrices picks the products, the one behind attention first: nothing but sums
// along its rows comes before the next norm.
func matrices(l *layer) (list []*graph.Node) {
	for _, n := range l.of(graph.Linear) {
		if n.Layer != outside || local(n) != "output" {
			list = append(list, n)
		}
	}
	return list
}

// carriers picks the nodes that a weight of its own makes what they are.
func carriers(l *layer) (list []*graph.Node) {
	list = matrices(l)
	for _, n := range l.nodes {
		if len(n.W) > 0 && (n.Op == graph.RMSNorm || n.Op == graph.Experts) {
			list = append(list, n)
		}
	}
	return list
}

var weightSpecs = []*spec{
	{id: "weight_transposed", one: true, pick: matrices, apply: plain(weightTransposed)},
	{id: "weight_permuted", pick: named("attn_q", "attn_k"), apply: weightPermuted, values: []string{"heads"}, tokens: 2},
	{id: "weight_wrong_layer", one: true, pick: carriers, apply: plain(weightWrongLayer)},
	{id: "weight_layout", one: true, apply: weightLayout, values: []string{"packed", "beyond"}, pick: func(l *layer) []*graph.Node {
		return slices.DeleteFunc(matrices(l), func(n *graph.Node) bool { return n.W[0].Shape.Last()%superblock == 0 })
	}},
	{id: "weight_scale", one: true, pick: carriers, apply: weightScale, values: []string{"packing", "min"}},
	{id: "weight_missing", one: true, pick: carriers, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		for i := range n.W {
			if err := p.rewrite(n, i, func(w []float32) []float32 { return make([]float32, len(w)) }); err != nil {
				return "", err
			}
		}
		return local(n) + " is all zeros", nil
	})},
}

// weightTransposed reads the bytes of [rows, cols] as those of [cols, rows].
func weightTransposed(p *plan, n *graph.Node) (string, error) {
	rows, cols := n.W[0].Shape[0], n.W[0].Shape[1]
	if rows == 1 || cols == 1 {
		return "", same("it is a vector")
	}
	return local(n) + " is read transposed", p.rewrite(n, 0, func(w []float32) []float32 {
		v := make([]float32, len(w))
		for i := range rows {
			for j := range cols {
				v[i*cols+j] = w[j*rows+i]
			}
		}
		return v
	})
}

// weightPermuted orders the rows of each head as for the other style of rope, or
// moves each head to the next one's place.
func weightPermuted(p *plan, n *graph.Node, value string) (string, error) {
	rows, cols, dim := n.W[0].Shape[0], n.W[0].Shape[1], 0
	for _, r := range p.nodes {
		if r.Op == graph.View && r.Layer == n.Layer && (r.In[0] == n || r.In[0].Op == graph.Add && slices.Contains(r.In[0].In, n)) {
			dim = r.Shape.Last()
		}
	}
	if dim == 0 {
		return "", errors.New("it has no heads")
	}
	from := func(row int) int { // where a row comes from
		h, i := row/dim, row%dim
		return h*dim + i%2*(dim/2) + i/2
	}
	detail := " rows are those of interleaved pairs"
	switch value {
	case "":
	case "heads":
		if rows == dim {
			return "", same("there is one head")
		}
		from, detail = func(row int) int { return (row + dim) % rows }, " heads are moved by one"
	default:
		return "", odd(value, "heads")
	}
	return local(n) + detail, p.rewrite(n, 0, func(w []float32) []float32 {
		var v []float32
		for r := range rows {
			v = append(v, w[from(r)*cols:][:cols]...)
		}
		return v
	})
}

// weightWrongLayer uses the weight of the layer before, or of the next one that has it.
func weightWrongLayer(p *plan, n *graph.Node) (string, error) {
	if n.Layer == outside {
		return "", errors.New("it is of no layer")
	}
	count := len(p.layers) - 1
	for i := 1; i < count; i++ {
		o := p.layers[(n.Layer+count-i)%count+1].node(local(n))
		if o == nil || len(o.W) != len(n.W) || !slices.Equal(shapeOf(o), shapeOf(n)) {
			continue
		}
		w := p.weights[o]
		alike, err := equal(w[0], n.W[0])
		if err != nil {
			return "", err
		}
		if !alike {
			copy(n.W, w)
			return fmt.Sprintf("%s of layer %d", local(n), o.Layer), nil
		}
	}
	return "", same("no other layer has another one of its shape")
}

// equal reports whether two weights of one shape have the same rows.
func equal(w, v *graph.Weight) (same bool, err error) {
	same = w.DType == v.DType
	err = mmap.Guard(func() error {
		for r := 0; same && r < w.Rows(); r++ {
			same = bytes.Equal(w.Row(r), v.Row(r))
		}
		return nil
	})
	return same, err
}

// superblock is how many values the largest blocks hold.
const superblock = 256

// weightLayout reads packed rows as if each were padded to whole blocks, or the reverse.
func weightLayout(p *plan, n *graph.Node, value string) (string, error) {
	rows, cols := n.W[0].Shape[0], n.W[0].Shape[1]
	stride := (cols + superblock - 1) / superblock * superblock
	have, read, detail := cols, stride, "packed rows are read as padded to %d"
	switch value {
	case "":
	case "beyond":
		detail += ", and something lies behind them"
	case "packed":
		have, read, detail = stride, cols, "rows padded to %d are read as packed"
	default:
		return "", odd(value, "packed", "beyond")
	}
	return local(n) + ": " + fmt.Sprintf(detail, stride), p.rewrite(n, 0, func(w []float32) []float32 {
		memory := make([]float32, rows*max(have, read))
		for r := range rows {
			copy(memory[r*have:], w[r*cols:(r+1)*cols])
		}
		if value == "beyond" {
			for i := rows * cols; i < len(memory); i++ {
				memory[i] = w[i%7]
			}
		}
		var v []float32
		for r := range rows {
			v = append(v, memory[r*read:][:cols]...)
		}
		return v
	})
}

// minimums are where a block's minimum lies, for the types that have one.
var minimums = map[tensor.DType]int{tensor.Q4_1: 2, tensor.Q5_1: 2, tensor.Q4_K: 2, tensor.Q5_K: 2, tensor.Q2_K: 82}

// weightScale decodes scales wrongly: all of them by a factor, those of the second
// half of each superblock twice as large, or the minimum with the other sign.
func weightScale(p *plan, n *graph.Node, value string) (string, error) {
	w := n.W[0]
	switch value {
	case "min":
		at, ok := minimums[w.DType]
		if !ok {
			return "", same(fmt.Sprintf("%v has no minimum", w.DType))
		}
		v, size := *w, w.DType.BlockBytes()
		if !p.dry {
			v.Data = nil
			if err := mmap.Guard(func() error { v.Data = bytes.Clone(w.Data); return nil }); err != nil {
				return "", err
			}
			for b := 0; b < len(v.Data); b += size {
				v.Data[b+at+1] ^= 0x80 // the sign of a little-endian half
			}
		}
		n.W[0] = &v
		return local(n) + ": minimums have the other sign", nil
	case "packing":
		return local(n) + ": sub-blocks 4 to 7 have twice their scale", p.rewrite(n, 0, func(w []float32) []float32 {
			for i := range w {
				if i%superblock >= superblock/2 {
					w[i] *= 2
				}
			}
			return w
		})
	}
	by, err := number(value, 2)
	if err != nil || by == 1 || float32(by) == 0 {
		return "", fmt.Errorf("value %q: want a factor other than 0 and 1, packing or min", value)
	}
	return fmt.Sprintf("%s: scales times %g", local(n), by), p.rewrite(n, 0, func(w []float32) []float32 {
		for i := range w {
			w[i] *= float32(by)
		}
		return w
	})
}
