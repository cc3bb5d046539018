package reference

import (
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// adapt adds to y, the value of Linear n of x, what the rows' adapters do: Scale·B(A x) each.
func (e *executable) adapt(n *graph.Node, y, x []float64, s *backend.Step) {
	if e.after[n] {
		s = s.Wanted()
	}
	k, out := n.W[0].Shape.Last(), n.Shape.Size()
	for r, b := range s.Adapters {
		if b == nil {
			continue
		}
		for _, part := range b.Parts {
			if p := part.Pairs[n.W[0]]; p != nil {
				e.arith.adaptRow(y[r*out:][:out], x[r*k:][:k], p, part.By*p.Scale)
			}
		}
	}
}

func (a *arith) adaptRow(y, x []float64, p *backend.Pair, scale float64) {
	low := a.times(p.A, x)
	for i, v := range a.times(p.B, low) {
		y[i] = a.store(y[i] + a.calc(scale*v))
	}
}

// times is w [n, len(x)] times x.
func (a *arith) times(w []float32, x []float64) []float64 {
	k := len(x)
	y, row := make([]float64, len(w)/k), make([]float64, k)
	for i := range y {
		for j, v := range w[i*k:][:k] {
			row[j] = float64(v)
		}
		y[i] = a.dot(row, x)
	}
	return a.storeAll(y)
}
