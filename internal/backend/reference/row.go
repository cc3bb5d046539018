package reference

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/rope"
)

// layerNorm is (x - mean)/√(variance + eps), times the weight, plus the bias.
func (a *arith) layerNorm(n *graph.Node, x []float64) ([]float64, error) {
	var w [2][]float64 // weight and bias
	for i := range n.W {
		var err error
		if w[i], err = a.weight(n.W[i]); err != nil {
			return nil, err
		}
	}
	d, eps := n.Shape.Last(), float64(n.Attr.(graph.NormAttr).Eps)
	y, ones := make([]float64, len(x)), make([]float64, d)
	for i := range ones {
		ones[i] = 1
	}
	for r := 0; r < len(x); r += d {
		y := y[r : r+d]
		mean := a.calc(a.dot(x[r:r+d], ones) / float64(d))
		for j := range y {
			y[j] = a.calc(x[r+j] - mean)
		}
		s := a.calc(1 / math.Sqrt(a.calc(a.calc(a.dot(y, y)/float64(d))+eps)))
		for j := range y {
			if y[j] = a.calc(y[j] * s); w[0] != nil {
				y[j] = a.calc(y[j] * w[0][j])
			}
			if w[1] != nil {
				y[j] += w[1][j]
			}
		}
	}
	return a.storeAll(y), nil
}

// l2Norm is x/√(Σx² + eps).
func (a *arith) l2Norm(n *graph.Node, x []float64) []float64 {
	d, eps := n.Shape.Last(), float64(n.Attr.(graph.NormAttr).Eps)
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		s := a.calc(1 / math.Sqrt(a.calc(a.dot(x[r:r+d], x[r:r+d])+eps)))
		for j := range d {
			y[r+j] = x[r+j] * s
		}
	}
	return a.storeAll(y)
}

// concat puts vectors of x and z side by side.
func concat(n *graph.Node, x, z []float64) []float64 {
	k, m := n.In[0].Shape.Last(), n.In[1].Shape.Last()
	y := make([]float64, 0, len(x)+len(z))
	for i := range len(x) / k {
		y = append(append(y, x[i*k:(i+1)*k]...), z[i*m:(i+1)*m]...)
	}
	return y
}

// slice is a part of each vector.
func slice(n *graph.Node, x []float64) []float64 {
	k, d, off := n.In[0].Shape.Last(), n.Shape.Last(), n.Attr.(graph.SliceAttr).Offset
	y := make([]float64, 0, len(x)/k*d)
	for i := range len(x) / k {
		y = append(y, x[i*k+off:i*k+off+d]...)
	}
	return y
}

// embedPos is row p of the weight, for each position p.
func (a *arith) embedPos(n *graph.Node, pos []int32) ([]float64, error) {
	w, d := n.W[0], n.Shape.Size()
	buf, y := make([]float32, d), make([]float64, 0, len(pos)*d)
	for _, p := range pos {
		if int(p) >= w.Rows() {
			return nil, fmt.Errorf("position %d, the model has %d", p, w.Rows())
		}
		if err := quant.Dequantize(w.DType, buf, w.Row(int(p))); err != nil {
			return nil, err
		}
		for _, v := range buf {
			y = append(y, float64(v))
		}
	}
	return a.storeAll(y), nil
}

// scalePos multiplies each row by the factor of its position.
func (a *arith) scalePos(n *graph.Node, x []float64, pos []int32) []float64 {
	attr, d := n.Attr.(graph.ScalePosAttr), n.Shape.Size()
	y := make([]float64, len(x))
	for t, p := range pos {
		by := a.store(rope.Temperature(int(p), attr.Beta, attr.Every, attr.Shift))
		for j := range d {
			y[t*d+j] = x[t*d+j] * by
		}
	}
	return a.storeAll(y)
}
