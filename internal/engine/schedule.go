package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/kv"
)

// A step waits for the others of the last one at most a share of the time
// that it took, and never longer than longestWait.
const (
	waitShare   = 8
	longestWait = 10 * time.Millisecond
)

// wait is how long a step waits for the others of the last one, which took so long.
func wait(took time.Duration) time.Duration { return min(took/waitShare, longestWait) }

// patience is how many steps a sequence may miss and still keep its place: its caller
// chooses a token meanwhile, or writes one to somebody slow. Who misses more is idle.
const patience = 16

// grace is how long nothing is computed for the sake of those who keep their places.
const grace = 200 * time.Millisecond

// account is what the callers with a key have had.
type account struct {
	served int64 // tokens, computed or promised
	queued int   // works
	step   int   // the last one that any of them was in
}

// do queues w and returns when it is computed, or its context ends.
func (e *Engine) do(w *work) error {
	var err error
	if w.ended, err = watch(w.ctx); err == nil {
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
	w.thrown.again()
	if w.err == errLeft {
		return cmp.Or(w.ctx.Err(), context.Canceled)
	}
	return w.err
}

// watch is what tells that ctx has ended, or its error. A context that is a nil pointer
// panics.
func watch(ctx context.Context) (ended <-chan struct{}, err error) {
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
		e.over, e.timer = make(chan struct{}), time.NewTimer(0)
		go e.serve()
	}
	s := w.seq
	if !e.warm(s) {
		e.arrivals++
		s.runs, s.arrival = false, e.arrivals
	}
	s.left = false
	s.queued = e.account(s.caller.Key)
	s.queued.queued++
	e.queue = append(e.queue, w)
	e.arrive(s)
	if len(e.queue) == 1 || e.stuck {
		e.signal()
	}
	return nil
}

// withdraw takes w off the queue, if it is not in the step that runs.
func (e *Engine) withdraw(w *work) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.left = true; w.done || w.rows > 0 {
		return false
	}
	e.unqueue(w)
	return true
}

func (e *Engine) unqueue(w *work) {
	i, last := slices.Index(e.queue, w), len(e.queue)-1
	e.queue[i], e.queue[last] = e.queue[last], nil
	e.queue = e.queue[:last]
	e.ended++
	w.seq.queued.queued--
	w.seq.queued = nil
	if len(e.queue) == 0 {
		e.group.unstick(e)
	}
}

// end takes w off the queue and has its caller go on.
func (e *Engine) end(w *work, err error) {
	e.unqueue(w)
	w.done, w.err = true, err
	w.seq.turn <- struct{}{}
}

// account is a key's. One that was not active for a while begins with as much as the one
// that had the least: nobody saves up shares.
func (e *Engine) account(key string) *account {
	a := e.accounts[key]
	if a != nil && e.active(a) {
		return a
	}
	least := int64(math.MaxInt64)
	for k, x := range e.accounts {
		if e.active(x) {
			least = min(least, x.served)
		} else if k != key {
			delete(e.accounts, k)
		}
	}
	if a == nil {
		a = &account{}
		e.accounts[key] = a
	}
	if least < math.MaxInt64 {
		a.served = max(a.served, least)
	}
	a.step = e.steps
	return a
}

func (e *Engine) active(a *account) bool { return a.queued > 0 || e.steps-a.step < patience }

// arrive notes that s is there for the next step, or never will be.
func (e *Engine) arrive(s *Sequence) {
	if s.away && s.step == e.steps {
		if e.away--; e.away == 0 {
			e.signal()
		}
	}
	s.away = false
}

// leave notes that s wants nothing for now: it keeps no place.
func (e *Engine) leave(s *Sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arrive(s)
	if s.left = true; e.stuck {
		e.signal()
	}
	e.group.freed()
}

// signal wakes the engine's goroutine, or keeps it from sleeping.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// sleep returns after d, or sooner with true if there is something to look at.
func (e *Engine) sleep(d time.Duration) bool {
	e.timer.Reset(d)
	select {
	case <-e.wake:
		e.timer.Stop()
		return true
	case <-e.timer.C:
		return false
	}
}

// serve is the engine's goroutine. Where a tap, or a context, ends it another goes on.
func (e *Engine) serve() {
	closed := false
	defer func() {
		if closed {
			close(e.over)
		} else {
			go e.serve()
		}
	}()
	for e.ready() {
		e.turn()
	}
	closed = true
}

// turn chooses a step and computes it.
func (e *Engine) turn() {
	e.group.between.Lock()
	defer e.group.between.Unlock()
	if batch := e.gather(); len(batch) > 0 {
		e.step(batch)
	}
}

// ready waits until there is work, and for the other sequences of the last step, which
// have to choose their next tokens: weights are read once for all that are there. It is
// false once the engine is closed.
func (e *Engine) ready() bool {
	for {
		e.mu.Lock()
		closed, idle, left := e.closed, len(e.queue) == 0, time.Duration(0)
		if e.away > 0 {
			left = time.Until(e.until)
		}
		e.mu.Unlock()
		switch {
		case closed:
			return false
		case idle:
			<-e.wake
			runtime.Gosched() // those who come together join the first step
		case left > 0:
			e.sleep(left)
		default:
			return true
		}
	}
}

// gather is the next step, of as many rows as there may be. It is empty where all that is
// queued waits for sequences that may come back; after a while, these are idle.
func (e *Engine) gather() []*work {
	e.mu.Lock()
	rows, hold := e.chunk, e.hold
	e.mu.Unlock()
	if hold != nil {
		rows = hold(rows)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	batch := e.pick(rows)
	if len(batch) == 0 && len(e.queue) > 0 && e.group.makeRoom(e) {
		batch = e.pick(rows)
	}
	if len(batch) > 0 || len(e.queue) == 0 {
		e.group.unstick(e)
		return batch
	}
	e.stuck = true
	e.mu.Unlock()
	e.group.between.Unlock()
	woken := e.sleep(grace)
	e.group.between.Lock()
	e.mu.Lock()
	if !woken {
		batch = e.pick(rows)
	}
	e.stuck = false
	switch {
	case len(batch) > 0:
		e.group.unstick(e)
	case !woken && e.group.holdsBack(e) && e.yield(true):
		e.group.freed()
	}
	return batch
}

// pick chooses the rows of a step: first for sequences that decode, then for prompts.
func (e *Engine) pick(rows int) []*work {
	e.batch = e.batch[:0]
	for i := len(e.queue) - 1; i >= 0; i-- {
		select {
		case <-e.queue[i].ended:
			e.end(e.queue[i], errLeft)
		default:
		}
	}
	e.admit()
	slices.SortFunc(e.queue, before)
	r := room{rows: rows, outputs: e.outputs}
	for _, w := range e.queue {
		if w.seq.runs && r.rows > 0 {
			e.take(w, &r)
		}
	}
	for i := len(e.queue) - 1; i >= 0; i-- {
		if w := e.queue[i]; w.err != nil {
			e.end(w, w.err)
		}
	}
	if len(e.batch) > 0 {
		e.steps++
		e.away = 0
	}
	return e.batch
}

// room is the rest of a step.
type room struct {
	rows, outputs int
	decoding      bool    // sequences that do are in the step
	load          float64 // of the rows that are chosen
}

// before orders the queue. Sequences that decode go first, and so that each has its turn
// if they are more than a step has rows.
func before(a, b *work) int {
	urgent := cmp.Compare(b.seq.caller.Priority, a.seq.caller.Priority)
	came := cmp.Compare(a.seq.arrival, b.seq.arrival)
	switch x, y := a.decodes(), b.decodes(); {
	case x && y:
		return cmp.Or(urgent, cmp.Compare(a.seq.step, b.seq.step), came)
	case x:
		return -1
	case y:
		return 1
	}
	return cmp.Or(urgent, cmp.Compare(a.seq.queued.served, b.seq.queued.served), came)
}

// decodes reports whether w runs, and all but one of its tokens are computed.
func (w *work) decodes() bool {
	n := w.seq.pages.Len()
	return w.seq.runs && n > 0 && w.all()-n == 1
}

// admit lets those run that there is room for, in their order. The first that finds none
// keeps others from passing it.
func (e *Engine) admit() {
	for !e.group.holdsBack(e) {
		var first *work
		for _, w := range e.queue {
			if !w.seq.runs && (first == nil || before(w, first) < 0) {
				first = w
			}
		}
		if first == nil || !e.start(first) {
			return
		}
	}
}

// start lets w's sequence run, if there is a place and room for all of its tokens.
func (e *Engine) start(w *work) bool {
	s := w.seq
	if !e.place(s) {
		return false
	}
	s.resume()
	e.list(s)
	for !s.pages.Reserve(w.all()) {
		v := e.victim(s, false)
		if v == nil {
			return false
		}
		e.preempt(v, nil)
	}
	s.runs = true
	w.charge()
	return true
}

// list notes that s may have pages, so that others can ask for them.
func (e *Engine) list(s *Sequence) {
	if !s.live {
		s.live = true
		e.live = append(e.live, s)
	}
}

// charge puts w's tokens on its key's account.
func (w *work) charge() {
	if !w.charged {
		w.charged = true
		w.seq.queued.served += int64(len(w.tokens))
	}
}

// charge puts work beside the engine's steps on the account of the sequence's key.
func (s *Sequence) charge(tokens int) {
	if tokens == 0 {
		return
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.account(s.caller.Key).served += int64(tokens)
}

// place reports whether one more sequence may run, which may take the place of one of a
// lower priority.
func (e *Engine) place(s *Sequence) bool {
	n, low := 0, s
	for _, v := range e.live {
		if v.runs && !e.idle(v) {
			if n++; v.below(low) {
				low = v
			}
		}
	}
	if e.parallel == 0 || n < e.parallel {
		return true
	}
	if low.caller.Priority == s.caller.Priority {
		return false
	}
	low.runs = false
	return true
}

// warm reports whether s was in one of the last steps, and may come back.
func (e *Engine) warm(s *Sequence) bool {
	return s.step > 0 && e.steps-s.step < patience && !s.left
}

// idle reports whether nobody asks for s, and it keeps no place.
func (e *Engine) idle(s *Sequence) bool { return s.queued == nil && (e.stuck || !e.warm(s)) }

// below reports whether s is to give way to t.
func (s *Sequence) below(t *Sequence) bool {
	if s.caller.Priority != t.caller.Priority {
		return s.caller.Priority < t.caller.Priority
	}
	return s.arrival > t.arrival
}

// take puts as many of w's rows into the step as it has room for, and pages.
func (e *Engine) take(w *work, r *room) {
	s, decodes := w.seq, w.decodes()
	at := s.pages.Len()
	n := e.share(w, min(w.all()-at, r.rows), r)
	n = s.pages.Cut(n, w.all()-at-n)
	first := max(w.all()-w.wanted, len(s.tokens)) // whose logits are wanted
	if n = min(n, max(first-at, 0)+r.outputs); n == 0 || e.entire && n < w.all()-at {
		return
	}
	for err := s.pages.Grow(n); err != nil; err = s.pages.Grow(n) {
		if !errors.Is(err, kv.ErrFull) {
			w.err = err // of the memory, which would fail again
			return
		}
		v := e.victim(s, true)
		if v == nil {
			return // it waits, with what it has
		}
		e.preempt(v, r)
	}
	w.rows, w.at, w.outputs = n, at, max(0, at+n-max(first, at))
	r.rows, r.outputs = r.rows-n, r.outputs-w.outputs
	r.load, r.decoding = r.load+e.load.rows(at, n), r.decoding || decodes
	e.batch = append(e.batch, w)
	w.charge()
}

// victim is the sequence whose pages s is to have: of the idle ones, the one that was longest
// so; else the lowest. One that runs gives way to a higher priority, and where s runs,
// too, to who came sooner. So the first that came always goes on. One that waits to run,
// with pages that it found, gives way to whose turn it is.
func (e *Engine) victim(s *Sequence, runs bool) (v *Sequence) {
	for _, x := range e.live {
		lower := !x.runs || x.below(s) && (runs || x.caller.Priority < s.caller.Priority)
		switch idle := e.idle(x); {
		case x == s, x.pages.Pages() == 0, !idle && !lower:
		case v == nil, idle && !e.idle(v), idle && x.step < v.step, !idle && !e.idle(v) && x.below(v):
			v = x
		}
	}
	return v
}

// preempt gives v's pages back. Its tokens are computed again when it is admitted anew.
func (e *Engine) preempt(v *Sequence, r *room) {
	if v.queued != nil && v.work.rows > 0 { // the step has chosen it
		r.rows, r.outputs = r.rows+v.work.rows, r.outputs+v.work.outputs
		r.load -= e.load.rows(v.work.at, v.work.rows)
		v.work.rows = 0
		e.batch = slices.DeleteFunc(e.batch, func(w *work) bool { return w.seq == v })
	}
	v.pages.Free()
	v.runs = false
}

// remove forgets s.
func (e *Engine) remove(s *Sequence) {
	s.pages.Free()
	if s.live {
		e.live = slices.DeleteFunc(e.live, func(x *Sequence) bool { return x == s })
	}
	s.live, s.runs = false, false
	e.group.freed()
}
