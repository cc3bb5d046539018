package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// errLeft is the error of work whose context has ended.
var errLeft = errors.New("left")

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

// step computes a batch and hands each its logits, or an error. The caller holds the group's between.
func (e *Engine) step(batch []*work) {
	start, o := time.Now(), outcome{gone: true}
	defer func() {
		e.forget()
		e.finish(batch, o, time.Since(start))
	}()
	o = e.attempt(batch)
}

// forget lets go of what the step was given and has made, which may be large.
func (e *Engine) forget() {
	s := &e.next
	s.Embeddings, s.Values, s.Watch = nil, nil, nil
	clear(s.Seqs)
	clear(s.Adapters)
}

// attempt is step but for its end.
func (e *Engine) attempt(batch []*work) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{panicked: p}
		}
	}()
	if e.see.any {
		defer enter(e.graph)()
	}
	s := &e.next
	*s = backend.Step{Tokens: s.Tokens[:0], Pos: s.Pos[:0], Seqs: s.Seqs[:0], Outputs: s.Outputs[:0], Adapters: s.Adapters[:0], Cache: e.cache}
	adapted := slices.ContainsFunc(batch, func(w *work) bool { return w.seq.blend != nil })
	for _, w := range batch {
		for i := range w.rows {
			if i >= w.rows-w.outputs {
				e.want(s, w.choice.node)
			}
			s.Tokens = append(s.Tokens, w.token(w.at+i))
			s.Pos = append(s.Pos, int32(w.at+i))
			s.Seqs = append(s.Seqs, w.seq.pages)
			if adapted {
				s.Adapters = append(s.Adapters, w.seq.blend)
			}
		}
	}
	s.Embeddings, s.Parts, s.NoLogits = embeddings(batch, len(s.Tokens)), e.partsOf(batch), bare(batch)
	ctx, release := e.shared(batch)
	defer release()
	var err error
	if k, steps := e.choice(batch); k > 0 {
		err = e.computeAhead(ctx, batch, s, k, steps)
	} else {
		err = e.compute(ctx, batch, s)
	}
	if err != nil && len(batch) > 1 && ctx.Err() != nil {
		err = errLeft // each has an end of its own
	}
	return outcome{err: err}
}

// shared is a context that ends when those of all the batch have, or when it is released.
func (e *Engine) shared(batch []*work) (ctx context.Context, release func()) {
	if len(batch) == 1 {
		return batch[0].ctx, func() {}
	}
	for _, w := range batch {
		if w.ended == nil {
			return context.Background(), func() {}
		}
	}
	if e.together == nil {
		e.together = &together{}
		e.together.free = e.together.release
	}
	e.together.begin(batch)
	return e.together, e.together.free
}

// want adds to what s is to tell of its next row: the value of n, or the logits if n is nil.
func (e *Engine) want(s *backend.Step, n *graph.Node) {
	row := int32(len(s.Tokens))
	if n != nil {
		s.Values = append(s.Values, backend.Value{Node: n, Row: row, Out: make([]float32, n.Shape.Size())})
	}
	if n == nil || e.kept[n] {
		s.Outputs = append(s.Outputs, row)
	}
}

// bare reports whether all that a batch wants is values of nodes.
func bare(batch []*work) bool {
	values := false
	for _, w := range batch {
		if w.outputs > 0 && w.choice.node == nil {
			return false
		}
		values = values || w.outputs > 0
	}
	return values
}

// compute runs s and hands each of the batch its logits, or values.
func (e *Engine) compute(ctx context.Context, batch []*work, s *backend.Step) error {
	logits, err := e.plan.Run(ctx, s, e.spans(batch, s))
	if err != nil {
		return err
	}
	values := s.Values
	for _, w := range batch {
		for range w.outputs {
			if n := w.choice.node; n != nil {
				w.logits, values = append(w.logits, values[0].Out), values[1:]
				if e.kept[n] && !s.NoLogits {
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

// finish ends requests that are complete, or failed. A tap's panic falls on the caller of the first, a
// hook's on its own.
func (e *Engine) finish(batch []*work, o outcome, took time.Duration) {
	switch tap := e.see.runs; {
	case o.gone || tap && o.panicked != nil:
		o.err, batch[e.see.of].thrown = errTap, &thrown{o.panicked}
	case o.panicked != nil:
		o.err = fmt.Errorf("internal error: %v", o.panicked)
	}
	e.see.runs, e.see.of = false, 0
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.until = now.Add(e.wait(took))
	for _, w := range batch {
		if w.seq.started.IsZero() {
			w.seq.started = now.Add(-took)
		}
		e.settle(w, o.err)
	}
}

// settle ends w's part in a step: with its error, or its tokens are the sequence's. A step
// that failed leaves the sequence as it was: it wrote at new positions only, and a
// ring has room for them beside the window before them. States go back to a page end
// before it (kv.Sequence.Truncate), and later positions are computed again.
func (e *Engine) settle(w *work, err error) {
	s, end := w.seq, w.at
	if err == nil {
		for end += w.rows; len(s.tokens) < end; {
			s.tokens = append(s.tokens, w.token(len(s.tokens)))
		}
		s.tokens = append(s.tokens, w.ahead...)
		end += len(w.ahead)
		s.pages.Commit(s.tokens[w.at:end])
		if end >= w.all() && (len(w.tokens) > 1 || w.from == 0) { // a prompt's end, from where the next turn goes on
			s.pages.Mark()
		}
	}
	s.pages.Truncate(end)
	w.rows, s.step, s.queued.step = 0, e.steps, e.steps
	switch {
	case err != nil:
		e.end(w, err)
	case end >= w.all():
		s.away = true
		e.away++
		e.end(w, nil)
	case w.left:
		e.end(w, errLeft)
	case e.closed:
		e.end(w, ErrClosed)
	}
}
