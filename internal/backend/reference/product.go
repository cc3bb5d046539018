package reference

import (
	"fmt"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
)

// weight is all of w, widened.
func (a *arith) weight(w *graph.Weight) ([]float64, error) {
	d := w.Shape.Last()
	y, buf := make([]float64, w.Shape.Size()), make([]float32, d)
	for r := range w.Rows() {
		if err := a.weightRow(y[r*d:(r+1)*d], buf, w, r); err != nil {
			return nil, err
		}
	}
	return y, nil
}

// weightRow reads row r of w. buf has its length.
func (a *arith) weightRow(row []float64, buf []float32, w *graph.Weight, r int) error {
	if err := quant.Dequantize(w.DType, buf, w.Row(r)); err != nil {
		return err
	}
	for i, v := range buf {
		row[i] = float64(v)
	}
	a.storeAll(row)
	return nil
}

// linear is x [T, k] · wᵀ, w being [n, k]. Rows of w are cut among the threads;
// each sum runs along k in order, so the cut does not show.
func (a *arith) linear(x []float64, w *graph.Weight, threads int) ([]float64, error) {
	k, n := w.Shape.Last(), w.Rows()
	x = a.input(x, k, w.DType)
	y := make([]float64, len(x)/k*n)
	var blocks [][]float64
	if !a.single && !integers(a.class.Activations.Input(w.DType)) {
		blocks = columns(x, k)
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for c := range errs {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error {
				return a.linearRows(y, x, blocks, w, n*c/len(errs), n*(c+1)/len(errs))
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return a.storeAll(y), nil
}

// side is how many rows of a float64 product run side by side.
const side = 16

// columns is x [T, k] in blocks [k, 16] of 16 rows each, the last filled up with zeros. A row alone is no block.
func columns(x []float64, k int) [][]float64 {
	var blocks [][]float64
	for len(x) > k {
		n := min(len(x)/k, side)
		block := make([]float64, k*side)
		for r := range n {
			for i, v := range x[r*k : (r+1)*k] {
				block[i*side+r] = v
			}
		}
		blocks, x = append(blocks, block), x[n*k:]
	}
	return blocks
}

// linearRows computes outputs from to to, four at a time: of the rows in blocks, and one by one of the others.
func (a *arith) linearRows(y, x []float64, blocks [][]float64, w *graph.Weight, from, to int) error {
	const most = 4
	k, n := w.Shape.Last(), w.Rows()
	t := len(y) / n
	buf, all, out := make([]float32, k), make([]float64, most*k), make([]float64, most*side)
	for i := from; i < to; i += most {
		rows := all[:min(most, to-i)*k]
		for j := range len(rows) / k {
			if err := a.weightRow(rows[j*k:(j+1)*k], buf, w, i+j); err != nil {
				return err
			}
		}
		for b, block := range blocks {
			simd.DotColumnsF64(out, rows, block, k)
			for j := range len(rows) / k {
				for c := range min(side, t-b*side) {
					y[(b*side+c)*n+i+j] = out[j*side+c]
				}
			}
		}
		for r := len(blocks) * side; r < t; r++ {
			a.dots(y[r*n+i:], x[r*k:(r+1)*k], rows, w.DType)
		}
	}
	return nil
}

// experts sums the routed MLPs of each row of x by weight. see may be nil.
func (a *arith) experts(n *graph.Node, x, routes []float64, see backend.Expert) ([]float64, error) {
	attr, _ := n.Attr.(graph.ExpertsAttr)
	m := &mlps{a: a, n: n, attr: attr, weights: map[*graph.Weight]map[int][]float64{}, see: see}
	m.matrices, m.biases = n.ExpertWeights()
	d, k := n.Shape.Size(), n.In[1].Shape[0]
	y := make([]float64, len(x))
	for t := range len(x) / d {
		for j := range k {
			e, p := int(routes[(t*k+j)*2]), routes[(t*k+j)*2+1]
			if e < 0 || e >= n.W[0].Shape[0] {
				return nil, fmt.Errorf("row %d is routed to expert %d of %d", t, e, n.W[0].Shape[0])
			}
			row := x[t*d : (t+1)*d]
			if attr.OnInput {
				row, p = a.apply(row, func(v float64) float64 { return p * v }), 1
			}
			h, err := m.run(e, row)
			if err != nil {
				return nil, err
			}
			for i, v := range h {
				y[t*d+i] = a.store(y[t*d+i] + a.store(p*v))
			}
		}
	}
	return y, nil
}

// mlps are the experts of a node, and those of their weights that rows were routed to.
type mlps struct {
	a                *arith
	n                *graph.Node
	attr             graph.ExpertsAttr
	matrices, biases []*graph.Weight
	weights          map[*graph.Weight]map[int][]float64 // by expert
	see              backend.Expert
}

// run is what expert e makes of a row.
func (m *mlps) run(e int, x []float64) ([]float64, error) {
	a, last := m.a, len(m.matrices)-1
	x = a.input(x, len(x), m.matrices[0].DType)
	var parts [][]float64
	for i := range last {
		h, err := m.product(i, e, x)
		if err != nil {
			return nil, err
		}
		parts = append(parts, h)
	}
	ff := m.matrices[last].Shape[2]
	switch h := parts[0]; m.attr.Form {
	case graph.Fused:
		parts = [][]float64{h[:ff], h[ff:]}
	case graph.Interleaved:
		parts = [][]float64{make([]float64, ff), make([]float64, ff)}
		for i, v := range h {
			parts[i%2][i/2] = v
		}
	}
	h := a.gated(parts, m.attr.ActAttr)
	if m.see != nil {
		m.see(m.n, e, narrow(x), narrow(h))
	}
	return m.product(last, e, a.input(h, ff, m.matrices[last].DType))
}

// product is the i-th matrix of expert e times x, and its bias.
func (m *mlps) product(i, e int, x []float64) ([]float64, error) {
	w, err := m.weight(m.matrices[i], e)
	if err != nil {
		return nil, err
	}
	y := m.a.product(x, w, m.matrices[i])
	if !m.attr.Biased {
		return y, nil
	}
	b, err := m.weight(m.biases[i], e)
	if err != nil {
		return nil, err
	}
	for j, v := range b {
		y[j] = m.a.store(y[j] + v)
	}
	return y, nil
}

// weight is expert e's part of w.
func (m *mlps) weight(w *graph.Weight, e int) ([]float64, error) {
	if m.weights[w] == nil {
		m.weights[w] = map[int][]float64{}
	}
	if v := m.weights[w][e]; v != nil {
		return v, nil
	}
	v, err := m.a.weight(w.Matrix(e))
	m.weights[w][e] = v
	return v, err
}

// product is w·x, for w [n, len(x)] of the weight of.
func (a *arith) product(x, w []float64, of *graph.Weight) []float64 {
	y := make([]float64, len(w)/len(x))
	a.dots(y, x, w, of.DType)
	return a.storeAll(y)
}
