package reference

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
)

// batch is how many rows of a weight are dequantized and multiplied together.
const batch = 16

// product returns x [T, k] times n rows of w from first on, within a matrix of an altered w; each sum belongs to a
// single goroutine.
func (e *Eval) product(x []float64, w matrix, first, n int) ([]float64, error) {
	if len(x) == 0 {
		return nil, nil
	}
	k := w.Shape.Last()
	x = e.num.quantize(x, k, w.CodeType())
	t := len(x) / k
	y := make([]float64, t*n)
	threads := min(cmp.Or(e.threads, runtime.GOMAXPROCS(0)), 1+t*n*k>>18)
	blocks := e.num != nil && e.num.Integers != nil && e.num.Integers(w.CodeType())
	var rounded []float32 // x, where sums are float32
	if !e.num.exact() {
		rounded = narrow(x)
	}
	if w.alter != nil {
		if err := mmap.Guard(func() error { return w.change(first) }); err != nil {
			return nil, err
		}
	}
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for c := range threads {
		from, to := n*c/threads, n*(c+1)/threads
		multiply := func() {
			errs[c] = mmap.Guard(func() error {
				part := reader{matrix: w}
				for i := from; i < to; i += batch {
					if blocks {
						rows, err := part.wide(first+i, min(batch, to-i))
						if err != nil {
							return err
						}
						dotBlocks(y[i:], n, rows, x, k)
						continue
					}
					if rounded != nil {
						rows, err := part.narrow(first+i, min(batch, to-i))
						if err != nil {
							return err
						}
						e.num.dots(y[i:], n, rounded, rows, k)
						continue
					}
					rows, err := part.wide(first+i, min(batch, to-i))
					if err != nil {
						return err
					}
					simd.DotsF64(y[i:], n, rows, x, k)
				}
				return nil
			})
		}
		if c == threads-1 {
			multiply()
		} else {
			wg.Go(multiply)
		}
	}
	wg.Wait()
	return y, errors.Join(errs...)
}

// reader reads rows of a matrix, each time into the same buffers.
type reader struct {
	matrix
	f32 []float32
	f64 []float64
}

// narrow returns n rows from row i on.
func (r *reader) narrow(i, n int) ([]float32, error) {
	k := r.Shape.Last()
	if r.all != nil && r.alter == nil {
		return r.all[i*k : (i+n)*k], nil
	}
	r.f32 = slices.Grow(r.f32[:0], n*k)[:n*k]
	if r.alter != nil {
		for j, v := range r.changed(i)[:n*k] {
			r.f32[j] = float32(v)
		}
		return r.f32, nil
	}
	for j := range n {
		if err := quant.Dequantize(r.DType, r.f32[j*k:(j+1)*k], r.Row(i+j)); err != nil {
			return nil, err
		}
	}
	return r.f32, nil
}

// wide returns n rows from row i on, in float64.
func (r *reader) wide(i, n int) ([]float64, error) {
	k := r.Shape.Last()
	if r.alter != nil {
		return r.changed(i)[:n*k], nil
	}
	if r.doubles != nil {
		return r.doubles[i*k : (i+n)*k], nil
	}
	rows, err := r.narrow(i, n)
	r.f64 = slices.Grow(r.f64[:0], len(rows))[:len(rows)]
	widen(r.f64, rows)
	return r.f64, err
}

func widen(y []float64, x []float32) {
	for i, v := range x {
		y[i] = float64(v)
	}
}

// changed returns an altered matrix from row i on.
func (m matrix) changed(i int) []float64 { return m.altered[i/m.rows][i%m.rows*m.Shape.Last():] }

// dots sets y[r*stride+i] to the float32 product of row r of x and row i of w, both of k elements.
func (n *Numerics) dots(y []float64, stride int, x, w []float32, k int) {
	rows := len(w) / k
	sums := make([]float32, len(x)/k*rows)
	switch n.Order {
	case Lanes:
		simd.DotsF32(sums, rows, w, x, k)
	case Forward:
		simd.SerialF32(sums, rows, w, x, k)
	case Backward:
		simd.SerialF32(sums, rows, backward(w, k), backward(x, k), k)
	}
	for r := range len(x) / k {
		for i, v := range sums[r*rows : (r+1)*rows] {
			y[r*stride+i] = float64(v)
		}
	}
}

// dotBlocks sets y[r*stride+i] to the product of row r of x and row i of w, both of k elements: the products of 32
// at a time are summed exactly, and the sums in float32.
func dotBlocks(y []float64, stride int, w, x []float64, k int) {
	for r := range len(x) / k {
		for i := range len(w) / k {
			var sum float32
			for at := 0; at < k; at += 32 {
				var s float64
				for j := at; j < min(at+32, k); j++ {
					s += x[r*k+j] * w[i*k+j]
				}
				sum += float32(s)
			}
			y[r*stride+i] = float64(sum)
		}
	}
}

// backward returns x with each row of k elements turned around.
func backward(x []float32, k int) []float32 {
	x = slices.Clone(x)
	for r := 0; r < len(x); r += k {
		slices.Reverse(x[r : r+k])
	}
	return x
}

func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}
