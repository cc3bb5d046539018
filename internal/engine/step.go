package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine/schedule"
	"github.com/karat-run/karat/internal/graph"
)

// work is the next tokens of a sequence, and the wanted outputs.
type work struct {
	seat   schedule.Work
	seq    *Sequence
	ctx    context.Context
	ended  <-chan struct{} // told when ctx has ended
	tokens []int32
	choice choice

	logits [][]float32
	found  found   // instead of logits, where the request wants the likeliest tokens
	ahead  []int32 // tokens of the steps after the first

	// Guarded by Engine.mu.
	left   bool // its caller waits for the end of the step alone
	done   bool // no longer queued
	err    error
	thrown *thrown // the panic for its caller
}

// sure returns how many tokens the sequence has after the work, without a draft's.
func (w *work) sure() int { return w.seat.From + w.seat.Tokens + len(w.ahead) }

func workOf(w *schedule.Work) *work { return w.Of.(*work) }

// token returns the token at a position.
func (w *work) token(at int) int32 {
	if at < w.seat.From {
		if id := w.seq.tokens[at]; id >= 0 {
			return id
		}
		return w.seq.extras.tokens[at]
	}
	return w.tokens[at-w.seat.From]
}

// end takes w off the queue, if queued, and lets its caller go on. The caller holds mu.
func (e *Engine) end(w *work, err error) {
	if err != nil {
		e.schedule.Drop(&w.seat)
	} else {
		e.schedule.Done(&w.seat)
	}
	w.done, w.err = true, err
	w.seq.turn <- struct{}{}
}

// errLeft is the error of work whose context has ended.
var errLeft = errors.New("left")

// step is the parts of a step of an engine. Its memory serves the next step.
type step struct {
	see   taps
	batch []*work
	next  backend.Step
	parts [][3]int32   // of next
	joint jointContext // the context of a step of several requests
}

// outcome is how a step ended.
type outcome struct {
	err      error
	panicked any
	gone     bool // the goroutine was ended
}

// thrown is a tap's panic or exit, repeated by the caller's goroutine.
type thrown struct{ value any } // nil is runtime.Goexit

// repeat panics, or ends the goroutine, unless t is nil.
func (t *thrown) repeat() {
	switch {
	case t == nil:
	case t.value == nil:
		runtime.Goexit()
	default:
		panic(t.value)
	}
}

// compute computes a batch and hands each work its logits, or an error. The caller holds computing.
func (e *Engine) compute(batch []*schedule.Work) {
	st := &e.step
	st.batch = st.batch[:0]
	for _, w := range batch {
		st.batch = append(st.batch, workOf(w))
	}
	p := st.batch[0].seq.plan
	start, o := time.Now(), outcome{gone: true}
	defer func() {
		s := &st.next
		s.Embeddings, s.Values, s.Watch = nil, nil, nil // perhaps large
		clear(s.Seqs)
		clear(s.Adapters)
		e.finish(p, o, time.Since(start))
	}()
	o = p.attempt()
}

// attempt computes the batch of the engine's step.
func (p *Plan) attempt() (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			o = outcome{panicked: v}
		}
	}()
	e, st := p.e, &p.e.step
	if p.taps {
		defer enter(e.graph)()
	}
	ctx, release := st.context()
	defer release()
	if e.head != nil {
		if err := e.head.draft(ctx, e, st.batch); err != nil {
			return outcome{err: st.ended(ctx, err)}
		}
	}
	batch, s := st.batch, &st.next
	*s = backend.Step{Tokens: s.Tokens[:0], Pos: s.Pos[:0], Seqs: s.Seqs[:0], Outputs: s.Outputs[:0],
		Adapters: s.Adapters[:0], Cache: e.cache}
	adapted := slices.ContainsFunc(batch, func(w *work) bool { return w.seq.blend != nil })
	for _, w := range batch {
		for i := range w.seat.Rows {
			if i >= w.seat.Rows-w.seat.Outputs {
				p.want(s, w.choice.node)
			}
			s.Tokens = append(s.Tokens, w.token(w.seat.At+i))
			s.Pos = append(s.Pos, int32(w.seat.At+i))
			s.Seqs = append(s.Seqs, w.seq.seat.Pages)
			if adapted {
				s.Adapters = append(s.Adapters, w.seq.blend)
			}
		}
	}
	s.Embeddings, s.Parts, s.NoLogits = embeddings(batch, len(s.Tokens)), st.partsOf(), isBare(batch)
	s.Groups = groups(batch, len(s.Tokens))
	if e.head != nil {
		e.head.wantStates(s, batch)
	}
	var err error
	if k, steps := p.choice(batch); k > 0 {
		err = p.computeAhead(ctx, k, steps)
	} else {
		err = p.computeLogits(ctx)
	}
	if err == nil {
		for _, w := range batch {
			if w.choice.states && w.seat.Outputs > 0 {
				x := &w.seq.states
				x.from, x.n = w.seat.At+w.seat.Rows-w.seat.Outputs, w.seat.Outputs
			}
		}
	}
	return outcome{err: st.ended(ctx, err)}
}

// ended returns the error of a step, in place of a context's: each request of several has an end of its own.
func (st *step) ended(ctx context.Context, err error) error {
	if err != nil && len(st.batch) > 1 && ctx.Err() != nil {
		return errLeft
	}
	return err
}

// context returns a context that ends when all contexts of the batch have ended, or on release.
func (st *step) context() (ctx context.Context, release func()) {
	if len(st.batch) == 1 {
		return st.batch[0].ctx, func() {}
	}
	for _, w := range st.batch {
		if w.ended == nil {
			return context.Background(), func() {}
		}
	}
	return st.joint.begin(st.batch)
}

// want adds to s an output of its next row: the value of n, or the logits if n is nil.
func (p *Plan) want(s *backend.Step, n *graph.Node) {
	row := int32(len(s.Tokens))
	if n != nil {
		s.Values = append(s.Values, backend.Value{Node: n, Row: row, Out: make([]float32, n.Shape.Size())})
	}
	if n == nil || p.kept[n] {
		s.Outputs = append(s.Outputs, row)
	}
}

// isBare reports whether a batch wants values of nodes and no logits.
func isBare(batch []*work) bool {
	values := false
	for _, w := range batch {
		if w.seat.Outputs > 0 && w.choice.node == nil {
			return false
		}
		values = values || w.seat.Outputs > 0
	}
	return values
}

// computeLogits runs the step and hands each of the batch its logits, or values.
func (p *Plan) computeLogits(ctx context.Context) error {
	e, s := p.e, &p.e.step.next
	logits, err := p.run.Run(ctx, s, p.spans(s))
	if err != nil {
		return err
	}
	values := s.Values
	for _, w := range e.step.batch {
		if see := w.choice.see; see != nil && w.seat.Outputs > 0 {
			see(logits[:w.seat.Outputs*e.vocab])
		}
		for range w.seat.Outputs {
			if n := w.choice.node; n != nil {
				w.logits, values = append(w.logits, values[0].Out), values[1:]
				if p.kept[n] && !s.NoLogits {
					logits = logits[e.vocab:]
				}
				continue
			}
			if w.choice.see == nil {
				w.logits = append(w.logits, append(w.seq.spare.take(), logits[:e.vocab]...))
			}
			logits = logits[e.vocab:]
		}
	}
	return nil
}

// finish ends complete and failed requests. A tap's panic falls on the caller of the batch's first request, a hook's on
// its own.
func (e *Engine) finish(p *Plan, o outcome, took time.Duration) {
	see, batch := &e.step.see, e.step.batch
	switch {
	case o.gone || see.runs && o.panicked != nil:
		o.err, batch[see.of].thrown = errTap, &thrown{o.panicked}
	case o.panicked != nil:
		o.err = fmt.Errorf("internal error: %v", o.panicked)
	}
	see.runs, see.of = false, 0
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	p.until = now.Add(e.wait(took))
	if h := e.head; h != nil && h.passes > 0 {
		took -= h.took
		p.turn.Pace.ObserveGuess(h.took / time.Duration(h.passes))
	}
	if rows := e.step.decoded(); rows > 0 && o.err == nil {
		p.turn.Pace.Observe(rows, e.pace(rows, took/time.Duration(1+len(batch[0].ahead))))
	}
	for _, w := range batch {
		if w.seq.started.IsZero() {
			w.seq.started = now.Add(-took)
		}
		e.settle(w, o.err)
	}
	clear(batch)
}

// decoded returns the rows of a step in which all sequences decode, and 0 of other steps.
func (st *step) decoded() (rows int) {
	for _, w := range st.batch {
		if rows += w.seat.Rows; w.seat.Rows != w.seat.Outputs {
			return 0
		}
	}
	return rows
}

// settle ends w's part in a step: with its error, or its tokens are the sequence's. A failed step leaves the sequence
// unchanged: the step wrote at new positions only, and a ring has room for new positions beside the window before.
// States go back to a page end before it (kv.Sequence.Truncate), and later positions are computed again.
func (e *Engine) settle(w *work, err error) {
	s, pages, end := w.seq, w.seq.seat.Pages, w.seat.At
	if err == nil {
		for end += w.seat.Rows; len(s.tokens) < end; {
			s.tokens = append(s.tokens, s.extras.key(len(s.tokens), w.token(len(s.tokens))))
		}
		s.tokens = append(s.tokens, w.ahead...)
		e.schedule.Charge(s.seat.Key, len(w.ahead))
		end += len(w.ahead)
		// tokens of a draft are the sequence's after the choice (Sequence.cut)
		pages.Commit(s.tokens[:min(end, w.sure())])
		// a prompt's end, from where the next turn goes on
		if !w.seat.Unfinished(end) && (w.seat.Tokens > 1 || w.seat.From == 0) {
			pages.Mark()
		}
	}
	pages.Truncate(end)
	e.schedule.Settle(&w.seat, end)
	switch {
	case err != nil || !w.seat.Unfinished(end):
		e.end(w, err)
	case w.left:
		e.end(w, errLeft)
	case e.closed:
		e.end(w, ErrClosed)
	}
}

// partsOf returns the three-part positions of the step; nil where all sequences are text.
func (st *step) partsOf() [][3]int32 {
	if !slices.ContainsFunc(st.batch, func(w *work) bool { return w.seq.extras.Parts != nil }) {
		return nil
	}
	st.parts = st.parts[:0]
	for _, w := range st.batch {
		for i := range w.seat.Rows {
			st.parts = append(st.parts, w.seq.extras.part(w.seat.At+i))
		}
	}
	return st.parts
}

// groups returns the groups of a step's rows; nil for none.
func groups(batch []*work, rows int) (all []backend.Group) {
	at := 0
	for _, w := range batch {
		for i := range w.seat.Rows {
			if g := w.seq.extras.group(w.seat.At + i); g.End > 0 {
				if all == nil {
					all = make([]backend.Group, rows)
				}
				all[at+i] = g
			}
		}
		at += w.seat.Rows
	}
	return all
}

// embeddings returns the embeddings of a step of so many rows; nil for none.
func embeddings(batch []*work, rows int) (all [][]float32) {
	at := 0
	for _, w := range batch {
		for i := range w.seat.Rows {
			if x := w.seq.extras.embedding(w.seat.At + i); x != nil {
				if all == nil {
					all = make([][]float32, rows)
				}
				all[at+i] = x
			}
		}
		at += w.seat.Rows
	}
	return all
}

// wants reports whether h, perhaps nil, is to see n.
func (h *Hook) wants(n *graph.Node) bool { return h != nil && (h.Nodes == nil || h.Nodes(n)) }

// span is the rows of a sequence with a hook in the running step.
type span struct {
	hook         *Hook
	at           int // in the batch
	from, to     int // rows
	first, after int // of the outputs
}

// spans returns the tap of the step s, showing the rows of the batch to the hooks of their sequences.
func (p *Plan) spans(s *backend.Step) backend.Tap {
	if !p.hooks {
		return p.tap
	}
	var all []span
	see, row, output := &p.e.step.see, 0, 0
	for i, w := range p.e.step.batch {
		x := span{hook: w.seq.hook, at: i, from: row, to: row + w.seat.Rows, first: output}
		for row = x.to; output < len(s.Outputs) && int(s.Outputs[output]) < row; output++ {
		}
		if x.after = output; x.hook != nil {
			all = append(all, x)
			s.Write = s.Write || x.hook.Write
		}
	}
	if len(all) == 0 {
		return nil
	}
	s.Watch = func(n *graph.Node) bool {
		return slices.ContainsFunc(all, func(x span) bool { return x.hook.wants(n) })
	}
	var positions []int32 // of the outputs
	for _, r := range s.Outputs {
		positions = append(positions, s.Pos[r])
	}
	return func(n *graph.Node, out []float32) {
		size := n.Shape.Size()
		for _, x := range all {
			from, to, pos := x.from, x.to, s.Pos
			if p.after[n] {
				from, to, pos = x.first, x.after, positions
			}
			if from == to || !x.hook.wants(n) {
				continue
			}
			see.runs, see.of = true, x.at
			x.hook.See(n, pos[from:to:to], out[from*size:to*size:to*size])
			see.runs = false
		}
	}
}

// jointContext is the context of a step of several requests. It ends once the contexts of all requests have. Backends
// look at Err between two nodes, so Err asks the requests' own contexts, without allocating. Only Done makes a context.
type jointContext struct {
	free func() // release, bound once

	mu    sync.Mutex
	batch []*work         // nil after the step
	made  context.Context // nil before Done is called
	close context.CancelFunc
	stops []func() bool
}

func (*jointContext) Deadline() (end time.Time, ok bool) { return }

func (*jointContext) Value(any) any { return nil }

// begin makes c the context of a step of batch, and returns how to end the step.
func (c *jointContext) begin(batch []*work) (ctx context.Context, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free == nil {
		c.free = c.release
	}
	c.batch = batch
	return c, c.free
}

// Err returns context.Canceled once all requests have ended, or the step has: a goroutine left running by a backend or
// a tap may ask then.
func (c *jointContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.batch {
		if w.ctx.Err() == nil {
			return nil
		}
	}
	return context.Canceled
}

// Done returns a channel closed when all requests have ended, or the step has.
func (c *jointContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.close = context.WithCancel(context.Background())
		left, end := atomic.Int32{}, c.close
		left.Store(int32(len(c.batch)))
		for _, w := range c.batch {
			c.stops = append(c.stops, context.AfterFunc(w.ctx, func() {
				if left.Add(-1) == 0 {
					end()
				}
			}))
		}
	}
	return c.made.Done()
}

// release ends the step, and the context made by Done.
func (c *jointContext) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stop := range c.stops {
		stop()
	}
	if c.made != nil {
		c.close()
	}
	c.batch, c.made, c.close, c.stops = nil, nil, nil, nil
}
