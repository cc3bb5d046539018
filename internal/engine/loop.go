package engine

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/engine/schedule"
)

// grace is the longest time without a step for the sake of sequences keeping their places.
const grace = 200 * time.Millisecond

// do queues w and returns once w is computed, or its context ends.
func (e *Engine) do(w *work) error {
	var err error
	if w.ended, err = endOf(w.ctx); err == nil {
		err = e.enqueue(w)
	}
	if err != nil {
		return err
	}
	select {
	case <-w.seq.turn:
	case <-w.ended:
		if e.withdraw(w) {
			return cmp.Or(w.ctx.Err(), context.Canceled)
		}
		<-w.seq.turn
	}
	w.thrown.repeat()
	if w.err == errLeft {
		return cmp.Or(w.ctx.Err(), context.Canceled)
	}
	return w.err
}

// endOf returns a channel closed at the end of ctx, or ctx's error. A context that is a nil pointer panics.
func endOf(ctx context.Context) (ended <-chan struct{}, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ctx.Done(), nil
}

func (e *Engine) enqueue(w *work) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if e.over == nil {
		e.over = make(chan struct{})
		go e.serve()
	}
	e.changed(e.schedule.Add(&w.seat) || len(e.plans) > 1)
	return nil
}

// withdraw takes w off the queue, unless w is in the running step.
func (e *Engine) withdraw(w *work) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.left = true; w.done || w.seat.Rows > 0 {
		return false
	}
	e.schedule.Drop(&w.seat)
	return true
}

// changed wakes the goroutine from a wait for any change, or for sequences that have come now. The caller holds mu.
func (e *Engine) changed(come bool) {
	if come || e.asleep {
		e.bell.ring()
	}
}

// serve runs steps until nothing is left to do. Where a tap, or a context, ends its goroutine, another one goes on.
func (e *Engine) serve() {
	closed := false
	defer func() {
		if closed {
			close(e.over)
		} else {
			go e.serve()
		}
	}()
	for patient := true; e.awaitWork(); {
		full := e.turn(patient)
		patient = !full || e.bell.sleep(grace)
	}
	closed = true
}

// awaitWork waits until there is work, and for the other sequences of the last step, busy choosing their next tokens:
// weights are read once for all sequences present. It returns false once the engine is closed.
func (e *Engine) awaitWork() bool {
	for {
		e.mu.Lock()
		closed, idle, left := e.closed, len(e.schedule.Works()) == 0, e.waitTime()
		e.asleep = idle
		e.mu.Unlock()
		switch {
		case closed:
			return false
		case idle:
			<-e.bell.rung
			runtime.Gosched() // sequences arriving together join the first step
		case left > 0:
			e.bell.sleep(left)
		default:
			return true
		}
	}
}

// waitTime returns how long the next step is to wait for sequences. The caller holds mu.
func (e *Engine) waitTime() (left time.Duration) {
	for _, p := range e.plans {
		if d := time.Until(p.until); d <= 0 {
			p.turn.Forget()
		} else if left == 0 || d < left {
			left = d
		}
	}
	if !e.schedule.Awaits() {
		return 0
	}
	return left
}

// turn chooses and computes a step. It reports whether there was no step, since all works wait for room.
func (e *Engine) turn(patient bool) (full bool) {
	e.computing.Lock()
	defer e.computing.Unlock()
	batch, full := e.choose(patient)
	if len(batch) > 0 {
		e.compute(batch)
	}
	return full
}

// choose returns the works of the next step, of as many rows as there may be.
func (e *Engine) choose(patient bool) (batch []*schedule.Work, full bool) {
	e.mu.Lock()
	rows, hold := e.chunk, e.hold
	e.mu.Unlock()
	if hold != nil {
		rows = hold(rows)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	works := e.schedule.Works()
	for i := len(works) - 1; i >= 0; i-- {
		select {
		case <-workOf(works[i]).ended:
			e.end(workOf(works[i]), errLeft)
			works = e.schedule.Works()
		default:
		}
	}
	batch = e.schedule.Next(rows, patient)
	works = e.schedule.Works()
	for i := len(works) - 1; i >= 0; i-- {
		if w := works[i]; w.Err != nil {
			e.end(workOf(w), w.Err)
			works = e.schedule.Works()
		}
	}
	e.asleep = len(batch) == 0 && len(e.schedule.Works()) > 0
	return batch, e.asleep
}

// Close ends the engine's goroutine and frees the cache. A step under way ends first. Requests not completed by the
// step, and queued requests, fail with ErrClosed. Inside a tap Close does nothing but return ErrInTap.
func (e *Engine) Close() error {
	if e.InTap() {
		return ErrInTap
	}
	e.mu.Lock()
	e.closed = true
	for _, w := range slices.Clone(e.schedule.Works()) {
		if w.Rows == 0 {
			e.end(workOf(w), ErrClosed)
		}
	}
	over := e.over
	e.mu.Unlock()
	e.bell.ring()
	if over != nil {
		<-over
	}
	e.pool.Watch(nil)
	e.closing.Lock()
	defer e.closing.Unlock()
	return e.cache.Close()
}
