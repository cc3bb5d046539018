package reference

import (
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// branches are the matrices and biases of experts.
type branches struct {
	s        *Spec
	e        *Eval
	matrices []matrix
	biases   [][]float64
	d, ff    int
}

func (s *Spec) branches(e *Eval) (*branches, error) {
	own, _ := s.Node.ExpertWeights()
	last := len(own) - 1
	m := &branches{s: s, e: e, d: s.Node.Shape.Size(), ff: s.W[last].Shape[2]}
	for i, w := range s.W[:last+1] {
		x, err := e.altered(w, s.Alter[i], w.Shape[1])
		if err != nil {
			return nil, err
		}
		m.matrices = append(m.matrices, x)
	}
	if s.Experts.Biased {
		for _, w := range s.W[last+1:] {
			b, err := e.vector(w)
			if err != nil {
				return nil, err
			}
			m.biases = append(m.biases, b)
		}
	}
	return m, nil
}

// product returns the i-th matrix of expert id times x, plus the bias.
func (m *branches) product(i, id int, x []float64) ([]float64, error) {
	n := m.matrices[i].Shape[1]
	y, err := m.e.product(x, m.matrices[i], id*n, n)
	if err != nil {
		return nil, err
	}
	if by := m.s.Experts.Gains[i]; by != 1 {
		for j := range y {
			y[j] *= by
		}
	}
	m.e.num.store(y)
	if m.biases != nil {
		for j, v := range m.biases[i][id*n : (id+1)*n] {
			y[j] += v
		}
		m.e.num.store(y)
	}
	return y, nil
}

// run returns the result of expert id for a row.
func (m *branches) run(id int, x []float64) ([]float64, error) {
	last := len(m.matrices) - 1
	var parts [][]float64
	for i := range last {
		h, err := m.product(i, id, x)
		if err != nil {
			return nil, err
		}
		parts = append(parts, h)
	}
	switch h := parts[0]; m.s.Experts.Form {
	case graph.Fused:
		parts = [][]float64{h[:m.ff], h[m.ff:]}
	case graph.Interleaved:
		parts = [][]float64{make([]float64, m.ff), make([]float64, m.ff)}
		for i, v := range h {
			parts[i%2][i/2] = v
		}
	}
	if m.s.Experts.Swapped {
		parts[0], parts[1] = parts[1], parts[0]
	}
	h := m.s.gated(m.e, parts)
	if m.e.expert != nil {
		m.e.expert(m.s.Node, id, narrow(x), narrow(h))
	}
	return m.product(last, id, h)
}

// Choose returns the rows of a Route of another number of experts.
func (s *Spec) Choose(e *Eval, rows []int, count int) ([]float64, error) {
	r, n := *s, *s.Node
	n.Shape = tensor.Shape{count, 2}
	r.Node = &n
	return r.eval(e, rows)
}

// experts sums the routed MLPs of each row of x by weight; routes are pairs of an expert's index and its weight.
func (s *Spec) experts(e *Eval, x, routes []float64) ([]float64, error) {
	m, err := s.branches(e)
	if err != nil {
		return nil, err
	}
	d := m.d
	y := make([]float64, len(x))
	k := len(routes) / 2 / max(len(x)/d, 1)
	for t := range len(x) / d {
		for j := range k {
			id, p := int(routes[(t*k+j)*2]), routes[(t*k+j)*2+1]
			if id < 0 || id >= s.W[0].Shape[0] { // as a tap says
				for i := range d {
					y[t*d+i] = math.NaN()
				}
				continue
			}
			row := x[t*d : (t+1)*d]
			if s.Experts.OnInput {
				row, p = apply(row, func(v float64) float64 { return p * v }), 1
				e.num.store(row)
			}
			o, err := m.run(id, row)
			if err != nil {
				return nil, err
			}
			for i, v := range o {
				y[t*d+i] += p * v
			}
			e.num.store(y[t*d : (t+1)*d])
		}
	}
	return y, nil
}
