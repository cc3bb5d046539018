package sim

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
)

// Row is row i of w, widened.
func Row(w *graph.Weight, i int) ([]float64, error) {
	buf := make([]float32, w.Shape.Last())
	if err := quant.Dequantize(w.DType, buf, w.Row(i)); err != nil {
		return nil, err
	}
	y := make([]float64, len(buf))
	for j, v := range buf {
		y[j] = float64(v)
	}
	return y, nil
}

// Vector is all of w, row after row, widened.
func Vector(w *graph.Weight) (y []float64, err error) {
	err = mmap.Guard(func() error {
		for i := range w.Rows() {
			row, err := Row(w, i)
			if err != nil {
				return err
			}
			y = append(y, row...)
		}
		return nil
	})
	return y, err
}

// linear is x [T, k] · wᵀ.
func (s *Spec) linear(e *Eval, x []float64) ([]float64, error) {
	w := s.W[0]
	k, n := w.Shape.Last(), w.Rows()
	if s.Node.Shape.Size() != n || len(x)%k != 0 {
		return nil, fmt.Errorf("weight %v for %d features", []int(w.Shape), s.Node.Shape.Size())
	}
	x = e.num.quantize(x, k, w.DType)
	row := func(i int) ([]float64, error) { return Row(w, i) }
	if s.Alter != nil {
		all, err := Vector(w)
		if err != nil {
			return nil, err
		}
		all = s.Alter(all, n, k)
		row = func(i int) ([]float64, error) { return all[i*k : (i+1)*k], nil }
	}
	y, err := product(x, k, n, row, e.num.dot)
	e.num.store(y)
	return y, err
}

// product is x [T, k] times n rows; each sum belongs to one goroutine.
func product(x []float64, k, n int, row func(int) ([]float64, error), dot func(a, b []float64) float64) ([]float64, error) {
	t := len(x) / k
	y := make([]float64, t*n)
	threads := min(runtime.GOMAXPROCS(0), 1+t*n*k>>18)
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for c := range threads {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error {
				for i := n * c / threads; i < n*(c+1)/threads; i++ {
					w, err := row(i)
					if err != nil {
						return err
					}
					for r := range t {
						y[r*n+i] = dot(x[r*k:(r+1)*k], w)
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return y, nil
}

// experts sums the routed MLPs of each row of x by weight; routes are pairs of an
// expert's index and its weight.
func (s *Spec) experts(e *Eval, x, routes []float64) ([]float64, error) {
	d, ff, k := s.Node.Shape.Size(), s.W[1].Shape[2], s.Node.In[1].Shape[0]
	y := make([]float64, len(x))
	for t := range len(x) / d {
		for j := range k {
			id, p := int(routes[(t*k+j)*2]), routes[(t*k+j)*2+1]
			if id < 0 || id >= s.W[0].Shape[0] {
				return nil, fmt.Errorf("row %d is routed to expert %d of %d", t, id, s.W[0].Shape[0])
			}
			if s.Expert != nil {
				id = s.Expert(id)
			}
			up, down := s.W[0].Matrix(id), s.W[1].Matrix(id)
			h, err := product(e.num.quantize(x[t*d:(t+1)*d], d, up.DType), d, 2*ff, func(i int) ([]float64, error) { return Row(up, i) }, e.num.dot)
			if err != nil {
				return nil, err
			}
			e.num.store(h)
			gate, value := h[:ff], h[ff:]
			if s.SwapHalves {
				gate, value = value, gate
			}
			act := s.gated(e, [][]float64{gate, value})
			o, err := product(e.num.quantize(act, ff, down.DType), ff, d, func(i int) ([]float64, error) { return Row(down, i) }, e.num.dot)
			if err != nil {
				return nil, err
			}
			e.num.store(o)
			for i, v := range o {
				y[t*d+i] += p * v
			}
			e.num.store(y[t*d : (t+1)*d])
		}
	}
	return y, nil
}
