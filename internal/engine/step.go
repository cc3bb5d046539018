package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine/schedule"
	"github.com/karat-run/karat/internal/graph"
)

// errLeft is the error of work whose context has ended.
var errLeft = errors.New("left")

// step is what a step of an engine is made of. Its memory serves the next one.
type step struct {
	see      taps
	batch    []*work
	next     backend.Step
	parts    [][3]int32 // of next
	together together   // the context of a step of several requests
}

// outcome is how a step ended.
type outcome struct {
	err      error
	panicked any
	gone     bool // the goroutine was ended
}

// thrown is a tap's panic or exit, which its caller's goroutine repeats.
type thrown struct{ value any } // nil is runtime.Goexit

// again panics, or ends the goroutine, unless t is nil.
func (t *thrown) again() {
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
		st.forget()
		e.finish(p, o, time.Since(start))
	}()
	o = p.attempt()
}

// forget lets go of the step's inputs and outputs, which may be large.
func (st *step) forget() {
	s := &st.next
	s.Embeddings, s.Values, s.Watch = nil, nil, nil
	clear(s.Seqs)
	clear(s.Adapters)
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
	ctx, release := st.context()
	defer release()
	var err error
	if k, steps := p.choice(batch); k > 0 {
		err = p.computeAhead(ctx, k, steps)
	} else {
		err = p.computeLogits(ctx)
	}
	if err != nil && len(batch) > 1 && ctx.Err() != nil {
		err = errLeft // each request has an end of its own
	}
	return outcome{err: err}
}

// context returns a context that ends when those of all the batch have, or when it is released.
func (st *step) context() (ctx context.Context, release func()) {
	if len(st.batch) == 1 {
		return st.batch[0].ctx, func() {}
	}
	for _, w := range st.batch {
		if w.ended == nil {
			return context.Background(), func() {}
		}
	}
	return st.together.begin(st.batch)
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
		for range w.seat.Outputs {
			if n := w.choice.node; n != nil {
				w.logits, values = append(w.logits, values[0].Out), values[1:]
				if p.kept[n] && !s.NoLogits {
					logits = logits[e.vocab:]
				}
				continue
			}
			w.logits = append(w.logits, append(w.seq.row[:0], logits[:e.vocab]...))
			w.seq.row, logits = nil, logits[e.vocab:]
		}
	}
	return nil
}

// finish ends requests that are complete, or failed. A tap's panic falls on the caller of the batch's first request, a
// hook's on its own.
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
	for _, w := range batch {
		if w.seq.started.IsZero() {
			w.seq.started = now.Add(-took)
		}
		e.settle(w, o.err)
	}
	clear(batch)
}

// settle ends w's part in a step: with its error, or its tokens are the sequence's. A step that failed leaves the
// sequence as it was: it wrote at new positions only, and a ring has room for them beside the window before them.
// States go back to a page end before it (kv.Sequence.Truncate), and later positions are computed again.
func (e *Engine) settle(w *work, err error) {
	s, pages, end := w.seq, w.seq.seat.Pages, w.seat.At
	if err == nil {
		for end += w.seat.Rows; len(s.tokens) < end; {
			s.tokens = append(s.tokens, w.token(len(s.tokens)))
		}
		s.tokens = append(s.tokens, w.ahead...)
		end += len(w.ahead)
		pages.Commit(s.tokens[w.seat.At:end])
		// a prompt's end, from where the next turn goes on
		if !w.seat.Unfinished(end) && (len(w.tokens) > 1 || w.seat.From == 0) {
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
