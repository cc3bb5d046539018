// Package bench measures the speed of a model, with the tests of llama-bench: pp computes a prompt at once,
// tg computes token after token, each after a context of some depth. The files in reading order:
//
//	format.go    the report as CSV and Markdown
//	bench.go     a model loaded and measured
//	quantize.go  quantizing, by processes
//	arrive.go    a prompt arriving while other sequences decode
//	draft.go     answers with drafts and without, in turns
//	runner.go    tests of an engine, in turns with a peer
//	cost.go      the least reads and operations of a model, the most of the machine, and where a step's time goes
//	peer.go      llama.cpp's programs (group_*.go: their processes)
//	system.go    memory and processors of the process
//	report.go    the tests to measure, and their results
package bench

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/model"
)

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
func (o *Options) compile(ctx context.Context, c *checkpoint.Checkpoint, g arch.Graphs, b backend.Backend,
	context int) (*engine.Engine, error) {
	m := model.Options{Numerics: o.Numerics, NoFit: o.NoFit, Adapters: o.Adapters}
	blend, err := model.Blend(ctx, c, g.Model, m)
	if err != nil {
		return nil, err
	}
	own := engine.Options{Context: context, Budget: o.budget(), Adapters: blend, Head: g.Draft}
	return model.Compile(ctx, g.Fed, b, own)
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
	graphs, _, err := model.GraphsFor(ctx, c, longest, o.Head && o.Numerics.GPU == 0)
	if err != nil {
		return err
	}
	g := graphs.Fed
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
	e, err := o.compile(ctx, c, graphs, b, longest)
	if err != nil {
		return err
	}
	defer e.Close()
	r.Model, r.Arch, r.Size, r.Params = c.Path, c.Arch, c.Bytes(), 0
	for _, t := range c.Tensors() {
		r.Params += int64(t.Shape.Size())
	}
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

// add adds a result.
func (r *Report) add(t Result) {
	t.Scaling = r.scaling(&t)
	r.Results = append(r.Results, t)
}

// scaling returns the speed of t relative to the test with the first number of threads; 0 without such a test before t.
func (r *Report) scaling(t *Result) float64 {
	for _, first := range r.Results {
		if first.Test == t.Test && first.Parallel == t.Parallel && first.Threads != t.Threads {
			return t.Median / first.Median
		}
	}
	return 0
}
