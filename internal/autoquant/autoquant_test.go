package autoquant

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// made returns a search over weights of made-up choices: falling costs of rising sizes, but for a few.
func made(r *rand.Rand, weights, choices int) *Search {
	s := &Search{}
	for range weights {
		x := &weight{}
		bytes, kl := int64(1+r.IntN(50)), math.Exp(4*r.Float64())
		for range choices {
			x.choices = append(x.choices, choice{bytes: bytes, kl: kl})
			bytes += int64(r.IntN(60))
			kl *= 0.1 + r.Float64()
		}
		s.weights = append(s.weights, x)
	}
	return s
}

// best tries all plans.
func best(s *Search, size int64) (kl float64) {
	kl = math.Inf(1)
	p := make(plan, len(s.weights))
	for {
		if s.bytes(p) <= size {
			kl = min(kl, s.expected(p))
		}
		i := 0
		for ; i < len(p); i++ {
			if p[i]++; p[i] < len(s.weights[i].choices) {
				break
			}
			p[i] = 0
		}
		if i == len(p) {
			return kl
		}
	}
}

func TestWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const tries = 300
	missed, excess := 0, 0.
	for range tries {
		s := made(r, 5, 4)
		least, most := s.bytes(make(plan, 5)), s.bytes(plan{3, 3, 3, 3, 3})
		size := least + r.Int64N(most-least+1)
		p := s.fill(size)
		if n := s.bytes(p); n > size {
			t.Fatalf("%d bytes within %d", n, size)
		}
		want := best(s, size)
		if got := s.expected(p); got > 1.0001*want {
			missed++
			excess += got/want - 1
		}
	}
	if missed > tries/10 || excess > 0.01*tries {
		t.Errorf("%d of %d plans are not the best; their KL is too large by %v of it in the mean over all", missed, tries, excess/tries)
	}
}

func TestBelow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		s := made(r, 6, 4)
		kl := s.expected(make(plan, 6)) * r.Float64()
		p := s.shrink(kl)
		if s.expected(p) > kl { // then no plan does better
			if got, want := s.expected(p), best(s, 1<<40); got > 1.0001*want {
				t.Errorf("KL %v for %v, the best is %v", got, kl, want)
			}
			continue
		}
		if fewer := s.bytes(p) - 70; best(s, fewer) <= 0.9*kl {
			t.Errorf("KL %v takes %d bytes, %v can be had with %d", kl, s.bytes(p), best(s, fewer), fewer)
		}
	}
}

// TestPrediction: counting unlikely tokens together lessens KL by next to nothing.
func TestPrediction(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, noise := range []float64{0, 1e-4, 0.1, 1} {
		x, y := make([]float32, 3000), make([]float32, 3000)
		for i := range x {
			x[i] = float32(5 * r.NormFloat64())
			y[i] = x[i] + float32(noise*r.NormFloat64())
		}
		b := newPrediction(x, lab.LogSumExp(x))
		if len(b.ids) > 2000 || len(b.ids) < 100 {
			t.Errorf("%d tokens are likely", len(b.ids))
		}
		got, want := b.kl(y, lab.LogSumExp(y)), lab.KL(x, y)
		if math.Abs(got-want) > 0.01*want+1e-9 {
			t.Errorf("noise %v: KL %v, want %v", noise, got, want)
		}
	}
}

// open starts a search on a model of the repository. Its tensors are those of a GGUF file.
func open(t *testing.T, name string, change func(*Options)) *Search {
	t.Helper()
	c, err := checkpoint.Open(golden.Model(t, name))
	if err != nil {
		t.Fatal(err)
	}
	files, err := model.OpenFiles(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &eval.Model{Files: *files}
	t.Cleanup(func() { m.Close() })
	n, err := numerics.Parse("", "")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Model: m, Alignment: 32, Numerics: n, Threads: 2, Sample: 1 << 13, Report: func(string, int, int) {}}
	seen := map[string]bool{}
	for _, n := range m.Graph.Nodes {
		for _, w := range n.W {
			if name := w.GGUF + ".weight"; !seen[name] {
				seen[name] = true
				o.Tensors = append(o.Tensors, tensor.Tensor{Name: name, DType: w.DType, Shape: w.Shape})
			}
		}
	}
	o.Tensors = append(o.Tensors, tensor.Tensor{Name: "unused.weight", DType: tensor.BF16, Shape: tensor.Shape{4, 256}})
	if o.Windows, err = m.Windows(t.Context(), eval.Calibration, 96, 2); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err == nil {
		err = s.Learn(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSearch chooses types for a model: effects add up nearly, and the choice is better than llama.cpp's mixes of the
// same size.
func TestSearch(t *testing.T) {
	s := open(t, "tiny-llama", nil)
	before := slices.Clone(s.weights)
	if err := s.Measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var of Plan
	for _, name := range []string{"Q3_K_M", "Q4_K_M"} {
		m, _ := quantmix.Find(name)
		types, err := m.Types(quantmix.Model{Arch: "llama", Layers: 4, Group: 4}, s.o.Tensors)
		if err != nil {
			t.Fatal(err)
		}
		p := make(plan, len(s.weights))
		for i, x := range s.weights {
			j := slices.IndexFunc(s.o.Tensors, func(t tensor.Tensor) bool { return t.Name == x.name })
			p[i] = max(0, slices.IndexFunc(x.choices, func(c choice) bool { return c.dtype == types[j] }))
		}
		theirs, err := s.plan(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := s.Within(t.Context(), theirs.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if ours.Bytes > theirs.Bytes || ours.KL > 0.75*theirs.KL {
			t.Errorf("%s: KL %v in %d bytes, ours %v in %d", name, theirs.KL, theirs.Bytes, ours.KL, ours.Bytes)
		}
		for _, p := range []*Plan{ours, theirs} {
			if r := p.KL / p.Expected; !(r > 0.8 && r < 1.25) {
				t.Errorf("%s: KL %v, expected %v", name, p.KL, p.Expected)
			}
		}
		of = *ours
	}
	for i, x := range s.weights {
		if x.w != nil && (x.w.DType != before[i].whole.DType || &x.w.Data[0] != &before[i].whole.Data[0]) {
			t.Errorf("%s: the model is not as it was", x.name)
		}
	}
	if w := of.Weights[len(of.Weights)-1]; w.Name != "unused.weight" || w.Type != "IQ1_M" || of.Predictions != 2*84 {
		t.Errorf("%+v of %d predictions", w, of.Predictions)
	}
	below, err := s.Below(t.Context(), 0.02)
	if err != nil {
		t.Fatal(err)
	}
	if less, err := s.Within(t.Context(), below.Bytes*19/20); err != nil || below.KL > 0.02 || less.KL < 0.02 {
		t.Errorf("KL %v in %d bytes, and %+v in fewer, %v", below.KL, below.Bytes, less, err)
	}
	if _, err := s.Below(t.Context(), 1e-12); err == nil {
		t.Error("a KL of 1e-12 can be had")
	}
	if _, err := s.Within(t.Context(), 1000); err == nil {
		t.Error("1000 bytes are enough")
	}

	// A plan that is read again gives the same.
	data, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	again := open(t, "tiny-llama", nil)
	if other, err := again.Read(data); err != nil || other != nil {
		t.Fatal(other, err)
	}
	again.on.Windows++
	if other, err := again.Read(data); err != nil || other == nil || *other != of.Text || again.on != of.Text {
		t.Errorf("another text is %v, %v", other, err)
	}
	if n := again.Least(); n >= of.Bytes || n != again.bytes(make(plan, len(again.weights))) {
		t.Errorf("%d bytes at least", n)
	}
	if p, err := again.Within(t.Context(), of.Bytes); err != nil || fmt.Sprint(*p) != fmt.Sprint(of) {
		t.Errorf("%v\n%v, %v", of, p, err)
	}
}

// TestRules: rows that are no multiple of 256, importance, and types that are given.
func TestRules(t *testing.T) {
	m := &imatrix.Matrix{Entries: map[string]*imatrix.Entry{"blk.0.attn_q.weight": {Sums: make([]float64, 160), Counts: []float64{1}}}}
	for i := range 160 {
		m.Entries["blk.0.attn_q.weight"].Sums[i] = float64(i)
	}
	s := open(t, "tiny-gemma3", func(o *Options) {
		o.Imatrix = m
		o.Windows.IDs = o.Windows.Window(0)
		o.Rules = []quantmix.Rule{{Pattern: regexp.MustCompile("attn_k"), Type: tensor.Q8_0}, {Pattern: regexp.MustCompile("attn"), Type: tensor.Q4_0}}
	})
	for _, x := range s.weights {
		types := 17
		if strings.Contains(x.name, "attn") {
			types = 1
		} else if x.shape.Last()%256 != 0 {
			types = 7
		}
		if len(x.choices) != types || strings.Contains(x.name, "attn_k") != (types == 1 && x.choices[0].dtype == tensor.Q8_0) || (x.ranked != nil) != (x.name == "blk.0.attn_q.weight") {
			t.Errorf("%s: %v", x.name, x.choices)
		}
	}
	bad := func(change func(*Options)) error {
		o := s.o
		change(&o)
		_, err := New(o)
		return err
	}
	for name, change := range map[string]func(*Options){
		"multiple": func(o *Options) {
			o.Rules = []quantmix.Rule{{Pattern: regexp.MustCompile("attn_q"), Type: tensor.Q4_K}}
		},
		"shape": func(o *Options) {
			o.Tensors = []tensor.Tensor{{Name: "blk.0.attn_q.weight", Shape: tensor.Shape{2, 32}}}
		},
		"none":    func(o *Options) { o.Tensors = nil },
		"imatrix": func(o *Options) { m.Entries["blk.0.attn_q.weight"].Sums = make([]float64, 3) },
	} {
		if bad(change) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Measure(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// planned returns a search without a model, for plans.
func planned() *Search {
	return &Search{weights: []*weight{{name: "a", choices: []choice{{dtype: tensor.Q4_0, bytes: 18}, {dtype: tensor.Q8_0, bytes: 34}}}, {name: "b", choices: []choice{{dtype: tensor.Q8_0}}}}}
}

var plans = map[string]string{
	"good":     `{"kl": "NaN", "weights": [{"name": "a", "choices": [{"type": "Q4_0", "kl": 0.5}, {"type": "Q8_0", "kl": 0}]}, {"name": "b", "choices": [{"type": "Q8_0", "kl": 1}]}]}`,
	"json":     `{"weights": `,
	"empty":    `{}`,
	"name":     `{"weights": [{"name": "c", "choices": [{"type": "Q4_0"}, {"type": "Q8_0"}]}, {"name": "b", "choices": [{"type": "Q8_0"}]}]}`,
	"choices":  `{"weights": [{"name": "a", "choices": [{"type": "Q4_0"}]}, {"name": "b", "choices": [{"type": "Q8_0"}]}]}`,
	"type":     `{"weights": [{"name": "a", "choices": [{"type": "Q8_0"}, {"type": "Q8_0"}]}, {"name": "b", "choices": [{"type": "Q8_0"}]}]}`,
	"negative": `{"weights": [{"name": "a", "choices": [{"type": "Q4_0", "kl": -1}, {"type": "Q8_0"}]}, {"name": "b", "choices": [{"type": "Q8_0"}]}]}`,
	"huge":     `{"weights": [{"name": "a", "choices": [{"type": "Q4_0", "kl": 1e300}, {"type": "Q8_0"}]}, {"name": "b", "choices": [{"type": "Q8_0"}]}]}`,
}

func TestRead(t *testing.T) {
	for name, text := range plans {
		s := planned()
		if _, err := s.Read([]byte(text)); (err == nil) != (name == "good") {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.weights[0].choices[0].kl; got != 0 && name != "good" {
			t.Errorf("%s: KL %v was taken", name, got)
		}
	}
}

var update = flag.Bool("update", false, "write testdata/fuzz again")

// TestCorpus keeps FuzzRead's committed corpus; -update writes it.
func TestCorpus(t *testing.T) {
	seeds := map[string][]byte{}
	for name, text := range plans {
		seeds[name] = []byte(text)
	}
	golden.Corpus(t, "FuzzRead", seeds, *update)
}

// FuzzRead: no bytes make Read panic, or a choice worse than any finite one.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		s := planned()
		if _, err := s.Read(data); err != nil {
			return
		}
		if kl := s.expected(s.fill(60)); !(kl >= 0 && kl <= 2*math.MaxFloat32) {
			t.Errorf("KL %v", kl)
		}
	})
}
