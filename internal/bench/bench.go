// Package bench measures how fast a model runs, with the tests of llama-bench:
// pp is a prompt computed at once, tg tokens computed one by one, each behind a
// depth of tokens that are there already.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
)

// Options say what to measure. Each combination of the lists is one test.
type Options struct {
	Prompts, Tokens, Depths, Threads, Parallel []int
	Repeat                                     int // runs of a test, after one to warm up
	Numerics                                   numerics.Numerics
	Progress                                   func(test string) // may be nil
}

// Result is one test.
type Result struct {
	Test     string    `json:"test"` // as pp512 or tg64 @ d4096
	Threads  int       `json:"n_threads"`
	Prompt   int       `json:"n_prompt"`
	Tokens   int       `json:"n_gen"`
	Depth    int       `json:"n_depth"`
	Parallel int       `json:"n_parallel"`
	Samples  []float64 `json:"samples_ts"` // tokens of all sequences for each second, a run each
	Median   float64   `json:"median_ts"`
	Stddev   float64   `json:"stddev_ts"`
	GBs      float64   `json:"weights_gb_s,omitempty"` // read in decode; 0 for several sequences, and for experts
}

// Load is what it takes until a model runs, with the page cache as it was found.
type Load struct {
	Threads int     `json:"n_threads"`
	Seconds float64 `json:"load_s"`
	First   float64 `json:"first_token_s"` // loading included, after a prompt of one token
}

// Report is all that was measured.
type Report struct {
	Model    string   `json:"model_filename"`
	Arch     string   `json:"model_type"`
	Size     int64    `json:"model_size"`
	Params   int64    `json:"model_n_params"`
	Backend  string   `json:"backends"`
	Loads    []Load   `json:"loads"`
	Results  []Result `json:"results"`
	Resident int64    `json:"resident_bytes,omitempty"` // after the tests; 0 where the system does not tell
	Peak     int64    `json:"resident_peak_bytes,omitempty"`
}

// Run loads the model with open, once for each number of threads, and measures
// it. An error, such as ctx's, comes with what was measured before it.
func Run(ctx context.Context, open func() (*checkpoint.Checkpoint, error), o Options) (r *Report, err error) {
	r = &Report{}
	for _, threads := range o.Threads {
		if err = r.measure(ctx, open, threads, o); err != nil {
			break
		}
	}
	return r, err
}

func (r *Report) measure(ctx context.Context, open func() (*checkpoint.Checkpoint, error), threads int, o Options) error {
	start := time.Now()
	c, err := open()
	if err != nil {
		return err
	}
	defer c.Close()
	g, _, err := arch.Load(c)
	if err != nil {
		return err
	}
	b, err := o.Numerics.Backend(threads)
	if err != nil {
		return err
	}
	defer b.Close()
	longest := slices.Max(o.Depths) + max(maximum(o.Prompts), maximum(o.Tokens), 1)
	e, err := engine.New(g, b, engine.Options{Context: longest})
	if err != nil {
		return err
	}
	defer e.Close()
	r.describe(c)
	m := runner{engine: e, tokens: tokens(longest, e.VocabSize()), bytes: decodeBytes(c), threads: threads, o: o}
	loaded := time.Since(start).Seconds()
	if err := m.first(ctx); err != nil {
		return err
	}
	r.Loads = append(r.Loads, Load{threads, loaded, time.Since(start).Seconds()})
	err = m.tests(ctx, func(t Result) { r.Results = append(r.Results, t) })
	r.Resident, r.Peak = resident() // before the model is unmapped
	return err
}

func (r *Report) describe(c *checkpoint.Checkpoint) {
	r.Model, r.Arch, r.Size, r.Params = c.Path, c.Arch, c.Bytes(), 0
	for _, t := range c.Tensors() {
		r.Params += int64(t.Shape.Size())
	}
}

func maximum(x []int) (most int) {
	for _, n := range x {
		most = max(most, n)
	}
	return most
}

// tokens is a fixed random text.
func tokens(n, vocab int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]int32, n)
	for i := range all {
		all[i] = random.Int32N(int32(vocab))
	}
	return all
}

// decodeBytes is the weights that one token reads: all but tables of which it
// reads a row. Experts make it depend on the token: 0.
func decodeBytes(c *checkpoint.Checkpoint) (n int64) {
	_, untied := c.Tensor("output", "lm_head")
	for _, t := range c.Tensors() {
		switch {
		case strings.Contains(t.Name, "_exps") || strings.Contains(t.Name, ".experts."):
			return 0
		case strings.Contains(t.Name, "per_layer_token_embd") || strings.Contains(t.Name, "embed_tokens_per_layer"):
		case untied && (strings.HasPrefix(t.Name, "token_embd") || strings.Contains(t.Name, "embed_tokens")):
		default:
			n += int64(len(t.Data))
		}
	}
	return n
}

// runner measures one engine.
type runner struct {
	engine  *engine.Engine
	tokens  []int32
	bytes   int64
	threads int
	o       Options
}

func (m *runner) first(ctx context.Context) error {
	s := m.engine.NewSequence()
	defer s.Close()
	_, err := s.Feed(ctx, m.tokens[:1], 1)
	return err
}

func (m *runner) tests(ctx context.Context, add func(Result)) error {
	for _, depth := range m.o.Depths {
		for _, parallel := range m.o.Parallel {
			for i, n := range slices.Concat(m.o.Prompts, m.o.Tokens) {
				t := Result{Threads: m.threads, Depth: depth, Parallel: parallel}
				if i < len(m.o.Prompts) {
					t.Prompt, t.Test = n, fmt.Sprintf("pp%d", n)
				} else {
					t.Tokens, t.Test = n, fmt.Sprintf("tg%d", n)
				}
				if depth > 0 {
					t.Test += fmt.Sprintf(" @ d%d", depth)
				}
				if err := m.test(ctx, &t); err != nil {
					return err
				}
				add(t)
			}
		}
	}
	return nil
}

// test runs t, once more than is counted.
func (m *runner) test(ctx context.Context, t *Result) error {
	if m.o.Progress != nil {
		m.o.Progress(fmt.Sprintf("%s, threads %d, parallel %d", t.Test, t.Threads, t.Parallel))
	}
	all := make([]*engine.Sequence, t.Parallel)
	for i := range all {
		all[i] = m.engine.NewSequence()
		defer all[i].Close()
		if t.Depth == 0 {
			continue
		}
		if _, err := all[i].Feed(ctx, m.tokens[:t.Depth], 1); err != nil {
			return err
		}
	}
	for i := range m.o.Repeat + 1 {
		seconds, err := m.time(ctx, all, t)
		if err != nil {
			return err
		}
		if i > 0 {
			t.Samples = append(t.Samples, float64(t.Parallel*(t.Prompt+t.Tokens))/seconds)
		}
	}
	t.Median, t.Stddev = spread(t.Samples)
	if t.Tokens > 0 && t.Parallel == 1 {
		t.GBs = float64(m.bytes) * t.Median / 1e9
	}
	return nil
}

// time is the seconds of one run, of all sequences at once.
func (m *runner) time(ctx context.Context, all []*engine.Sequence, t *Result) (float64, error) {
	for _, s := range all {
		s.Rewind(m.tokens[:t.Depth+1])
	}
	start, errs := time.Now(), make(chan error, len(all))
	for _, s := range all {
		go func() { errs <- m.feed(ctx, s, t) }()
	}
	var err error
	for range all {
		err = cmp.Or(err, <-errs)
	}
	return time.Since(start).Seconds(), err
}

func (m *runner) feed(ctx context.Context, s *engine.Sequence, t *Result) error {
	rest := m.tokens[t.Depth:]
	if t.Prompt > 0 {
		_, err := s.Feed(ctx, rest[:t.Prompt], 1)
		return err
	}
	for i := range t.Tokens {
		if _, err := s.Feed(ctx, rest[i:i+1], 1); err != nil {
			return err
		}
	}
	return nil
}

// spread is the median, and the standard deviation of a sample.
func spread(x []float64) (median, deviation float64) {
	sorted := slices.Sorted(slices.Values(x))
	n, mean := len(sorted), 0.0
	if n == 0 {
		return 0, 0
	}
	for _, v := range sorted {
		mean += v / float64(n)
	}
	for _, v := range sorted {
		deviation += (v - mean) * (v - mean)
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, math.Sqrt(deviation / float64(max(n-1, 1)))
}
