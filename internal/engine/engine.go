// Package engine turns requests into steps of a compiled graph: it cuts prompts into pieces, keeps the sequences'
// pages, and joins the tokens of several requests into one step.
//
// An engine has one graph, one pool of keys and values, and one goroutine, which begins with the first request and ends
// with Close. A request queues its tokens and sleeps until all are computed. Before each step the goroutine asks the
// schedule for the step's rows (package schedule), and then computes the step.
//
// An engine may have several plans: the graph compiled to show its values, to keep the values of some nodes, or for
// sequences that share nothing. The rows of a step are of one plan. All plans share the pool and the schedule.
//
// A request with an ended context leaves the queue at once, or after its running step. A panic in a step, of the
// backend for example, is an error of the step's requests. A tap that panics, or ends its goroutine, does so to the
// caller of the step's first request; the step's other requests have an error. Either way the engine goes on.
//
// Files: generate.go (tokens as text), carry.go (states in files), sequence.go (Sequence), loop.go (the goroutine),
// step.go (a step), draft.go (tokens verified several in a step), head.go (drafts by the model's own head), ahead.go
// (tokens chosen by the backend), mix.go (rows of embeddings), engine.go (Engine, Plan), keyring.go (keys of pictures'
// rows), taps.go (taps and hooks).
package engine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine/schedule"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/sysinfo"
)

// Errors of requests.
var (
	ErrFull   = kv.ErrFull   // the sequence has no room left
	ErrBudget = kv.ErrBudget // is an ErrFull of Options.Budget, where the context has room
	ErrClosed = errors.New("the model is closed")
	ErrBusy   = errors.New("the sequence is in use by another request")
)

// DefaultChunk is the number of rows of a step if Options and the backend say nothing.
const DefaultChunk = 256

// outputBytes bounds the logits of a step. A row of a vocabulary of 262,144 is a megabyte. A browser counts memory that
// nothing has touched.
var outputBytes = map[bool]int{true: 4 << 20, false: 64 << 20}[runtime.GOOS == "js"]

// Options size an engine, and say what its first plan shows. The zero value is usable.
type Options struct {
	Context  int   // positions of a sequence; 0 is 4096
	Chunk    int   // maximum rows of a step; 0 is the backend's number, or DefaultChunk
	Group    int   // maximum rows of an image, where known, for graphs with groups: Chunk 0 has room for them
	Tokens   int   // ids below are tokens, and may be chosen; 0 is all rows of the logits
	Parallel int   // maximum of sequences with running requests, others wait; 0 is as many as Budget holds
	Memory   int64 // maximum bytes of the machine's memory to take, with the weights; 0 is the free memory
	// maximum bytes of keys and values; 0 is half of the free memory, or one sequence if more
	Budget   int64
	Adapters *backend.Blend // of sequences without a choice of their own
	Head     *graph.Graph   // of the model's head, fed by the engine's graph (arch.LoadHead); nil for none

	// The fields of a plan, also read by Engine.Plan.

	// sequences find nothing of each other, and leave nothing
	Private  bool
	Groups   bool                          // rows tell their image's, though the graph does not ask
	Want     func(*graph.Node) bool        // nodes seen by Tap
	Keep     func(*graph.Node) bool        // nodes open to Sequence.Values
	Tap      backend.Tap                   // sees the wanted nodes of every step
	Expert   backend.Expert                // sees the experts of every step
	Hooks    bool                          // sequences may have hooks (Sequence.Hook); without Tap and Want
	Progress func(done, total int64) error // see backend.Options
}

// Engine runs one graph on one backend. An Engine is safe for concurrent use.
type Engine struct {
	facts
	backend backend.Backend
	pool    *kv.Pool
	cache   backend.Cache
	budget  int64 // Options.Budget
	blend   *backend.Blend
	plan    *Plan // of New's options

	computing sync.Mutex // held while a step is chosen and computed, or a state is carried; before mu
	closing   sync.Mutex // held while Close frees the cache
	step      step       // the running step

	mu       sync.Mutex // guards the rest, and Sequence.seat
	schedule schedule.Schedule
	plans    []*Plan
	closed   bool
	asleep   bool          // the goroutine waits for any change
	over     chan struct{} // closed at the goroutine's end; nil before its beginning
	bell     bell
	hold     func(rows int) int                               // rows of the next step; nil outside of tests
	wait     func(took time.Duration) time.Duration           // wait; another function in tests
	pace     func(rows int, took time.Duration) time.Duration // of a step: took, except in tests
}

// facts are an engine's knowledge of its graph.
type facts struct {
	graph   *graph.Graph
	chunk   int   // maximum rows of a step
	tokens  int   // Options.Tokens
	ids     int   // token ids embedded by the graph
	hidden  int   // elements of a row of embeddings; 0 where the graph has none
	stacked int   // elements that may follow, for later layers
	grouped bool  // rows of an image see each other
	vocab   int   // of the logits
	turning bool  // positions have three parts (graph.RoPEAttr.Sections)
	entire  bool  // a prompt is one step, never cut and never continued
	head    *head // for drafts; nil for none
	ring    *keyring
}

// New compiles g for b.
func New(g *graph.Graph, b backend.Backend, o Options) (*Engine, error) {
	if o.Context <= 0 {
		o.Context = 4096
	}
	if o.Chunk <= 0 {
		o.Chunk = DefaultChunk
		if w, ok := b.(backend.Wide); ok {
			o.Chunk = w.Rows()
		}
		if g.Grouped() || o.Groups { // an image is in one step
			o.Chunk = max(o.Chunk, 2*DefaultChunk, min(o.Group, o.Context))
		}
	}
	e := &Engine{backend: b, blend: o.Adapters, bell: bell{make(chan struct{}, 1), time.NewTimer(0)}, wait: wait,
		pace: func(_ int, took time.Duration) time.Duration { return took }}
	e.facts = facts{graph: g, chunk: o.Chunk, tokens: o.Tokens, ids: backend.Vocab(g), vocab: g.Result().Shape.Size(),
		entire: isEntire(g), turning: turns(g), stacked: g.Stacked(), ring: &keyring{},
		grouped: g.Grouped() || o.Groups}
	if n := backend.Input(g); n != nil {
		e.hidden = n.Shape.Size()
	}
	e.schedule.Options = schedule.Options{Rows: o.Chunk, Outputs: min(o.Chunk, max(1, outputBytes/(4*e.vocab))),
		Parallel: o.Parallel, Entire: e.entire, Load: schedule.NewLoad(g)}
	var err error
	if e.head, err = newHead(e, o.Head); err != nil {
		return nil, err
	}
	if e.plan, err = e.Plan(o); err != nil {
		return nil, err
	}
	e.pool = kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: o.Context, Chunk: o.Chunk})
	if e.cache, err = b.NewCache(g, e.pool); err != nil {
		return nil, err
	}
	if err := e.bound(o.Budget, o.Memory); err != nil {
		return nil, errors.Join(err, e.cache.Close())
	}
	return e, nil
}

// Turns reports whether positions have three parts.
func (f *facts) Turns() bool { return f.turning }

// isEntire reports whether all tokens of a sequence must be in one step: rows of g see later rows, or are pooled.
func isEntire(g *graph.Graph) bool {
	pools := func(n *graph.Node) bool { return n.Op == graph.Pool }
	return g.Bidirectional() || slices.ContainsFunc(g.Nodes, pools)
}

// fewSequences is the number of sequences of the full context with room by default in a memory of unknown size: a
// GPU's. Pages left by sequences would otherwise fill the memory.
const fewSequences = 4

// bound sets the bound on keys and values: budget, or the default, which differs for a memory other than the machine's.
// The machine has memory bytes for the engine if memory is not 0.
func (e *Engine) bound(budget, memory int64) error {
	bytes := make([]int64, len(e.pool.Classes()))
	for c := range bytes {
		bytes[c] = e.cache.PageBytes(c)
	}
	free := sysinfo.Memory()
	if memory > 0 && (free == 0 || memory < free) {
		free = memory
	}
	if budget <= 0 && free == 0 {
		return nil // the system tells nothing
	}
	if e.budget = budget; budget > 0 {
		e.pool.Bound(budget, bytes)
	} else {
		e.pool.Bound(1<<62, bytes)
		one := e.pool.BytesOf(e.pool.Context())
		most := max((free-weightBytes(e.graph))/2, one)
		if _, elsewhere := e.backend.(backend.Metered); elsewhere {
			most = min(most, fewSequences*one)
		}
		if r, ok := e.backend.(backend.Remote); ok {
			if _, all := r.Memory(); all > 0 {
				most = min(most, max((all-r.Weights(e.graph))/2, one))
			}
		}
		e.pool.Bound(most, bytes)
	}
	if e.pool.Longest() == 0 {
		return fmt.Errorf("%w: the first %d tokens of a sequence need %d bytes, it has %d",
			ErrBudget, kv.PageSize, e.pool.BytesOf(1), budget)
	}
	return nil
}

// weightBytes returns the size of g's weights: memory counted as free while still pages of a file.
func weightBytes(g *graph.Graph) (n int64) {
	seen := map[*graph.Weight]bool{}
	for _, node := range g.Nodes {
		for _, w := range node.W {
			if w != nil && !seen[w] {
				seen[w] = true
				n += int64(w.Size())
			}
		}
	}
	return n
}

// Context returns the maximum of positions in a sequence.
func (e *Engine) Context() int { return e.pool.Context() }

// VocabSize returns the number of logits of a row.
func (e *Engine) VocabSize() int { return e.vocab }

// CacheBytes returns the memory of keys and values now.
func (e *Engine) CacheBytes() int64 { return e.cache.Bytes() }

// Holds returns how many sequences of n tokens the budget of keys and values has room for.
func (e *Engine) Holds(n int) int { return e.pool.Holds(n) }

// Chooses reports whether the backend chooses tokens, or finds the likeliest, itself.
func (e *Engine) Chooses() bool { return e.plan.ahead != nil }

// Stats are counts of an engine's work.
type Stats struct {
	Queued      int   // requests with tokens to compute, waiting
	Busy        int   // requests with tokens to compute, running or not
	Running     int   // requests with tokens being computed, or chosen
	Steps       int   // begun so far
	Finished    int   // runs of tokens computed, or given up, so far
	KVUsed      int64 // bytes of keys and values in use
	KVCached    int64 // bytes of pages without a sequence, open to the next
	KVBudget    int64 // maximum of both
	MaxSequence int   // maximum of tokens in a sequence

	PageSize, Pages int // tokens of a page, and pages within KVBudget, by the first page; 0 without a bound
}

// Stats returns the engine's numbers now.
func (e *Engine) Stats() Stats {
	s := Stats{MaxSequence: e.pool.Longest()}
	s.KVUsed, s.KVCached, s.KVBudget = e.pool.Usage()
	if one := e.pool.BytesOf(kv.PageSize); one > 0 {
		s.PageSize, s.Pages = kv.PageSize, int(s.KVBudget/one)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Busy, s.Steps, s.Finished = len(e.schedule.Works()), e.schedule.Steps, e.schedule.Ended
	s.Queued, s.Running = e.schedule.Count()
	return s
}

// Plan is a compiled form of the engine's graph. Its sequences are computed with the plan.
type Plan struct {
	e       *Engine
	run     backend.Executable
	kept    backend.Kept
	private bool                 // sequences share nothing
	tap     backend.Tap          // nil, or seen
	taps    bool                 // somebody sees values
	hooks   bool                 // Options.Hooks
	after   map[*graph.Node]bool // of a plan with hooks: the nodes behind Rows
	ahead   *ahead               // nil where tokens are chosen here, by their logits
	turn    *schedule.Plan
	until   time.Time // when its next step ceases to wait for the sequences of its last step; guarded by Engine.mu
}

// Plan compiles the engine's graph anew, by the fields of a plan in o. The fields for the size of an engine are New's.
func (e *Engine) Plan(o Options) (*Plan, error) {
	if o.Hooks && (o.Tap != nil || o.Want != nil) {
		return nil, errHooks
	}
	o.Keep = e.head.keep(o.Keep)
	p := &Plan{e: e, kept: backend.NewKept(e.graph, o.Keep), hooks: o.Hooks, tap: e.step.see.watch(o.Tap),
		taps:    o.Tap != nil || o.Expert != nil || o.Hooks,
		private: o.Private || o.Tap != nil || o.Want != nil || o.Expert != nil || o.Hooks || e.entire}
	watched := o.Tap != nil || o.Want != nil
	if o.Hooks {
		o.Want, p.after, watched = func(*graph.Node) bool { return true }, e.graph.Live().After, true
	}
	var err error
	p.run, err = e.backend.Compile(e.graph, backend.Options{Rows: e.chunk, Outputs: e.schedule.Outputs,
		Tokens: e.tokens, Want: o.Want, Keep: o.Keep, Expert: o.Expert, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	if !watched {
		p.ahead = newAhead(p.run)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p.turn = e.schedule.NewPlan()
	if b, ok := e.backend.(backend.Tiled); ok {
		p.turn.Pace.Tile = b.Tile()
	}
	e.plans = append(e.plans, p)
	return p, nil
}

// A step waits for the other sequences of its plan's last step at most a share of the last step's time, and never
// longer than longestWait.
const (
	waitShare   = 8
	longestWait = 10 * time.Millisecond
)

// wait returns the maximum wait for the other sequences of the last step, by the step's time.
func wait(took time.Duration) time.Duration { return min(took/waitShare, longestWait) }

// bell wakes the engine's goroutine where there is something to do, or to wait for no longer.
type bell struct {
	rung  chan struct{}
	timer *time.Timer
}

// ring wakes the goroutine, or keeps the goroutine from sleeping.
func (b *bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// sleep returns after d, or sooner with true if the bell rings.
func (b *bell) sleep(d time.Duration) bool {
	b.timer.Reset(d)
	select {
	case <-b.rung:
		b.timer.Stop()
		return true
	case <-b.timer.C:
		return false
	}
}

// turns reports whether positions of g have three parts.
func turns(g *graph.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool {
		a, ok := n.Attr.(graph.RoPEAttr)
		return ok && a.Sections != [3]int{}
	})
}

// InTap reports whether the caller is a tap of an engine of the same graph.
func (e *Engine) InTap() bool {
	if tapping.steps.Load() == 0 {
		return false
	}
	_, ok := tapping.of.Load(place{goroutine(), e.graph})
	return ok
}
