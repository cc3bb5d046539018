package autoquant

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// weight is a tensor to quantize, and the costs of each type.
type weight struct {
	name    string
	shape   tensor.Shape
	choices []choice      // by size
	w       *graph.Weight // nil if the model does not use the tensor
	whole   tensor.Tensor // w as in the file
	mean    []float32     // [matrices, columns] of squared activations; nil: alike
	ranked  []float32     // likewise, for the quantizer
	threads int
}

// choice is a type for a weight.
type choice struct {
	dtype tensor.DType
	bytes int64   // in the file, with the padding behind it
	kl    float64 // added
}

// matrices returns the weight's shape as count matrices [rows, columns].
func (x *weight) matrices() (count, rows, columns int) {
	columns, count = x.shape.Last(), 1
	if len(x.shape) > 2 {
		count = x.shape[0]
	}
	return count, x.shape.Size() / columns / count, columns
}

// quantize quantizes every stride-th row to d, into keep unless nil, and returns the expected square of the
// error in an output, summed over the outputs of all rows.
func (x *weight) quantize(d tensor.DType, stride int, keep []byte) (sum float64, err error) {
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

// row reads row i of all matrices into row, quantizes the row to d into b, and dequantizes b into back.
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
	if _, err := x.quantize(d, 1, t.Data); err != nil {
		return err
	}
	x.w.Tensor = t
	return nil
}

// text is the text for measuring effects: windows, and the whole model's predictions.
type text struct {
	*eval.Windows
	graph    *graph.Graph
	numerics numerics.Numerics
	threads  int
	begin    int32
	base     []prediction
}

// prediction is the whole model's prediction after a position: the tokens above unlikely, and the probability
// of the others together.
type prediction struct {
	ids      []int32
	p        []float32 // of each
	sum      float64   // of p
	negative float64   // Σ p ln p
	rest     float64   // probability of the others
}

// unlikely is the probability below which tokens count together: a large vocabulary has a few thousand above.
const unlikely = 1e-6

func newPrediction(logits []float32, norm float64) (b prediction) {
	n, least := 0, float32(norm+math.Log(unlikely))
	for _, x := range logits {
		if x >= least {
			n++
		}
	}
	b.ids, b.p = make([]int32, 0, n+1), make([]float32, 0, n+1) // as many as there are, or nearly
	for j, x := range logits {
		lp := float64(x) - norm
		p := math.Exp(lp)
		if p < unlikely {
			b.rest += p
			continue
		}
		b.ids, b.p = append(b.ids, int32(j)), append(b.p, float32(p))
		b.sum += float64(float32(p))
		b.negative += float64(float32(p)) * lp
	}
	return b
}

// kl returns the KL divergence of another model's distribution. Counting tokens together can but lessen it.
func (b *prediction) kl(logits []float32, norm float64) float64 {
	dot, rest := 0., 1.
	for j, id := range b.ids {
		x := float64(logits[id])
		dot += float64(b.p[j]) * x
		rest -= math.Exp(x - norm)
	}
	kl := b.negative - dot + norm*b.sum
	if b.rest > 0 {
		kl += b.rest * math.Log(b.rest/max(rest, unlikely*unlikely))
	}
	return kl
}

// skipped returns the number of positions left out at the beginning of a window: these lack context.
func (t *text) skipped() int { return t.Context / 8 }

// step is how many rows are computed, and kept, at a time.
const step = 64

// rows computes the text, and calls f for each row of logits; several at a time.
func (t *text) rows(ctx context.Context, o engine.Options, f func(i int, logits []float32, norm float64)) error {
	o.Context = t.Context
	r, err := eval.NewRunner(ctx, t.graph, t.numerics, t.threads, t.begin, o)
	if err != nil {
		return err
	}
	defer r.Close()
	i := 0
	for w := range t.Count() {
		if err := r.Window(ctx, w, t.Window(w), t.skipped()); err != nil {
			return err
		}
		for at := t.skipped(); at < t.Context; at += step {
			rows, err := r.Rows(ctx, min(step, t.Context-at))
			if err != nil {
				return err
			}
			var wg sync.WaitGroup
			for j, row := range rows {
				wg.Go(func() { f(i+j, row.Logits, lab.LogSumExp(row.Logits)) })
			}
			wg.Wait()
			i += len(rows)
		}
	}
	return nil
}

// learn keeps the unchanged model's predictions, and returns the sizes of the activations multiplied by its weights.
func (t *text) learn(ctx context.Context) (*imatrix.Matrix, error) {
	c := imatrix.NewCollector(t.graph, true)
	t.base = make([]prediction, t.Count()*(t.Context-t.skipped()))
	err := t.rows(ctx, engine.Options{Want: c.Want, Tap: c.Tap, Expert: c.Expert()},
		func(i int, logits []float32, norm float64) {
			t.base[i] = newPrediction(logits, norm)
		})
	if err != nil {
		return nil, err
	}
	m := &imatrix.Matrix{Entries: map[string]*imatrix.Entry{}}
	return m, c.Drain(m)
}

// kl returns the mean KL divergence of the graph's predictions, with its current weights, from the learned predictions.
func (t *text) kl(ctx context.Context) (float64, error) {
	all := make([]float64, len(t.base))
	err := t.rows(ctx, engine.Options{}, func(i int, logits []float32, norm float64) {
		all[i] = t.base[i].kl(logits, norm)
	})
	mean := 0.
	for _, x := range all {
		mean += x / float64(len(all))
	}
	if err == nil && (math.IsNaN(mean) || math.IsInf(mean, 0)) {
		err = fmt.Errorf("the KL divergence of a trial is %v", mean)
	}
	return max(mean, 0), err
}
