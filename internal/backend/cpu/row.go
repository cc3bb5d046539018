package cpu

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/simd"
)

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
