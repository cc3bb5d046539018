package reference

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
)

// Row returns row i of w, widened.
func Row(w *graph.Weight, i int) ([]float64, error) {
	buf := make([]float32, w.Shape.Last())
	if err := quant.Dequantize(w.DType, buf, w.Row(i)); err != nil {
		return nil, err
	}
	y := make([]float64, len(buf))
	widen(y, buf)
	return y, nil
}

// Vector returns all of w, row after row, widened.
func Vector(w *graph.Weight) ([]float64, error) {
	all, err := dequantized(w)
	y := make([]float64, len(all))
	widen(y, all)
	return y, err
}

// dequantized returns all of w.
func dequantized(w *graph.Weight) ([]float32, error) {
	all, k, n := make([]float32, w.Shape.Size()), w.Shape.Last(), w.Rows()
	errs := make([]error, min(runtime.GOMAXPROCS(0), 1+len(all)>>18))
	var wg sync.WaitGroup
	for c := range errs {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() (err error) {
				for i := n * c / len(errs); i < n*(c+1)/len(errs) && err == nil; i++ {
					err = quant.Dequantize(w.DType, all[i*k:(i+1)*k], w.Row(i))
				}
				return err
			})
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// keep is the number of weights' values a model keeps as float32 and as float64: 384 MiB. Other weights are dequantized
// row by row at each reading.
const keep = 1 << 25

// matrix is rows of a weight, dequantized at reading, or before, or have been altered.
type matrix struct {
	*graph.Weight
	all     []float32
	doubles []float64 // the same
	alter   Change    // of each matrix of so many rows
	rows    int
	altered map[int][]float64 // by matrix
}

func (m *Model) matrix(w *graph.Weight) (matrix, error) {
	x, ok := m.weights[w]
	if !ok && m.room(w) {
		all, err := dequantized(w)
		if err != nil {
			return matrix{}, err
		}
		x.all, x.doubles = all, make([]float64, len(all))
		widen(x.doubles, all)
		m.weights[w], m.kept, m.recent = x, m.kept+len(all), append(m.recent, w)
	}
	x.Weight = w
	return x, nil
}

// room reports whether w may be kept. A matrix displaces the oldest matrices, since an equation reads a matrix
// again for each arithmetic; experts displace nothing, since most experts are not read.
func (m *Model) room(w *graph.Weight) bool {
	n := w.Shape.Size()
	if n > keep || len(w.Shape) > 2 && m.kept+n > keep {
		return false
	}
	for m.kept+n > keep {
		m.kept -= m.recent[0].Shape.Size()
		delete(m.weights, m.recent[0])
		m.recent = m.recent[1:]
	}
	return true
}

// vector returns all of w, not to be written to.
func (m *Model) vector(w *graph.Weight) ([]float64, error) {
	x, err := m.matrix(w)
	if x.doubles != nil || err != nil {
		return x.doubles, err
	}
	return Vector(w)
}

// altered returns w with each matrix of so many rows changed; alter may be nil. A matrix is changed at reading: most
// experts are not read.
func (m *Model) altered(w *graph.Weight, alter Change, rows int) (matrix, error) {
	x, err := m.matrix(w)
	if alter != nil {
		x.alter, x.rows, x.altered = alter, rows, map[int][]float64{}
	}
	return x, err
}

// change alters the matrix of row i, once.
func (m matrix) change(i int) error {
	at := i / m.rows
	if m.altered[at] != nil {
		return nil
	}
	plain := reader{matrix: matrix{Weight: m.Weight, all: m.all, doubles: m.doubles}}
	rows, err := plain.wide(at*m.rows, m.rows)
	if err == nil {
		m.altered[at] = m.alter(rows, m.rows, m.Shape.Last())
	}
	return err
}

// linear returns x [T, k] · wᵀ.
func (s *Spec) linear(e *Eval, x []float64) ([]float64, error) {
	w := s.W[0]
	k, n := w.Shape.Last(), w.Rows()
	if s.Node.Shape.Size() != n || len(x)%k != 0 {
		return nil, fmt.Errorf("weight %v for %d features", []int(w.Shape), s.Node.Shape.Size())
	}
	m, err := e.altered(w, s.Alter[0], n)
	if err != nil {
		return nil, err
	}
	y, err := e.product(x, m, 0, n)
	e.num.store(y)
	return y, err
}

// headLinear returns x [T, heads, k] by each head's own matrix.
func (s *Spec) headLinear(e *Eval, x []float64) ([]float64, error) {
	heads, k, out := s.In[0].Shape[0], s.In[0].Shape.Last(), s.Node.Shape.Last()
	m, err := e.altered(s.W[0], nil, out)
	if err != nil {
		return nil, err
	}
	y := make([]float64, len(x)/k*out)
	for h := range heads {
		var rows []float64
		for v := h; v < len(x)/k; v += heads {
			rows = append(rows, x[v*k:(v+1)*k]...)
		}
		part, err := e.product(rows, m, h*out, out)
		if err != nil {
			return nil, err
		}
		for t := range len(rows) / k {
			copy(y[(t*heads+h)*out:], part[t*out:(t+1)*out])
		}
	}
	e.num.store(y)
	return y, nil
}
