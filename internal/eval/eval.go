// Package eval measures how well a model predicts a text, and how far its predictions are from another model's, or from
// the same model's before quantizing. The measures are llama-perplexity's (llama.cpp, tools/perplexity), over the same
// windows.
//
// model.go runs a model over windows, eval.go scores windows, result.go computes estimates from scores.
package eval

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/logprob"
	"github.com/karat-run/karat/internal/mmap"
)

// Windows are a text cut into pieces of equal length, each a sequence of its own. The predictions after each position
// of a window from its half to the last but one are scored: earlier ones lack context.
type Windows struct {
	Context int
	IDs     []int32 // [Count·Context]
}

// Cut makes windows of context tokens of a text, at most most of them unless most is 0. The rest at the end is left
// out.
func Cut(ids []int32, context, most int) (*Windows, error) {
	if context < 3 {
		return nil, fmt.Errorf("windows of %d tokens, want 3 or more", context)
	}
	n := len(ids) / context
	if most > 0 {
		n = min(n, most)
	}
	if n == 0 {
		return nil, fmt.Errorf("the text is shorter than a window (tokens: %d of %d): use a longer text, or "+
			"smaller windows", len(ids), context)
	}
	return &Windows{context, ids[:n*context]}, nil
}

// Count returns the number of windows.
func (w *Windows) Count() int { return len(w.IDs) / w.Context }

// Window returns the i-th.
func (w *Windows) Window(i int) []int32 { return w.IDs[i*w.Context : (i+1)*w.Context] }

// Row is the prediction after one position.
type Row struct {
	Logits []float32 // [vocab]; a logarithm of a probability is a logit less norm
	norm   float64   // of a model 0 before scoring
	known  bool      // norm is
	least  float32   // logits that are least are known to be at most that; NaN: none
}

// Source gives predictions, window by window: a Runner or a File.
type Source interface {
	Vocab() int
	// Window begins window i, with its ids, and passes over its first rows.
	Window(ctx context.Context, i int, ids []int32, rows int) error
	// Rows is the next n, valid until the next call.
	Rows(ctx context.Context, n int) ([]Row, error)
}

// File is the predictions in a file of llama-perplexity.
type File struct {
	*logprob.File
	window, at int
	buf        []float32
}

// OpenFile opens a file of predictions.
func OpenFile(path string) (*File, error) {
	f, err := logprob.Open(path)
	if err != nil {
		return nil, err
	}
	return &File{File: f}, nil
}

// Vocab implements Source.
func (f *File) Vocab() int { return f.File.Vocab }

// Windows returns the text of the file, at most most windows unless most is 0.
func (f *File) Windows(most int) (w *Windows, err error) {
	w = &Windows{Context: f.Context}
	n := f.Chunks
	if most > 0 {
		n = min(n, most)
	}
	err = mmap.Guard(func() error {
		for i := range n {
			w.IDs = append(w.IDs, f.IDs(i)...)
		}
		return nil
	})
	unknown := func(id int32) bool { return id < 0 || int(id) >= f.Vocab() }
	if i := slices.IndexFunc(w.IDs, unknown); err == nil && i >= 0 {
		err = fmt.Errorf("the file's token %d is %d, its vocabulary has %d", i, w.IDs[i], f.Vocab())
	}
	return w, err
}

// Window implements Source.
func (f *File) Window(_ context.Context, i int, _ []int32, _ int) error {
	f.window, f.at = i, 0
	return nil
}

// Rows implements Source.
func (f *File) Rows(_ context.Context, n int) ([]Row, error) {
	v := f.Vocab()
	f.buf = slices.Grow(f.buf[:0], n*v)[:n*v]
	rows := make([]Row, n)
	err := mmap.Guard(func() error {
		for i := range rows {
			row := f.buf[i*v : (i+1)*v]
			rows[i] = Row{Logits: row, known: true, least: f.Row(row, f.window, f.at)}
			if x := slices.Max(row); !(x <= 1e-3) || !(slices.Min(row) >= -math.MaxFloat32) {
				return fmt.Errorf("window %d, row %d of the file: %v is no logarithm of a probability", f.window, f.at,
					x)
			}
			f.at++
		}
		return nil
	})
	return rows, err
}

// Options of an evaluation.
type Options struct {
	Model  Source
	Base   Source                                     // to be compared with; nil is none
	Save   func(logits []float32, norm float64) error // is given the model's rows, in order; may be nil
	Report func(r *Result)                            // after each window, with estimates after Update; may be nil
}

// step is how many rows are computed, and kept, at a time.
const step = 64

// Run evaluates windows. After an error, ctx's among others, the result is of the windows before, and nil without any.
func Run(ctx context.Context, w *Windows, o Options) (*Result, error) {
	if o.Base != nil && o.Base.Vocab() != o.Model.Vocab() {
		return nil, fmt.Errorf("the model's vocabulary has %d tokens, the base's %d", o.Model.Vocab(), o.Base.Vocab())
	}
	for i, id := range w.IDs {
		if id < 0 || int(id) >= o.Model.Vocab() {
			return nil, fmt.Errorf("token %d of the text is %d, the vocabulary has %d", i, id, o.Model.Vocab())
		}
	}
	r := &Result{Context: w.Context, All: w.Count(), compared: o.Base != nil}
	for r.Windows < r.All {
		scores, err := o.window(ctx, w, r.Windows)
		if err != nil && r.Windows == 0 {
			return nil, err
		}
		if err != nil {
			r.Update()
			return r, err
		}
		r.scores = append(r.scores, scores...)
		r.Windows++
		if o.Report != nil {
			o.Report(r)
		}
	}
	r.Update()
	return r, nil
}

// window scores window i.
func (o *Options) window(ctx context.Context, w *Windows, i int) (scores []score, err error) {
	ids := w.Window(i)
	first := w.Context / 2
	for _, s := range []Source{o.Model, o.Base} {
		if s != nil {
			if err := s.Window(ctx, i, ids, first); err != nil {
				return nil, err
			}
		}
	}
	for at := first; at < w.Context-1; at += step {
		n := min(step, w.Context-1-at)
		rows, err := o.Model.Rows(ctx, n)
		if err != nil {
			return nil, err
		}
		var base []Row
		if o.Base != nil {
			if base, err = o.Base.Rows(ctx, n); err != nil {
				return nil, err
			}
		}
		more := make([]score, n)
		fork(n, func(i int) {
			rows[i].normalize()
			var b *Row
			if base != nil {
				b = &base[i]
				b.normalize()
			}
			more[i] = scoreOf(&rows[i], b, ids[at+1+i])
		})
		for i := range rows {
			if x := more[i].nll; math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("the logit of token %d after position %d of a window is %v, the sum's "+
					"logarithm %v", ids[at+1+i], at+i, rows[i].Logits[ids[at+1+i]], rows[i].norm)
			}
			if o.Save != nil {
				if err := o.Save(rows[i].Logits, rows[i].norm); err != nil {
					return nil, err
				}
			}
		}
		scores = append(scores, more...)
	}
	return scores, nil
}

// fork calls f for 0 to n-1, from as many goroutines as there are processors.
func fork(n int, f func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

func (r *Row) normalize() {
	if !r.known {
		r.norm, r.known, r.least = lab.LogSumExp(r.Logits), true, float32(math.NaN())
	}
}

func scoreOf(r, base *Row, t int32) score {
	s := score{nll: r.norm - float64(r.Logits[t])}
	if base == nil {
		return s
	}
	s.nllBase = base.norm - float64(base.Logits[t])
	s.dp = math.Exp(-s.nll) - math.Exp(-s.nllBase)
	s.same = top(r.Logits) == top(base.Logits)
	s.kl = lab.Divergence(base.filled(r), r.Logits, base.norm, r.norm)
	return s
}

// filled returns the row's logits. Tokens with a known bound are as likely as in o within the bound: KL is no less.
func (r *Row) filled(o *Row) []float32 {
	if r.least != r.least {
		return r.Logits
	}
	x := slices.Clone(r.Logits)
	for i, v := range x {
		if v == r.least {
			x[i] = min(v, float32(float64(o.Logits[i])-o.norm))
		}
	}
	return x
}

// top returns the index of the largest, of equal ones the first.
func top(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}
