package ref

import (
	"errors"
	"fmt"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
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
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for c := range errs {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error {
				return a.linearRows(y, x, w, n*c/len(errs), n*(c+1)/len(errs))
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

func (a *arith) linearRows(y, x []float64, w *graph.Weight, from, to int) error {
	k, n := w.Shape.Last(), w.Rows()
	buf, row, dot := make([]float32, k), make([]float64, k), a.multiplier(w.DType)
	for i := from; i < to; i++ {
		if err := a.weightRow(row, buf, w, i); err != nil {
			return err
		}
		for t := range len(x) / k {
			y[t*n+i] = dot(x[t*k:(t+1)*k], row)
		}
	}
	return nil
}

// experts sums the routed MLPs of each row of x by weight. see may be nil.
func (a *arith) experts(n *graph.Node, x, routes []float64, see backend.Expert) ([]float64, error) {
	gateUp, down := map[int][]float64{}, map[int][]float64{} // of the experts that rows are routed to
	d, ff, k := n.Shape.Size(), n.W[1].Shape[2], n.In[1].Shape[0]
	x = a.input(x, d, n.W[0].DType)
	act := a.activation(n.Attr.(graph.ActAttr).Act)
	y := make([]float64, len(x))
	for t := range len(x) / d {
		for j := range k {
			e, p := int(routes[(t*k+j)*2]), routes[(t*k+j)*2+1]
			if e < 0 || e >= n.W[0].Shape[0] {
				return nil, fmt.Errorf("row %d is routed to expert %d of %d", t, e, n.W[0].Shape[0])
			}
			if gateUp[e] == nil {
				var errs [2]error
				gateUp[e], errs[0] = a.weight(n.W[0].Matrix(e))
				down[e], errs[1] = a.weight(n.W[1].Matrix(e))
				if err := errors.Join(errs[:]...); err != nil {
					return nil, err
				}
			}
			h := a.product(x[t*d:(t+1)*d], gateUp[e], n.W[0])
			h = a.gated([][]float64{h[:ff], h[ff:]}, act)
			if see != nil {
				see(n, e, narrow(x[t*d:(t+1)*d]), narrow(h))
			}
			h = a.product(a.input(h, ff, n.W[1].DType), down[e], n.W[1])
			for i, v := range h {
				y[t*d+i] = a.store(y[t*d+i] + a.store(p*v))
			}
		}
	}
	return y, nil
}

// product is w·x, for w [n, len(x)] of the weight of.
func (a *arith) product(x, w []float64, of *graph.Weight) []float64 {
	y, dot := make([]float64, len(w)/len(x)), a.multiplier(of.DType)
	for i := range y {
		y[i] = dot(x, w[i*len(x):(i+1)*len(x)])
	}
	return a.storeAll(y)
}
