// Package bench measures the speed of a model, with the tests of llama-bench: pp computes a prompt at once,
// tg computes token after token, each after a context of some depth. The files in reading order:
//
//	bench.go     the measurements, and their report
//	format.go    the report as CSV and Markdown
//	runner.go tests of an engine, in turns with a peer
//	arrive.go a prompt arriving while other sequences decode
//	quantize.go  quantizing, by processes
//	peer.go      llama.cpp's programs (group_*.go: their processes)
//	cost.go the least reads and operations of a model
//	limits.go the most reads and operations of the machine
//	profile.go   where the time of a step goes
//	system.go    memory and processors of the process
package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
)

// Options holds the tests to measure. Each combination of the lists is a test.
type Options struct {
	Prompts, Tokens, Depths, Threads, Parallel []int
	Prompt                                     *Prompt // text of Prompts and Depths; nil is random tokens
	// lengths of prompts arriving while the parallel sequences decode
	Arrive   []int
	Repeat   int   // runs of a test, after a run to warm up
	Budget   int64 // most bytes of keys and values; 0 is enough for all sequences
	Numerics numerics.Numerics
	NoFuse   []string        // fusions to do without
	Adapters []model.Adapter // of all sequences
	NoFit    bool            // no limit by the machine's memory
	Limits   bool            // measure the machine's, too
	Free     int64           // free memory, a quarter for Limits; 0 is unknown
	// run each test once more, and tell where its time goes
	Profile  bool
	Peer     *Peer             // measured in turns; may be nil
	Progress func(test string) // may be nil
}

// Prompt is the beginning of all sequences. Tests of decoding follow the prompt.
type Prompt struct {
	Template string `json:"template"` // template applied: none, model, or a file's name
	IDs      []int  `json:"ids"`
}

// Result holds the measurements of a test.
type Result struct {
	Test     string `json:"test"` // as pp512 or tg64 @ d4096
	Threads  int    `json:"n_threads"`
	Prompt   int    `json:"n_prompt"`
	Tokens   int    `json:"n_gen"`
	Depth    int    `json:"n_depth"`
	Parallel int    `json:"n_parallel"`
	// sequences within Options.Budget at a time, if fewer than Parallel
	Holds   int       `json:"n_held,omitempty"`
	Samples []float64 `json:"samples_ts"` // tokens of all sequences for each second, a run each
	Median  float64   `json:"median_ts"`
	Stddev  float64   `json:"stddev_ts"`
	GBs     float64   `json:"weights_gb_s,omitempty"` // read in decode; 0 for several sequences
	Bound   string    `json:"bound,omitempty"`        // nearest limit: memory or compute
	Share   float64   `json:"limit_share,omitempty"`  // median of the runs' shares of the limit
	// most processors of other programs during a run; 0 if unknown
	Others    float64          `json:"others_processors"`
	Peer      []float64        `json:"peer_samples_ts,omitempty"`
	PeerRate  float64          `json:"peer_median_ts,omitempty"`
	PeerShare float64          `json:"peer_limit_share,omitempty"`
	Ratio     *Ratio           `json:"ratio,omitempty"`   // to the peer
	Arrival   *Arrival         `json:"arrival,omitempty"` // of a prompt beside decoding sequences
	Step      *Step            `json:"step,omitempty"`    // where a GPU computes
	Scaling   float64          `json:"scaling,omitempty"` // median, relative to the first number of threads
	Profile   *backend.Profile `json:"profile,omitempty"`
}

// name is the test's name.
func (t *Result) name() string {
	return fmt.Sprintf("%s, threads %d, parallel %d", t.Test, t.Threads, t.Parallel)
}

// Step holds the average costs of a step: a token of decoding, or a chunk of a prompt.
type Step struct {
	Dispatches float64 `json:"dispatches"`
	Device     float64 `json:"device_s"`
	Host       float64 `json:"host_s"`     // the rest, while the device waits
	Read       float64 `json:"read_share"` // of the limit, in decode; 0 for several sequences
}

// Load holds the costs before a model runs, with the page cache as found.
type Load struct {
	Threads int     `json:"n_threads"`
	Seconds float64 `json:"load_s"`
	First   float64 `json:"first_token_s"` // loading included, after a prompt of a single token

	// Seconds of processes loading a file from the page cache and computing a token: of this program, and of
	// the peer.
	Process []float64 `json:"process_s,omitempty"`
	Peer    []float64 `json:"peer_process_s,omitempty"`
	Ratio   *Ratio    `json:"ratio,omitempty"`
}

// Adapter describes the adapter of all sequences.
type Adapter struct {
	Path  string  `json:"path"`
	Scale float64 `json:"scale"`
}

// Report holds all measurements.
type Report struct {
	Model    string        `json:"model_filename"`
	Arch     string        `json:"model_type"`
	Size     int64         `json:"model_size"`
	Params   int64         `json:"model_n_params"`
	Backend  string        `json:"backends"`
	PeerName string        `json:"peer,omitempty"`
	Adapters []Adapter     `json:"adapters,omitempty"`
	*Prompt                // nil is random tokens
	Hashes   *model.Hashes `json:"hashes,omitempty"` // of the files and the program, if asked for
	Loads    []Load        `json:"loads"`
	Limits   []Limit       `json:"limits,omitempty"`
	Results  []Result      `json:"results"`
	Memory
}

// Run loads and measures the model with open, once for each number of threads. An error, such as ctx's, comes
// with the results so far.
func Run(ctx context.Context, open func() (*checkpoint.Checkpoint, error), o Options) (r *Report, err error) {
	r = &Report{Prompt: o.Prompt, Loads: []Load{}, Results: []Result{}}
	for _, a := range o.Adapters {
		r.Adapters = append(r.Adapters, Adapter{a.Path, a.By})
	}
	for _, threads := range o.Threads {
		if err = r.measure(ctx, open, threads, o); err != nil {
			break
		}
		debug.FreeOSMemory() // an engine's garbage is no memory of the next engine
	}
	return r, err
}

// compile makes the engine of sequences of so many tokens.
func (o *Options) compile(ctx context.Context, c *checkpoint.Checkpoint, g *graph.Graph, b backend.Backend,
	context int) (*engine.Engine, error) {
	blend, err := model.Blend(ctx, c, g, model.Options{Numerics: o.Numerics, NoFit: o.NoFit, Adapters: o.Adapters})
	if err != nil {
		return nil, err
	}
	return model.Compile(ctx, g, b, engine.Options{Context: context, Budget: o.budget(), Adapters: blend})
}

func (r *Report) measure(ctx context.Context, open func() (*checkpoint.Checkpoint, error), threads int,
	o Options) error {
	start := time.Now()
	c, err := open()
	if err != nil {
		return err
	}
	defer c.Close()
	longest, all := o.lengths()
	g, _, err := model.Graph(ctx, c, longest)
	if err != nil {
		return err
	}
	if !o.NoFit {
		if err := model.Fits(c, g, o.Numerics, threads, all, o.Budget); err != nil {
			return err
		}
	}
	cost := costOf(g, o.Numerics)
	var l *limits
	if o.Limits {
		before := time.Now()
		if l, err = newLimits(ctx, cost.all, o.Free); err != nil {
			return err
		}
		defer l.memory.Close()
		start = start.Add(time.Since(before)) // no part of loading
	}
	b, err := o.Numerics.Backend(threads, o.NoFuse...)
	if err != nil {
		return err
	}
	defer b.Close()
	e, err := o.compile(ctx, c, g, b, longest)
	if err != nil {
		return err
	}
	defer e.Close()
	r.describe(c)
	metered, _ := b.(backend.Metered)
	profiled, _ := b.(backend.Profiled)
	m := runner{metered: metered, profiled: profiled, engine: e, file: c.Path,
		tokens: o.Prompt.tokens(longest, e.VocabSize()), cost: cost, threads: threads, o: o, limits: l,
		limit: Limit{Threads: threads}}
	loaded := time.Since(start).Seconds()
	if err := m.computeFirst(ctx); err != nil {
		return err
	}
	load := Load{Threads: threads, Seconds: loaded, First: time.Since(start).Seconds()}
	if o.Peer != nil {
		if r.PeerName, err = m.processes(ctx, &load); err != nil {
			return err
		}
	}
	r.Loads = append(r.Loads, load)
	err = m.tests(ctx, r.add)
	if len(m.limit.Read) > 0 {
		r.Limits = append(r.Limits, m.limit)
	}
	r.Memory = memory(b, e.CacheBytes(), l.bytes()) // before the model is unmapped
	return err
}

// lengths returns the tokens of the longest sequence, and of all sequences at a time at the greatest length.
func (o *Options) lengths() (longest, all int) {
	depth, together := slices.Max(o.Depths), max(maximum(o.Parallel), 1)
	longest = depth + max(maximum(o.Prompts), o.Prompt.length()+maximum(o.Tokens), 1)
	// a step has at least a token of the prompt, and a token of each decoding sequence
	if late := maximum(o.Arrive); late > 0 {
		longest, together = max(longest, depth+late+2*settled), together+1
	}
	return longest, longest * together
}

// budget is the bound on keys and values.
func (o *Options) budget() int64 { return cmp.Or(o.Budget, math.MaxInt64) }

// add adds a result.
func (r *Report) add(t Result) {
	t.Scaling = r.scaling(&t)
	r.Results = append(r.Results, t)
}

// scaling returns the speed of t relative to the test with the first number of threads; 0 without such a test
// before t.
func (r *Report) scaling(t *Result) float64 {
	for _, first := range r.Results {
		if first.Test == t.Test && first.Parallel == t.Parallel && first.Threads != t.Threads {
			return t.Median / first.Median
		}
	}
	return 0
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

// length is the number of p's ids; a nil p has none.
func (p *Prompt) length() int {
	if p == nil {
		return 0
	}
	return len(p.IDs)
}

// tokens returns a fixed random text, beginning with p's ids.
func (p *Prompt) tokens(n, vocab int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]int32, n)
	for i := range all {
		if all[i] = random.Int32N(int32(vocab)); i < p.length() {
			all[i] = int32(p.IDs[i])
		}
	}
	return all
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
