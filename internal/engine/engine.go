// Package engine turns requests into steps of a compiled graph: it cuts
// prompts into chunks, keeps the sequences' pages, and joins what several
// requests want at the same time into one step.
//
// It has no goroutine of its own. A caller that wants rows computed queues
// them; one of the callers leads, and computes everything that is queued.
//
// A panic in a step, of the backend for one, is an error of that step's requests. A
// tap that panics, or ends its goroutine, does so to the caller that leads; the
// step's other requests have an error. Either way the engine goes on.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/sample"
)

// ErrFull is wrapped by the error of a sequence that has no room left.
var ErrFull = kv.ErrFull

// ErrClosed is the error of a request to an engine, or a sequence, that is closed.
var ErrClosed = errors.New("engine: closed")

// DefaultChunk is the number of rows of a step if Options and the backend say nothing.
const DefaultChunk = 256

// outputs is the most rows of a step whose logits are wanted: of a large
// vocabulary each takes a megabyte.
const outputs = 64

// Options size an engine. The zero value is usable.
type Options struct {
	Context   int // positions of a sequence; 0 is 4096
	Chunk     int // most rows of a step; 0 is DefaultChunk
	Sequences int // bound on the memory for pages, in full sequences; 0 is none
	Want      func(*graph.Node) bool
	Tap       backend.Tap    // sees the wanted nodes of every step
	Expert    backend.Expert // sees the experts of every step

	Progress func(done, total int64) error // as backend.Options has it
}

// Engine runs one graph on one backend. It is safe for concurrent use.
type Engine struct {
	graph *graph.Graph
	plan  backend.Executable
	cache backend.Cache
	pool  *kv.Pool
	chunk int
	ids   int         // token ids that the graph can embed
	vocab int         // of the logits
	tap   backend.Tap // nil, or watch
	ahead *ahead      // nil where tokens are chosen here, by their logits

	run  sync.Mutex    // held by the leader while it computes, and by Close
	see  taps          // guarded by run
	back chan struct{} // told when nobody is away any more

	mu      sync.Mutex // guards what follows, and Sequence.step
	pending []*work
	led     bool
	steps   int       // begun so far
	away    int       // sequences of the last step that want no other yet
	until   time.Time // when a leader ceases to wait for them
	closed  bool
}

// A leader waits for the others of the last step at most a share of the time
// that it took, and never longer than longestWait.
const (
	waitShare   = 8
	longestWait = 10 * time.Millisecond
)

// work is one caller's share of a step.
type work struct {
	ctx     context.Context
	seq     *Sequence
	tokens  []int32
	outputs int // last rows whose logits are wanted
	choice  choice
	logits  [][]float32
	found   [][]sample.Likely // instead of logits, where it wants them: of each step
	ahead   []int32           // tokens that the steps after the first one had
	err     error
	done    bool
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
	}
	e := &Engine{graph: g, chunk: o.Chunk, back: make(chan struct{}, 1), ids: backend.Vocab(g), vocab: g.Result().Shape.Size()}
	e.watch(&o)
	var err error
	e.plan, err = b.Compile(g, backend.Options{Rows: o.Chunk, Outputs: min(o.Chunk, outputs), Want: o.Want, Expert: o.Expert, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	e.pool = kv.NewPool(backend.Windows(g), o.Context, o.Chunk, o.Sequences)
	e.ahead = newAhead(e.plan, o)
	if e.cache, err = b.NewCache(g, e.pool); err != nil {
		return nil, err
	}
	return e, nil
}

// Close frees the cache. A step under way ends first; later ones, of requests
// that have begun too, fail with ErrClosed. Inside a tap Close does nothing but return ErrInTap.
func (e *Engine) Close() error {
	if e.InTap() {
		return ErrInTap
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.run.Lock()
	defer e.run.Unlock()
	return e.cache.Close()
}

// Context is the number of positions that a sequence may have.
func (e *Engine) Context() int { return e.pool.Context() }

// VocabSize is the number of logits of a row.
func (e *Engine) VocabSize() int { return e.vocab }

// CacheBytes is the memory that keys and values take now.
func (e *Engine) CacheBytes() int64 { return e.cache.Bytes() }

// Sequence is one conversation's tokens and their keys and values. It is not
// safe for concurrent use, and must be closed.
type Sequence struct {
	e      *Engine
	pages  *kv.Sequence
	tokens []int32
	closed bool
	step   int           // the last one that it took part in, until it wants another
	turn   chan struct{} // told when its work is done, or its caller is to lead
	row    []float32     // logits that nobody looks at any more: of use for the next ones
}

// NewSequence is an empty sequence.
func (e *Engine) NewSequence() *Sequence {
	return &Sequence{e: e, pages: e.pool.NewSequence(), turn: make(chan struct{}, 1)}
}

// Close returns the sequence's pages.
func (s *Sequence) Close() {
	s.pages.Free()
	s.tokens, s.closed = nil, true
	s.e.mu.Lock()
	s.e.arrive(s)
	s.e.mu.Unlock()
}

// Len is the number of tokens.
func (s *Sequence) Len() int { return len(s.tokens) }

// Rewind forgets as much of the sequence as it must to become a prefix of
// tokens, and returns its length: a prompt that continues an earlier one is
// computed from there. At least the last token is always left to compute.
func (s *Sequence) Rewind(tokens []int32) int {
	n := 0
	for n < len(s.tokens) && n < len(tokens)-1 && s.tokens[n] == tokens[n] {
		n++
	}
	if !s.pages.Truncate(n) {
		s.pages.Free()
		n = 0
	}
	s.tokens = s.tokens[:n]
	return n
}

// Feed appends tokens and returns the logits after each of the last wanted ones
// of them, in order. Nothing is computed if one is no token or they do not all
// fit the context. After another error the sequence holds what the steps
// before it computed: Len tells, and Rewind goes on from there.
func (s *Sequence) Feed(ctx context.Context, tokens []int32, wanted int) (logits [][]float32, err error) {
	err = s.feed(ctx, tokens, wanted, choice{}, func(w *work) { logits = append(logits, w.logits...) })
	if err != nil {
		return nil, err
	}
	return logits, nil
}

// Reuse takes a row of logits that Feed returned, which nobody looks at any more, for
// the next ones: else each token leaves half a megabyte to Go's collector.
func (s *Sequence) Reuse(row []float32) { s.row = row }

// feed is Feed, or chooses what follows; it hands over what is done.
func (s *Sequence) feed(ctx context.Context, tokens []int32, wanted int, c choice, done func(*work)) error {
	switch err := s.open(); {
	case err != nil:
		return err
	case ctx == nil:
		return errors.New("engine: nil context")
	case s.e.InTap():
		return ErrInTap
	}
	for _, id := range tokens {
		if id < 0 || int(id) >= s.e.ids {
			return fmt.Errorf("engine: token id %d, the vocabulary has %d", id, s.e.ids)
		}
	}
	if have, room := len(s.tokens), s.e.pool.Context(); have+len(tokens) > room {
		return fmt.Errorf("%w: %d tokens and %d more, the context holds %d", ErrFull, have, len(tokens), room)
	}
	c.steps = min(c.steps, s.e.pool.Context()-len(s.tokens)-len(tokens)+1)
	for i := 0; i < len(tokens); {
		w := s.chunk(tokens, i, wanted)
		w.ctx, w.choice = ctx, c
		if err := s.e.do(w); err != nil {
			return err
		}
		done(w)
		i += len(w.tokens)
	}
	return nil
}

// open is an error if s is closed.
func (s *Sequence) open() error {
	if s.closed {
		return ErrClosed
	}
	return nil
}

// chunk is what of tokens goes into a step from i on.
func (s *Sequence) chunk(tokens []int32, i, wanted int) *work {
	n := min(s.e.chunk, len(tokens)-i)
	first := max(i, len(tokens)-wanted) // whose logits are wanted
	n = min(n, first+outputs-i)
	return &work{seq: s, tokens: tokens[i : i+n], outputs: max(0, i+n-first)}
}

// do queues w and returns when it is computed, by this caller or by another: one
// leads until its own work is done, and the others sleep.
func (e *Engine) do(w *work) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.pending = append(e.pending, w)
	e.arrive(w.seq)
	leads := !e.led
	e.led = true
	e.mu.Unlock()
	if !leads {
		if <-w.seq.turn; w.done {
			return w.err
		}
	}
	e.lead(w)
	return w.err
}

// lead computes steps until w is done, and has another caller lead then; also where a
// tap panics or ends this goroutine, which may be before w's turn.
func (e *Engine) lead(w *work) {
	e.run.Lock()
	defer func() {
		e.run.Unlock()
		if w.done {
			<-w.seq.turn
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.pending = slices.DeleteFunc(e.pending, func(x *work) bool { return x == w })
		if e.led = len(e.pending) > 0; e.led {
			e.pending[0].seq.turn <- struct{}{}
		}
	}()
	for !w.done {
		e.gather()
		e.step(e.next())
	}
}

// arrive notes that s is there for the next step, or never will be. The caller
// holds mu.
func (e *Engine) arrive(s *Sequence) {
	if s.step == 0 || s.step != e.steps {
		return
	}
	s.step = 0
	if e.away--; e.away == 0 {
		select {
		case e.back <- struct{}{}:
		default:
		}
	}
}

// gather waits for the other sequences of the last step, which have to choose
// their next tokens: weights are read once for all that are there.
func (e *Engine) gather() {
	for {
		e.mu.Lock()
		away, left := e.away, time.Until(e.until)
		e.mu.Unlock()
		if away == 0 || left <= 0 {
			return
		}
		select {
		case <-e.back:
		case <-time.After(left):
		}
	}
}

// end ends w, whose caller may go on.
func (w *work) end(err error) {
	w.done, w.err = true, err
	w.seq.turn <- struct{}{}
}

// next takes what fits into one step off the queue, in order of arrival. Work
// that cannot take part ends here: its caller has been cancelled, its sequence
// finds no room, or the engine was closed since it was queued.
func (e *Engine) next() []*work {
	e.mu.Lock()
	defer e.mu.Unlock()
	rows, logits := 0, 0
	var batch []*work
	for len(e.pending) > 0 {
		w := e.pending[0]
		if rows+len(w.tokens) > e.chunk || logits+w.outputs > outputs {
			break
		}
		err := e.admit(w)
		e.pending = e.pending[1:]
		if err != nil {
			w.end(err)
			continue
		}
		rows, logits = rows+len(w.tokens), logits+w.outputs
		batch = append(batch, w)
	}
	e.steps++
	e.away = len(batch)
	for _, w := range batch {
		w.seq.step = e.steps
	}
	return batch
}

// admit makes room for w, or tells why it cannot run. The caller holds mu.
func (e *Engine) admit(w *work) (err error) {
	defer e.see.end(&err) // of a context that is a nil pointer, for one
	if e.closed {
		return ErrClosed
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	return w.seq.pages.Grow(len(w.tokens))
}

// step computes a batch and hands each its logits, or an error.
func (e *Engine) step(batch []*work) {
	if len(batch) == 0 {
		return
	}
	err := errTap
	defer func() {
		for _, w := range batch {
			w.finish(err)
		}
	}()
	start := time.Now()
	err = e.attempt(batch)
	now := time.Now()
	e.mu.Lock()
	e.until = now.Add(min(now.Sub(start)/waitShare, longestWait))
	e.mu.Unlock()
}

// attempt is step but for its end.
func (e *Engine) attempt(batch []*work) (err error) {
	defer e.see.end(&err)
	if e.see.any {
		defer enter(e.graph)()
	}
	s := &backend.Step{Cache: e.cache}
	for _, w := range batch {
		at := len(w.seq.tokens)
		for i, id := range w.tokens {
			if i >= len(w.tokens)-w.outputs {
				s.Outputs = append(s.Outputs, int32(len(s.Tokens)))
			}
			s.Tokens = append(s.Tokens, id)
			s.Pos = append(s.Pos, int32(at+i))
			s.Seqs = append(s.Seqs, w.seq.pages)
		}
	}
	ctx := context.Background()
	if len(batch) == 1 {
		ctx = batch[0].ctx
	}
	if k, steps := e.choice(batch); k > 0 {
		return e.choose(ctx, batch, s, k, steps)
	}
	return e.compute(ctx, batch, s)
}

// compute runs s and hands each of the batch its logits.
func (e *Engine) compute(ctx context.Context, batch []*work, s *backend.Step) error {
	logits, err := e.plan.Run(ctx, s, e.tap)
	if err != nil {
		return err
	}
	for _, w := range batch {
		for range w.outputs {
			w.logits = append(w.logits, append(w.seq.row[:0], logits[:e.vocab]...))
			w.seq.row, logits = nil, logits[e.vocab:]
		}
	}
	return nil
}

// finish ends w with the step's error, or its tokens are the sequence's. A step that
// failed leaves the sequence as it was: it wrote at new positions only, and a
// ring has room for them beside the window before them.
func (w *work) finish(err error) {
	if err == nil {
		w.seq.tokens = append(append(w.seq.tokens, w.tokens...), w.ahead...)
	}
	w.seq.pages.Truncate(len(w.seq.tokens))
	w.end(err)
}
