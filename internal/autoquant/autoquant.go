// Package autoquant chooses a type for each weight of a model by its effect on the model's predictions: the least KL
// divergence for a size of the file, or the least size for a divergence.
//
// plan.go chooses from the measured costs, autoquant.go measures the costs of all weights, measure.go the costs of a
// weight on a text.
package autoquant

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/karat-run/karat/internal/tensor"
)

// Types are the types to choose from. IQ1_S, IQ2_XXS and IQ2_XS are none: a plan holds with and without an
// importance matrix; these types depend on a matrix.
var Types = []tensor.DType{tensor.IQ1_M, tensor.IQ2_S, tensor.IQ3_XXS, tensor.IQ3_S, tensor.Q2_K, tensor.Q3_K,
	tensor.MXFP4, tensor.IQ4_XS, tensor.Q4_0, tensor.IQ4_NL, tensor.Q4_K, tensor.Q4_1,
	tensor.Q5_0, tensor.Q5_K, tensor.Q5_1, tensor.Q6_K, tensor.Q8_0}

// Options of a search.
type Options struct {
	Model     *eval.Model
	Tensors   []tensor.Tensor // of the file to be quantized; data is not read
	Alignment int             // of the tensors' data in it, in bytes
	Windows   *eval.Windows   // of the text for measuring effects
	Numerics  numerics.Numerics
	Threads   int             // 0 is a thread for each core
	Imatrix   *imatrix.Matrix // for the quantizers; may be nil
	Rules     []quantmix.Rule // of weights whose type is not to be chosen
	Sample    int             // elements of a weight in the measurement of a type; 0 is DefaultSample
	Report    func(stage string, done, total int)
}

// DefaultSample is enough for errors within a few percent.
const DefaultSample = 1 << 18

// Search is a model being measured.
type Search struct {
	o       Options
	text    text
	weights []*weight
	on      Text // of the measured effects
}

// New finds the weights and the types for each. Learn is to follow.
func New(o Options) (*Search, error) {
	if o.Threads == 0 {
		o.Threads = sysinfo.Threads()
	}
	s := &Search{o: o, text: text{Windows: o.Windows, graph: o.Model.Graph, numerics: o.Numerics, threads: o.Threads,
		begin: o.Model.Begin()}, on: textOf(o.Windows)}
	if err := s.fits(); err != nil {
		return nil, err
	}
	used := map[string]*graph.Weight{}
	for _, n := range o.Model.Graph.Nodes {
		for _, w := range n.W {
			used[w.GGUF+".weight"] = w
		}
	}
	for _, t := range o.Tensors {
		if quantmix.Keeps(t) {
			continue
		}
		x := &weight{name: t.Name, shape: t.Shape, w: used[t.Name], threads: o.Threads}
		if err := s.open(x); err != nil {
			return nil, err
		}
		s.weights = append(s.weights, x)
	}
	if len(s.weights) == 0 {
		return nil, errors.New("the file has no weights that are quantized")
	}
	return s, nil
}

// Least returns how many bytes the weights take at least.
func (s *Search) Least() (n int64) {
	for _, x := range s.weights {
		n += x.choices[0].bytes
	}
	return n
}

// Learn computes the whole model's predictions, for comparison with choices.
func (s *Search) Learn(ctx context.Context) error {
	s.o.Report("the whole model", 0, 1)
	seen, err := s.text.learn(ctx)
	if err != nil {
		return err
	}
	for _, x := range s.weights {
		if x.w == nil {
			continue
		}
		count, _, k := x.matrices()
		if x.mean, err = seen.Mean(x.name, count, k); err != nil {
			return err
		}
	}
	return nil
}

// fits returns an error if the measurements would not fit the memory: the file, or all weights as Q8_0 in the
// order of files and in the order of products. The file's pages may go meanwhile.
func (s *Search) fits() error {
	var q8 int64
	for _, t := range s.o.Tensors {
		if !quantmix.Keeps(t) {
			q8 += int64(tensor.Q8_0.RowBytes(t.Shape.Size()))
		}
	}
	cache := s.o.Numerics.CacheBytes(s.o.Model.Graph, s.o.Threads, s.o.Windows.Context)
	if err := sysinfo.Fits(max(s.o.Model.Checkpoint.Bytes(), 2*q8), cache, s.o.Windows.Context); err != nil {
		return fmt.Errorf("measuring %s %w", s.o.Model.Checkpoint.Path, err)
	}
	return nil
}

// Measure finds the cost of each type of each weight. The error in the outputs of the weight's product,
// expected from the activations of the text, is computed for all types. The effect of an error on the
// predictions is measured with a single type: the KL divergence is in proportion, as it grows with the square
// of small changes. The other weights are Q8_0 then, and the predictions are compared with the predictions of
// Q8_0 alone: products of quantized weights are several times faster.
func (s *Search) Measure(ctx context.Context) (err error) {
	whole := s.text.base
	defer func() {
		s.restore()
		s.text.base = whole
	}()
	for i, x := range s.weights {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.errors(x); err != nil {
			return err
		}
		s.o.Report("errors of types", i+1, len(s.weights))
	}
	if _, err := s.text.learn(ctx); err != nil {
		return err
	}
	for i, x := range s.weights {
		if err := s.probe(ctx, x); err != nil {
			return err
		}
		s.o.Report("effects of errors", i+1, len(s.weights))
	}
	return nil
}

// errors sets the error of each type in the outputs, and makes the weight Q8_0.
func (s *Search) errors(x *weight) (err error) {
	if x.w == nil { // no effect: the least will do
		return nil
	}
	for i := range x.choices {
		if x.choices[i].kl, err = x.quantize(x.choices[i].dtype, x.stride(cmp.Or(s.o.Sample, DefaultSample)),
			nil); err != nil {
			return err
		}
	}
	if x.shape.Last()%tensor.Q8_0.BlockSize() != 0 || x.whole.DType.Quantized() {
		return nil
	}
	return x.set(tensor.Q8_0)
}

// probe turns the choices' errors into KL divergences, by the measured divergence of a choice.
func (s *Search) probe(ctx context.Context, x *weight) error {
	probe := x.choices[x.middle()]
	if x.w == nil || probe.kl == 0 {
		return nil
	}
	alone := x.w.Tensor
	if err := x.set(probe.dtype); err != nil {
		return err
	}
	kl, err := s.text.kl(ctx)
	x.w.Tensor = alone
	for i := range x.choices {
		x.choices[i].kl *= kl / probe.kl
	}
	return err
}

// restore gives the model its own weights again.
func (s *Search) restore() {
	for _, x := range s.weights {
		if x.w != nil {
			x.w.Tensor = x.whole
		}
	}
}

// open finds the known facts of a weight.
func (s *Search) open(x *weight) (err error) {
	count, _, k := x.matrices()
	if x.w != nil {
		if x.whole = x.w.Tensor; !slices.Equal(x.whole.Shape, x.shape) {
			return fmt.Errorf("tensor %q: shape %v in the file, %v in the model", x.name, x.shape, x.whole.Shape)
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
			types = []tensor.DType{r.Type} // of several texts, the first's
		}
	}
	for _, d := range types {
		if k%d.BlockSize() == 0 {
			n := d.RowBytes(x.shape.Size()) + s.o.Alignment - 1
			x.choices = append(x.choices, choice{dtype: d, bytes: int64(n - n%s.o.Alignment)})
		}
	}
	if len(x.choices) == 0 {
		return fmt.Errorf("tensor %q: its rows of %d are no multiple of the block of any of %v", x.name, k, types)
	}
	slices.SortStableFunc(x.choices, func(a, b choice) int { return cmp.Compare(a.bytes, b.bytes) })
	return nil
}

// stride leaves out rows of a large weight.
func (x *weight) stride(sample int) int {
	_, _, k := x.matrices()
	return max(1, min(x.shape.Size()/sample, x.shape.Size()/k/16))
}

// middle returns the choice for measuring a weight's effect: about four bits.
func (x *weight) middle() int {
	best, near := 0, math.Inf(1)
	for i, c := range x.choices {
		if d := math.Abs(8*float64(c.bytes)/float64(x.shape.Size()) - 4.5); d < near {
			best, near = i, d
		}
	}
	return best
}

// Text tells texts apart.
type Text struct {
	Windows int    `json:"windows"`
	Context int    `json:"context"` // tokens of a window
	SHA256  string `json:"sha256"`  // of the windows' token ids, int32 little-endian
}

func textOf(w *eval.Windows) Text {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, w.IDs) // a hash takes all
	return Text{w.Count(), w.Context, hex.EncodeToString(h.Sum(nil))}
}
