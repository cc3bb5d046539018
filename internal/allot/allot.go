// Package allot chooses a type for each weight of a model, by what that does to its
// predictions: the least KL divergence from the whole model's for a size, or the least
// size for a divergence.
package allot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/machine"
	"github.com/karat-run/karat/internal/mix"
	"github.com/karat-run/karat/internal/tensor"
)

// Types are those that are chosen from.
var Types = []tensor.DType{tensor.Q2_K, tensor.Q3_K, tensor.MXFP4, tensor.IQ4_XS, tensor.Q4_0, tensor.IQ4_NL, tensor.Q4_K, tensor.Q4_1,
	tensor.Q5_0, tensor.Q5_K, tensor.Q5_1, tensor.Q6_K, tensor.Q8_0}

// Options of a search.
type Options struct {
	Model     *eval.Model
	Tensors   []tensor.Tensor // of the file to be quantized; data is not read
	Alignment int             // of the tensors' data in it, in bytes
	Windows   *eval.Windows   // of the text that effects are measured on
	Numerics  numerics.Numerics
	Threads   int             // 0 is one for each core
	Imatrix   *imatrix.Matrix // for the quantizers; may be nil
	Rules     []mix.Rule      // of weights whose type is not to be chosen
	Sample    int             // elements of a weight that tell what a type costs it; 0 is DefaultSample
	Report    func(stage string, done, total int)
}

// DefaultSample is enough for errors within a few percent.
const DefaultSample = 1 << 18

// Search is a model being measured.
type Search struct {
	o       Options
	text    text
	seen    *imatrix.Matrix // of the text
	weights []*weight
}

// New computes the whole model's predictions.
func New(ctx context.Context, o Options) (*Search, error) {
	if o.Threads == 0 {
		o.Threads = machine.Threads()
	}
	s := &Search{o: o, text: text{Windows: o.Windows, graph: o.Model.Graph, numerics: o.Numerics, threads: o.Threads, begin: o.Model.Begin()}}
	o.Report("the whole model", 0, 1)
	var err error
	if s.seen, err = s.text.learn(ctx); err != nil {
		return nil, err
	}
	used := map[string]*graph.Weight{}
	for _, n := range o.Model.Graph.Nodes {
		for _, w := range n.W {
			used[w.GGUF+".weight"] = w
		}
	}
	for _, t := range o.Tensors {
		if mix.Keeps(t) {
			continue
		}
		x := &weight{name: t.Name, shape: t.Shape, w: used[t.Name], threads: o.Threads}
		if err := s.open(x); err != nil {
			return nil, err
		}
		s.weights = append(s.weights, x)
	}
	if len(s.weights) == 0 {
		return nil, errors.New("allot: the file has no weights that are quantized")
	}
	return s, nil
}

// Measure finds what each type of each weight costs. The error that it adds to the outputs
// of the weight's product, expected from the activations of the text, is computed for
// all. What an error does to the predictions is measured with one of the types: the KL
// divergence is in proportion, as it grows with the square of small changes.
func (s *Search) Measure(ctx context.Context) error {
	for i, x := range s.weights {
		s.o.Report("weights' effects", i, len(s.weights))
		if err := s.measure(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

func (s *Search) measure(ctx context.Context, x *weight) error {
	if x.w == nil { // no effect: the least will do
		return nil
	}
	for i := range x.choices {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if x.choices[i].kl, err = x.each(x.choices[i].dtype, x.stride(cmp.Or(s.o.Sample, DefaultSample)), nil); err != nil {
			return err
		}
	}
	probe := x.choices[x.probe()]
	if probe.kl == 0 { // it loses nothing
		return nil
	}
	if err := x.set(probe.dtype); err != nil {
		return err
	}
	kl, err := s.text.kl(ctx)
	x.w.Tensor = x.whole
	for i := range x.choices {
		x.choices[i].kl *= kl / probe.kl
	}
	return err
}

// open finds what is known of a weight.
func (s *Search) open(x *weight) (err error) {
	count, _, k := x.matrices()
	if x.w != nil {
		if x.whole = x.w.Tensor; !slices.Equal(x.whole.Shape, x.shape) {
			return fmt.Errorf("allot: tensor %q: shape %v in the file, %v in the model", x.name, x.shape, x.whole.Shape)
		}
		if x.mean, err = s.seen.Mean(x.name, count, k); err != nil {
			return err
		}
	}
	if s.o.Imatrix != nil {
		if x.ranked, err = s.o.Imatrix.Mean(x.name, count, k); err != nil {
			return err
		}
	}
	types := Types
	for _, r := range slices.Backward(s.o.Rules) {
		if r.Pattern.MatchString(x.name) {
			types = []tensor.DType{r.Type} // of several the first one's
		}
	}
	for _, d := range types {
		if k%d.BlockSize() == 0 {
			n := d.RowBytes(x.shape.Size()) + s.o.Alignment - 1
			x.choices = append(x.choices, choice{dtype: d, bytes: int64(n - n%s.o.Alignment)})
		}
	}
	if len(x.choices) == 0 {
		return fmt.Errorf("allot: tensor %q: its rows of %d are no multiple of the block of any of %v", x.name, k, types)
	}
	slices.SortStableFunc(x.choices, func(a, b choice) int { return cmp.Compare(a.bytes, b.bytes) })
	return nil
}

// stride leaves out rows of a large weight.
func (x *weight) stride(sample int) int {
	_, _, k := x.matrices()
	return max(1, min(x.shape.Size()/sample, x.shape.Size()/k/16))
}

// probe is the choice at which a weight's effect is measured: about four bits.
func (x *weight) probe() int {
	best, near := 0, math.Inf(1)
	for i, c := range x.choices {
		if d := math.Abs(8*float64(c.bytes)/float64(x.shape.Size()) - 4.5); d < near {
			best, near = i, d
		}
	}
	return best
}
