package reference

import (
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// pool makes one row of each wanted sequence.
func (a *arith) pool(n *graph.Node, x []float64, s *backend.Step) ([]float64, error) {
	first, err := s.Pooled()
	if err != nil {
		return nil, err
	}
	d := n.Shape.Size()
	y := make([]float64, 0, len(first)*d)
	for i, f := range first {
		row := slices.Clone(x[int(f)*d:][:d])
		if n.Attr.(graph.PoolAttr).Pooling == graph.Mean {
			last := int(s.Outputs[i])
			for r := int(f) + 1; r <= last; r++ {
				for j := range row {
					row[j] = a.calc(row[j] + x[r*d+j])
				}
			}
			for j := range row {
				row[j] /= float64(last + 1 - int(f))
			}
		}
		y = append(y, row...)
	}
	return a.storeAll(y), nil
}

// headLinear multiplies each head by its own matrix.
func (a *arith) headLinear(n *graph.Node, x []float64) ([]float64, error) {
	heads, k, out := n.In[0].Shape[0], n.In[0].Shape.Last(), n.Shape.Last()
	y := make([]float64, len(x)/k*out)
	for h := range heads {
		m := n.W[0].Matrix(h)
		w, err := a.weight(m)
		if err != nil {
			return nil, err
		}
		for v := h; v < len(x)/k; v += heads {
			copy(y[v*out:], a.product(a.input(x[v*k:(v+1)*k], k, m.DType), w, m))
		}
	}
	return y, nil
}
