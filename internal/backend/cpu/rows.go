package cpu

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/simd"
)

// rowFunc computes a row of a node from the same row of its inputs; y is unused for a single input.
type rowFunc func(dst, x, y []float32)

// rowKernel returns the kernel of an operation working on each row alone.
func rowKernel(n *graph.Node) (rowFunc, error) {
	switch n.Op {
	case graph.RMSNorm:
		return normKernel(n)
	case graph.LayerNorm:
		return layerNormKernel(n)
	case graph.L2Norm:
		return l2NormKernel(n), nil
	case graph.Above:
		by, ones := float32(n.Attr.(graph.ScaleAttr).By), slices.Repeat([]float32{1}, n.Shape.Last())
		return func(dst, x, _ []float32) {
			for d := len(ones); len(x) > 0; dst, x = dst[d:], x[d:] {
				simd.Above(dst[:d], x[:d], ones, by)
			}
		}, nil
	case graph.Add, graph.Mul:
		return combineKernel(n)
	case graph.Scale:
		s := float32(n.Attr.(graph.ScaleAttr).By)
		return func(dst, x, _ []float32) { simd.Scale(dst, x, s) }, nil
	case graph.Softcap:
		c := float32(n.Attr.(graph.ScaleAttr).By)
		return func(dst, x, _ []float32) { simd.Softcap(dst, x, c) }, nil
	case graph.GLU:
		return gluKernel(n), nil
	case graph.Clamp:
		return clampKernel(n)
	case graph.Act:
		c := curves[n.Attr.(graph.ActAttr).Act]
		return func(dst, x, _ []float32) { c.Apply(dst, x) }, nil
	}
	return nil, fmt.Errorf("operation %v has no kernel", n.Op)
}

// curves are the activations.
var curves = map[graph.Activation]simd.Curve{graph.SiLU: simd.SiluCurve, graph.GELUTanh: simd.GeluCurve,
	graph.GELUErf:     simd.GeluErfCurve,
	graph.ReLUSquared: simd.SquareCurve, graph.Sigmoid: simd.SigmoidCurve, graph.Tanh: simd.TanhCurve,
	graph.ExpLess: simd.ExpLessCurve}

// gluKernel returns act(x)·y, for a GLU or Experts node.
func gluKernel(n *graph.Node) rowFunc {
	a, _ := n.Activates()
	switch a {
	case graph.ActAttr{Act: graph.SiLU}:
		return simd.SwiGLU
	case graph.ActAttr{Act: graph.GELUTanh}:
		return simd.GeGLU
	}
	limit, alpha, plus := float32(a.Limit), float32(a.Alpha), float32(a.Plus)
	return simd.Gate{Curve: curves[a.Act], Limit: limit, Alpha: alpha, Plus: plus}.Apply
}

func normKernel(n *graph.Node) (rowFunc, error) {
	a, d := n.Attr.(graph.NormAttr), n.Shape.Last()
	var w []float32
	var err error
	if len(n.W) > 0 {
		w, err = vector(n.W[0])
	}
	return func(dst, x, _ []float32) {
		for i := 0; i < len(x); i += d {
			simd.RMSNorm(dst[i:i+d], x[i:i+d], w, a.Offset, a.Eps)
		}
	}, err
}

// combineKernel adds or multiplies two inputs, or an input and a weight.
func combineKernel(n *graph.Node) (rowFunc, error) {
	op := simd.Add
	if n.Op == graph.Mul {
		op = simd.Mul
	}
	if len(n.In) == 2 {
		return op, nil
	}
	w, err := vector(n.W[0])
	if n.Op == graph.Mul && len(w) == 1 {
		return func(dst, x, _ []float32) { simd.Scale(dst, x, w[0]) }, err
	}
	return func(dst, x, _ []float32) { op(dst, x, w) }, err
}

// eachRow runs f over rows of a node.
func (e *executable) eachRow(n *graph.Node, out []float32, in [][]float32, f rowFunc) func(from, to int) error {
	d := n.Shape.Size()
	return func(from, to int) error {
		for r := from; r < to; r++ {
			var y []float32
			if len(in) > 1 {
				y = in[1][r*d : (r+1)*d]
			}
			f(out[r*d:(r+1)*d], in[0][r*d:(r+1)*d], y)
		}
		return nil
	}
}

// dropRows is the number of rows of a table looked up before the table's pages are released.
const dropRows = 16

// embed looks up rows of a table. A file's table is released now and then: the system may map 2 MiB for each row.
func (p *planner) embed(n *graph.Node, out []float32) func(from, to int) error {
	e, d, scale, w := p.e, n.Shape.Size(), n.Attr.(graph.EmbedAttr).Scale, n.W[0]
	multiplied := slices.ContainsFunc(p.g.Nodes, func(n *graph.Node) bool {
		return n.Op == graph.Linear && slices.Contains(n.W, w)
	})
	var rows atomic.Int32 // since the table was let go
	return func(from, to int) error {
		for t := from; t < to; t++ {
			row := out[t*d : (t+1)*d]
			if x := e.step.Embeddings; n == e.entry.Node && x != nil && x[t] != nil {
				copy(row, x[t])
				continue
			}
			if err := quant.Dequantize(w.DType, row, w.Row(int(e.step.Tokens[t]))); err != nil {
				return err
			}
			if scale != 1 {
				simd.Scale(row, row, scale)
			}
		}
		if m := e.b.packed[w]; (m != nil && m.memory != nil || !multiplied) && rows.Add(int32(to-from)) >= dropRows {
			rows.Store(0)
			mmap.Drop(w.Data)
		}
		return nil
	}
}

// copyOutputs keeps the rows with wanted logits.
func copyOutputs(e *executable, n *graph.Node, out, x []float32) {
	d := n.Shape.Size()
	for i, r := range e.step.Outputs {
		copy(out[i*d:(i+1)*d], x[int(r)*d:])
	}
}

// copyView copies the viewed part of each row.
func copyView(e *executable, n *graph.Node, out, x []float32) {
	from, d, off := n.In[0].Shape.Size(), n.Shape.Size(), n.Attr.(graph.ViewAttr).Offset
	for r := range e.count(n) {
		copy(out[r*d:(r+1)*d], x[r*from+off:])
	}
}

// layerNormKernel takes each vector of a row.
func layerNormKernel(n *graph.Node) (rowFunc, error) {
	d, eps := n.Shape.Last(), n.Attr.(graph.NormAttr).Eps
	var w [2][]float32 // weight and bias
	for i := range n.W {
		var err error
		if w[i], err = vector(n.W[i]); err != nil {
			return nil, err
		}
	}
	ones := slices.Repeat([]float32{1}, d)
	return func(dst, x, _ []float32) {
		for i := 0; i < len(x); i += d {
			simd.LayerNorm(dst[i:i+d], x[i:i+d], w[0], w[1], ones, eps)
		}
	}, nil
}

// l2NormKernel takes each vector of a row.
func l2NormKernel(n *graph.Node) rowFunc {
	d, eps := n.Shape.Last(), n.Attr.(graph.NormAttr).Eps
	return func(dst, x, _ []float32) {
		for i := 0; i < len(x); i += d {
			simd.L2Norm(dst[i:i+d], x[i:i+d], eps)
		}
	}
}

// streams computes a Mix or a Match of rows of x and z.
func streams(n *graph.Node, out, x, z []float32) func(from, to int) error {
	d, size, k, m := n.Shape.Last(), n.Shape.Size(), n.In[0].Shape.Size(), n.In[1].Shape.Size()
	return func(from, to int) error {
		for r := from; r < to; r++ {
			y, x, z := out[r*size:(r+1)*size], x[r*k:(r+1)*k], z[r*m:(r+1)*m]
			if n.Op == graph.Mix {
				simd.Mix(y, z, x, d, float32(n.Attr.(graph.MixAttr).Plus))
				continue
			}
			for i := 0; i < size; i += d {
				simd.Match(y[i:i+d], x[i:i+d], z, n.Attr.(graph.NormAttr).Eps)
			}
		}
		return nil
	}
}

// concat puts the vectors of rows of x and z side by side.
func concat(n *graph.Node, out, x, z []float32) func(from, to int) error {
	k, m := n.In[0].Shape.Last(), n.In[1].Shape.Last()
	vectors := n.Shape.Size() / (k + m) // of a row
	return func(from, to int) error {
		for i := from * vectors; i < to*vectors; i++ {
			copy(out[i*(k+m):], x[i*k:(i+1)*k])
			copy(out[i*(k+m)+k:], z[i*m:(i+1)*m])
		}
		return nil
	}
}

// slice copies a part of each vector of rows.
func slice(n *graph.Node, out, x []float32) func(from, to int) error {
	k, d, off := n.In[0].Shape.Last(), n.Shape.Last(), n.Attr.(graph.SliceAttr).Offset
	vectors := n.Shape.Size() / d
	return func(from, to int) error {
		for i := from * vectors; i < to*vectors; i++ {
			copy(out[i*d:(i+1)*d], x[i*k+off:])
		}
		return nil
	}
}

// embedPos looks up rows of a table by the rows' positions.
func (e *executable) embedPos(n *graph.Node, out []float32) func(from, to int) error {
	d, w := n.Shape.Size(), n.W[0]
	return func(from, to int) error {
		for t := from; t < to; t++ {
			p := int(e.rowsOf(n).Pos[t])
			if p >= w.Rows() {
				return fmt.Errorf("position %d, the model has %d", p, w.Rows())
			}
			if err := quant.Dequantize(w.DType, out[t*d:(t+1)*d], w.Row(p)); err != nil {
				return err
			}
		}
		return nil
	}
}

// scalePos multiplies rows by the factors of their positions.
func (e *executable) scalePos(n *graph.Node, out, x []float32) func(from, to int) error {
	d, a := n.Shape.Size(), n.Attr.(graph.ScalePosAttr)
	return func(from, to int) error {
		for t := from; t < to; t++ {
			by := rope.Temperature(int(e.rowsOf(n).Pos[t]), a.Beta, a.Every, a.Shift)
			simd.Scale(out[t*d:(t+1)*d], x[t*d:(t+1)*d], float32(by))
		}
		return nil
	}
}

// clampKernel keeps values between two weights of one element.
func clampKernel(n *graph.Node) (rowFunc, error) {
	low, err := vector(n.W[0])
	if err != nil {
		return nil, err
	}
	high, err := vector(n.W[1])
	return func(dst, x, _ []float32) {
		for i, v := range x {
			dst[i] = min(max(v, low[0]), high[0])
		}
	}, err
}

// patches copies the step's embeddings.
func patches(e *executable, n *graph.Node, out []float32) func(from, to int) error {
	d := n.Shape.Size()
	return func(from, to int) error {
		for t := from; t < to; t++ {
			copy(out[t*d:(t+1)*d], e.step.Embeddings[t])
		}
		return nil
	}
}

// deepstack copies the features behind the step's embeddings.
func (e *executable) deepstack(n *graph.Node, out []float32) func(from, to int) error {
	d := n.Shape.Size()
	return func(from, to int) error {
		clear(out[from*d : to*d])
		for t := from; t < to; t++ {
			copy(out[t*d:], e.step.Deepstack(n, t))
		}
		return nil
	}
}

// interpolate adds shares of rows of a table, in order.
func interpolate(e *executable, n *graph.Node, out []float32) (before func() error, body func(from, to int) error) {
	a, d, w := n.Attr.(graph.PlaceAttr), n.Shape.Size(), n.W[0]
	var grids []graph.Grid
	before = func() (err error) {
		grids, err = e.step.Grids(a)
		return err
	}
	return before, func(from, to int) error {
		var shares []graph.Share
		row := make([]float32, d)
		for t := from; t < to; t++ {
			p, y := e.step.Parts[t], out[t*d:(t+1)*d]
			clear(y)
			shares = a.Shares(shares[:0], int(p[1]), int(p[2]), grids[t])
			for _, share := range shares {
				if err := quant.Dequantize(w.DType, row, w.Row(share.Row)); err != nil {
					return err
				}
				simd.Scale(row, row, float32(share.Weight))
				simd.Add(y, y, row)
			}
		}
		return nil
	}
}
