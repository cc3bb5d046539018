// Package engine turns requests into steps of a compiled graph: it cuts
// prompts into pieces, keeps the sequences' pages, and joins the tokens of several
// requests into one step.
//
// An engine has one goroutine, which begins with the first request and ends with Close.
// A request queues its tokens and sleeps until they are computed. Before each step the
// goroutine chooses whose tokens are its rows (schedule.go), and computes it (step.go):
//
//   - A step has at most Options.Chunk rows. Sequences that decode have theirs first, a row
//     each; prompts share the rest, cut anywhere: bits do not depend on it. Where sequences
//     decode a step is bounded in work, too (load.go): it is the gap between two of their tokens.
//   - Keys and values take at most Options.Budget bytes. Who finds no room waits; what a
//     sequence of a lower rank has is given back, and computed again when it is its turn.
//   - Requests of a higher priority go first, of callers with different keys the one whose
//     key has had the fewest tokens, of one key the first that came.
//   - A request whose context ends leaves the queue at once, or after the step that it is in.
//
// A panic in a step, of the backend for one, is an error of that step's requests. A
// tap that panics, or ends its goroutine, does so to the caller of the step's first
// request; the step's other requests have an error. Either way the engine goes on.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/sysinfo"
)

// ErrFull is wrapped by the error of a sequence that has no room left; ErrBudget is one where
// the context has room, but Options.Budget has not.
var (
	ErrFull   = kv.ErrFull
	ErrBudget = kv.ErrBudget
)

// ErrClosed is the error of a request to an engine, or a sequence, that is closed.
var ErrClosed = errors.New("the model is closed")

// ErrBusy is the error of a request to a sequence that serves another one.
var ErrBusy = errors.New("the sequence is in use by another request")

// DefaultChunk is the number of rows of a step if Options and the backend say nothing.
const DefaultChunk = 256

// outputBytes bounds the logits of a step. A row of a vocabulary of 262,144 is a megabyte.
const outputBytes = 64 << 20

// Options size an engine. The zero value is usable.
type Options struct {
	Context  int   // positions of a sequence; 0 is 4096
	Chunk    int   // most rows of a step; 0 is what the backend says, or DefaultChunk
	Tokens   int   // ids below it are tokens, and may be chosen; 0 is all rows of the logits
	Parallel int   // most sequences whose requests run at a time, others wait; 0 is as many as Budget holds
	Memory   int64 // most bytes of the machine's memory to take, weights included; 0 is the free memory
	Budget   int64 // most bytes of keys and values; 0 is half of the free memory, or one sequence if that is more; on a GPU, whose memory nobody tells, at most four sequences
	Private  bool  // sequences find nothing of each other, and leave nothing: nobody would ask for it
	Want     func(*graph.Node) bool
	Adapters *backend.Blend         // of sequences that have chosen none
	Keep     func(*graph.Node) bool // nodes that Sequence.Values may ask for
	Tap      backend.Tap            // sees the wanted nodes of every step
	Expert   backend.Expert         // sees the experts of every step
	Hooks    bool                   // sequences may have hooks (Sequence.Hook); without Tap and Want
	With     *Engine                // of the same graph and backend, whose pool of keys and values this one shares: Context, Chunk, Memory and Budget are that one's

	Progress func(done, total int64) error // as backend.Options has it
}

// Engine runs one graph on one backend. It is safe for concurrent use.
type Engine struct {
	graph    *graph.Graph
	plan     backend.Executable
	cache    backend.Cache
	pool     *kv.Pool
	chunk    int // most rows of a step
	tokens   int // Options.Tokens
	outputs  int // most rows of a step whose logits are wanted
	parallel int
	budget   int64 // Options.Budget
	ids      int   // token ids that the graph can embed
	hidden   int   // elements of a row of embeddings; 0 where the graph has none
	kept     backend.Kept
	private  bool                 // sequences share nothing
	hooks    bool                 // Options.Hooks
	after    map[*graph.Node]bool // of a graph with hooks: the nodes behind Rows
	load     load
	vocab    int         // of the logits
	tap      backend.Tap // nil, or watch
	ahead    *ahead      // nil where tokens are chosen here, by their logits
	stateful bool        // sequences have states, which cannot be cut back
	turning  bool        // positions have three parts (graph.RoPEAttr.Sections)
	entire   bool        // a prompt is one step, never cut and never continued
	blend    *backend.Blend

	// Of the engine's goroutine.
	see   taps
	next  backend.Step
	parts [][3]int32 // of next
	batch []*work
	timer *time.Timer
	wake  chan struct{} // told when there is something to do, or to wait for no longer

	together *together // the context of a step of several requests, kept for the next one

	closing sync.Mutex // held while Close frees the cache
	group   *group     // the engines of the pool
	owns    bool       // the pool and the cache are of this engine

	mu       sync.Mutex  // guards what follows, and what Sequence says
	queue    []*work     // in no order
	live     []*Sequence // with pages, or running
	accounts map[string]*account
	arrivals int
	steps    int           // begun so far
	ended    int           // works, so far
	away     int           // sequences of the last step that want no other yet
	until    time.Time     // when the next step ceases to wait for them
	stuck    bool          // there is work, but none that may run yet
	closed   bool          //
	over     chan struct{} // closed when the goroutine ends; nil before it begins
	hold     func(rows int) int
	wait     func(took time.Duration) time.Duration // wait, but in tests
}

// New compiles g for b.
func New(g *graph.Graph, b backend.Backend, o Options) (*Engine, error) {
	if w := o.With; w != nil {
		o.Context, o.Chunk = w.Context(), w.chunk
	}
	if o.Context <= 0 {
		o.Context = 4096
	}
	if o.Chunk <= 0 {
		o.Chunk = DefaultChunk
		if w, ok := b.(backend.Wide); ok {
			o.Chunk = w.Rows()
		}
	}
	e := &Engine{graph: g, chunk: o.Chunk, tokens: o.Tokens, parallel: o.Parallel, ids: backend.Vocab(g), vocab: g.Result().Shape.Size(),
		blend: o.Adapters, wake: make(chan struct{}, 1), accounts: map[string]*account{}, wait: wait}
	e.outputs = min(o.Chunk, max(1, outputBytes/(4*e.vocab)))
	if n := backend.Input(g); n != nil {
		e.hidden = n.Shape.Size()
	}
	e.kept, e.load = backend.NewKept(g, o.Keep), loadOf(g)
	if e.hooks = o.Hooks; o.Hooks && (o.Tap != nil || o.Want != nil) {
		return nil, errHooks
	}
	e.watch(&o)
	var err error
	e.plan, err = b.Compile(g, backend.Options{Rows: o.Chunk, Outputs: e.outputs, Tokens: o.Tokens, Want: o.Want, Keep: o.Keep, Expert: o.Expert, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	e.private = private(g, o)
	e.stateful, e.entire, e.turning = len(g.States()) > 0, entire(g), turning(g)
	e.ahead = newAhead(e.plan, o)
	if w := o.With; w != nil {
		e.group, e.pool, e.cache, e.budget = w.group, w.pool, w.cache, w.budget
		e.group.add(e)
		return e, nil
	}
	e.group, e.owns = &group{engines: []*Engine{e}}, true
	e.pool = kv.NewPool(kv.Options{Classes: backend.Classes(g), Context: o.Context, Chunk: o.Chunk})
	if e.cache, err = b.NewCache(g, e.pool); err != nil {
		return nil, err
	}
	if err := e.bound(o.Budget, o.Memory, b); err != nil {
		return nil, errors.Join(err, e.cache.Close())
	}
	return e, nil
}

// few is how many sequences of the full context have room where keys and values lie in
// memory that nobody tells the size of: a GPU's. What sequences leave would fill it.
const few = 4

// bound sets the bound on keys and values: budget, or the default, which is another where
// they lie elsewhere than in the machine's memory, of which there are memory bytes if that is not 0.
func (e *Engine) bound(budget, memory int64, b backend.Backend) error {
	bytes := make([]int64, len(e.pool.Classes()))
	for c := range bytes {
		bytes[c] = e.cache.PageBytes(c)
	}
	free := sysinfo.Memory()
	if memory > 0 && (free == 0 || memory < free) {
		free = memory
	}
	if budget <= 0 && free == 0 {
		return nil // nobody knows
	}
	if e.budget = budget; budget > 0 {
		e.pool.Bound(budget, bytes)
	} else {
		e.pool.Bound(1<<62, bytes)
		one := e.pool.BytesOf(e.pool.Context())
		most := max((free-weightBytes(e.graph))/2, one)
		if _, elsewhere := b.(backend.Metered); elsewhere {
			most = min(most, few*one)
		}
		if r, ok := b.(backend.Remote); ok {
			if _, all := r.Memory(); all > 0 {
				most = min(most, max((all-r.Weights(e.graph))/2, one))
			}
		}
		e.pool.Bound(most, bytes)
	}
	if e.pool.Longest() == 0 {
		return fmt.Errorf("%w: the first %d tokens of a sequence need %d bytes, it has %d", ErrBudget, kv.PageSize, e.pool.BytesOf(1), budget)
	}
	return nil
}

// weightBytes is what g's weights take: memory that counts as free while they are pages of
// a file.
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

// Close ends the engine's goroutine and frees the cache. A step under way ends first;
// requests that it does not complete, and queued ones, fail with ErrClosed.
// Inside a tap Close does nothing but return ErrInTap.
func (e *Engine) Close() error {
	if e.InTap() {
		return ErrInTap
	}
	e.mu.Lock()
	e.closed = true
	for _, w := range slices.Clone(e.queue) {
		if w.rows == 0 {
			e.end(w, ErrClosed)
		}
	}
	over := e.over
	e.mu.Unlock()
	e.signal()
	if over != nil {
		<-over
	}
	e.group.remove(e)
	if !e.owns {
		return nil
	}
	e.closing.Lock()
	defer e.closing.Unlock()
	return e.cache.Close()
}

// Context is the number of positions that a sequence may have.
func (e *Engine) Context() int { return e.pool.Context() }

// VocabSize is the number of logits of a row.
func (e *Engine) VocabSize() int { return e.vocab }

// CacheBytes is the memory that keys and values take now.
func (e *Engine) CacheBytes() int64 { return e.cache.Bytes() }

// Stats are counts of an engine's work.
type Stats struct {
	Queued      int   // requests that have tokens to compute, and wait
	Busy        int   // requests that have tokens to compute, running or not
	Running     int   // requests whose tokens are being computed, or chosen
	Steps       int   // begun so far
	Finished    int   // runs of tokens that were computed, or given up, so far
	KVUsed      int64 // bytes of keys and values in use
	KVCached    int64 // bytes of pages that no sequence uses, and the next one may find
	KVBudget    int64 // most of both
	MaxSequence int   // tokens that a sequence may have

	PageSize, Pages int // tokens of a page, and pages that KVBudget has room for, by the first one; 0 without a bound
}

// Stats says what the engine does, and the others of its pool.
func (e *Engine) Stats() Stats {
	s := Stats{MaxSequence: e.pool.Longest()}
	for _, x := range append(e.group.others(e), e) {
		x.count(&s)
	}
	s.KVUsed, s.KVCached, s.KVBudget = e.pool.Usage()
	if one := e.pool.BytesOf(kv.PageSize); one > 0 {
		s.PageSize, s.Pages = kv.PageSize, int(s.KVBudget/one)
	}
	return s
}

// count adds the engine's own work.
func (e *Engine) count(s *Stats) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Busy, s.Steps, s.Finished = s.Busy+len(e.queue), s.Steps+e.steps, s.Finished+e.ended
	for _, x := range e.live {
		if x.runs && !e.idle(x) {
			s.Running++
		}
	}
	for _, w := range e.queue {
		if !w.seq.runs {
			s.Queued++
		}
	}
}

// Holds is how many sequences of n tokens the budget of keys and values has room for.
func (e *Engine) Holds(n int) int { return e.pool.Holds(n) }

// Caller says who asks, and how urgently.
type Caller struct {
	Key      string // callers of different keys have equal shares
	Priority int    // the higher goes first
}

// Sequence is one conversation's tokens and their keys and values. It is not
// safe for concurrent use, and must be closed.
//
// Its keys and values may be given back while another sequence needs the room. Then they
// are computed again with its next tokens: its caller notices nothing but the time.
type Sequence struct {
	e      *Engine
	tokens []int32
	salt   string // see Prefix
	blend  *backend.Blend
	hook   *Hook
	mixed  Mixed  // beside the tokens (Mix)
	rows   string // what tells mixed from others, "" for nothing
	shift  int32  // by how much the positions behind mixed.Parts differ from where a row stands
	closed bool
	row    []float32     // logits that nobody looks at any more: of use for the next ones
	busy   atomic.Bool   // a request uses it
	turn   chan struct{} // told when its work is done
	work   work          // its request

	// Guarded by e.mu.
	caller  Caller
	pages   *kv.Sequence // of the first tokens, which are computed; of all of them unless it was preempted
	arrival int          // when its run of requests began
	step    int          // the last one that it took part in
	away    bool         // it has not come back from that one
	left    bool         // it will not soon
	queued  *account     // of its key, while its work is queued
	runs    bool         // it was admitted
	live    bool         // it is in e.live
	started time.Time    // when the first step of the request began; zero before that
}

// NewSequence is an empty sequence.
func (e *Engine) NewSequence() *Sequence {
	s := &Sequence{e: e, pages: e.pool.NewSequence(), turn: make(chan struct{}, 1)}
	s.pages.Private = e.private
	s.Adapt(e.blend)
	return s
}

// Close returns the sequence's pages.
func (s *Sequence) Close() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.tokens, s.closed = nil, true
	s.e.arrive(s)
	s.e.remove(s)
}

// Len is the number of tokens.
func (s *Sequence) Len() int { return len(s.tokens) }

// As begins a request, and sets who asks.
func (s *Sequence) As(c Caller) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.caller, s.started = c, time.Time{}
}

// Started is when the first step of the request began; zero before that.
func (s *Sequence) Started() time.Time {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.started
}

// Rewind forgets as much of the sequence as it must to become a prefix of
// tokens, and returns its length: a prompt that continues an earlier one is
// computed from there. It may become longer by what other sequences have left (Prefix).
// At least the last token is always left to compute.
func (s *Sequence) Rewind(tokens []int32) int {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.rewind(tokens, Mixed{}, "")
}

// rewind is Rewind for a prompt with m, whose name is rows. The caller holds e.mu.
func (s *Sequence) rewind(tokens []int32, m Mixed, rows string) int {
	n, same := 0, rows == s.rows
	s.mixed, s.rows, s.shift = m, rows, int32(m.behind()-len(m.Parts))
	for same && !s.e.entire && n < min(len(s.tokens), s.pages.Len()) && n < len(tokens)-1 && s.tokens[n] == tokens[n] {
		n++
	}
	s.tokens = s.tokens[:s.pages.Truncate(n)]
	return s.adopt(tokens)
}

// cut forgets all but the first n tokens, which are no further back than steps ahead are.
func (s *Sequence) cut(n int) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if n < len(s.tokens) {
		s.tokens = s.tokens[:n]
		s.pages.Truncate(min(n, s.pages.Len()))
	}
}

// Feed appends tokens and returns the logits after each of the last wanted ones
// of them, in order. Nothing is computed if one is no token or they do not all
// fit the context, and the budget. After another error the sequence holds what the steps
// before it computed: Len tells, and Rewind goes on from there.
func (s *Sequence) Feed(ctx context.Context, tokens []int32, wanted int) (logits [][]float32, err error) {
	w, err := s.feed(ctx, tokens, wanted, choice{})
	if err != nil {
		return nil, err
	}
	return w.logits, nil
}

// Reuse takes a row of logits that Feed returned, which nobody looks at any more, for
// the next ones: else each token leaves half a megabyte to Go's collector.
func (s *Sequence) Reuse(row []float32) { s.row = row }

// feed is Feed, or chooses what follows. What it returns is valid until the next one.
func (s *Sequence) feed(ctx context.Context, tokens []int32, wanted int, c choice) (*work, error) {
	if !s.busy.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	defer s.busy.Store(false)
	w := &s.work
	*w = work{seq: s, ctx: ctx, tokens: tokens, from: len(s.tokens), wanted: wanted, choice: c, found: w.found[:0], ahead: w.ahead[:0]}
	switch err := s.open(); {
	case err != nil:
		return nil, err
	case ctx == nil:
		return nil, errors.New("the context is nil")
	case s.e.InTap():
		return nil, ErrInTap
	}
	for _, id := range tokens {
		if id < 0 || int(id) >= s.e.ids {
			return nil, fmt.Errorf("token id %d, the vocabulary has %d", id, s.e.ids)
		}
	}
	have, all, p := len(s.tokens), len(s.tokens)+len(tokens), s.e.pool
	if room := p.Context(); all > room {
		return nil, fmt.Errorf("%w: %d tokens and %d more, the context holds %d", ErrFull, have, len(tokens), room)
	}
	if room := p.Longest(); all > room {
		return nil, fmt.Errorf("%w: %d tokens and %d more, its %d bytes hold %d", ErrBudget, have, len(tokens), s.e.budget, room)
	}
	if len(tokens) == 0 {
		return w, nil
	}
	if e := s.e; e.entire && (have > 0 || len(tokens) > e.chunk || wanted > e.outputs) {
		return nil, fmt.Errorf("%d tokens behind %d, and logits of %d: the model sees later tokens or pools rows, so a prompt is one step of at most %d tokens and %d logits",
			len(tokens), have, wanted, e.chunk, e.outputs)
	}
	w.choice.steps = min(c.steps, p.Longest()-all+1)
	return w, s.e.do(w)
}

// open is an error if s is closed.
func (s *Sequence) open() error {
	if s.closed {
		return ErrClosed
	}
	return nil
}

// work is the tokens that a sequence is given next, and the outputs wanted of them.
type work struct {
	ctx    context.Context
	ended  <-chan struct{} // told when ctx has
	seq    *Sequence
	tokens []int32
	from   int // position of the first of them
	wanted int // last ones whose logits are wanted
	choice choice

	logits [][]float32
	found  [][]sample.Likely // instead of logits, where it wants them: of each step
	ahead  []int32           // tokens that the steps after the first one had

	// Guarded by e.mu.
	charged bool // to its key's account
	left    bool // its caller waits for the end of the step alone
	rows    int  // of the step that runs; 0 if it takes no part
	at      int  // position of the first of them
	outputs int  // how many of them, the last ones, have logits
	done    bool // it is not queued any more
	err     error
	thrown  *thrown // what its caller is to panic with
}

// all is the sequence's length once w is done.
func (w *work) all() int { return w.from + len(w.tokens) }

// token is the one at a position.
func (w *work) token(at int) int32 {
	if at < w.from {
		return w.seq.tokens[at]
	}
	return w.tokens[at-w.from]
}
