package autoquant

import (
	"fmt"
	"sync"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// weight is a tensor that is quantized, and what each type costs.
type weight struct {
	name    string
	shape   tensor.Shape
	choices []choice      // by size
	w       *graph.Weight // nil if the model does not use the tensor
	whole   tensor.Tensor // w as it is in the file
	mean    []float32     // [matrices, columns] of squared activations; nil: alike
	ranked  []float32     // likewise, for the quantizer
	threads int
}

// choice is a type for a weight.
type choice struct {
	dtype tensor.DType
	bytes int64   // in the file, with the padding behind it
	kl    float64 // that it adds
}

// matrices tells that the weight is count matrices [rows, columns].
func (x *weight) matrices() (count, rows, columns int) {
	columns, count = x.shape.Last(), 1
	if len(x.shape) > 2 {
		count = x.shape[0]
	}
	return count, x.shape.Size() / columns / count, columns
}

// each quantizes every stride-th row to d, into keep unless that is nil, and returns the expected square of what that
// adds to an output, summed over the outputs of all rows.
func (x *weight) each(d tensor.DType, stride int, keep []byte) (sum float64, err error) {
	count, rows, k := x.matrices()
	var wg sync.WaitGroup
	errs, sums := make([]error, x.threads), make([]float64, x.threads)
	for c := range errs {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error {
				row, back, b := make([]float32, k), make([]float32, k), make([]byte, d.RowBytes(k))
				for i := c * stride; i < count*rows; i += x.threads * stride {
					if keep != nil {
						b = keep[i*len(b) : (i+1)*len(b)]
					}
					if err := x.row(d, i, row, back, b); err != nil {
						return err
					}
					sums[c] += squares(row, back, part(x.mean, i/rows, k))
				}
				return nil
			})
		})
	}
	wg.Wait()
	for c, e := range errs {
		if e != nil {
			return 0, fmt.Errorf("tensor %q: %w", x.name, e)
		}
		sum += sums[c]
	}
	return sum * float64(stride), nil
}

// row returns row i of all matrices: its rest in elements of d, and these.
func (x *weight) row(d tensor.DType, i int, row, back []float32, b []byte) error {
	_, rows, k := x.matrices()
	if err := quant.Dequantize(x.whole.DType, row, x.whole.Row(i)); err != nil {
		return err
	}
	if err := quant.Quantize(d, b, row, k, part(x.ranked, i/rows, k)); err != nil {
		return err
	}
	return quant.Dequantize(d, back, b)
}

// part returns the known values of the columns of matrix i, nil without any.
func part(x []float32, i, k int) []float32 {
	if x == nil {
		return nil
	}
	return x[i*k : (i+1)*k]
}

// squares returns the sum of (x-y)²·mean.
func squares(x, y, mean []float32) (sum float64) {
	for j, v := range x {
		e := float64(v - y[j])
		if e *= e; mean != nil {
			e *= float64(mean[j])
		}
		sum += e
	}
	return sum
}

// set gives the graph's weight type d.
func (x *weight) set(d tensor.DType) error {
	if x.w == nil {
		return nil
	}
	t := x.whole
	t.DType, t.Data, t.Source, t.Order = d, make([]byte, d.RowBytes(x.shape.Size())), nil, nil
	if _, err := x.each(d, 1, t.Data); err != nil {
		return err
	}
	x.w.Tensor = t
	return nil
}
