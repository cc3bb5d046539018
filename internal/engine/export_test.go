package engine

import (
	"runtime"
	"time"
)

// Hold keeps the engine from computing until the returned function is called:
// work that is queued meanwhile goes into common steps.
func (e *Engine) Hold() (release func()) {
	held := make(chan struct{})
	e.Cut(func(rows int) int { <-held; return rows })
	return func() { close(held) }
}

// Cut has f say how many rows the next step may have, given how many it would have.
func (e *Engine) Cut(f func(rows int) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = f
}

// WaitStep waits until n callers' work is in a step.
func (e *Engine) WaitStep(n int) {
	for in := 0; in < n; runtime.Gosched() {
		e.mu.Lock()
		in = 0
		for _, w := range e.schedule.Works() {
			if w.Rows > 0 {
				in++
			}
		}
		e.mu.Unlock()
	}
}

// Keeps reports whether the engine keeps something of a step that is over.
func (e *Engine) Keeps() bool {
	s := &e.step.next
	keeps := s.Embeddings != nil || s.Values != nil
	for _, p := range s.Seqs {
		keeps = keeps || p != nil
	}
	for _, b := range s.Adapters {
		keeps = keeps || b != nil
	}
	return keeps
}

// WaitQueued waits until n callers have queued work.
func (e *Engine) WaitQueued(n int) {
	for e.Queued() < n {
		runtime.Gosched()
	}
}

// Queued is the number of callers whose work is queued or computed.
func (e *Engine) Queued() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.schedule.Works())
}

// WaitClosed waits until Close has been called.
func (e *Engine) WaitClosed() {
	for closed := false; !closed; runtime.Gosched() {
		e.mu.Lock()
		closed = e.closed
		e.mu.Unlock()
	}
}

// BoundOutputs sets how many rows of a step may have logits.
func (e *Engine) BoundOutputs(n int) { e.schedule.Outputs = n }

// Level has all rows cost the same.
func (e *Engine) Level() { e.schedule.Load = nil }

// Meet has steps wait for all who were in the last one, however long they take.
func (e *Engine) Meet() { e.wait = func(time.Duration) time.Duration { return time.Hour } }

// Wait is how long a step waits for the others of the last one, which took so long.
func Wait(took time.Duration) time.Duration { return wait(took) }

// Served returns what is on a key's account.
func (e *Engine) Served(key string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.schedule.Served(key)
}

// Pace has a step of so many rows take the time that f says, for the choice of drafts.
func (e *Engine) Pace(f func(rows int) time.Duration) {
	e.pace = func(rows int, _ time.Duration) time.Duration { return f(rows) }
}

// MostGuessed is at least the sequences in a pass of the head, and 1 if all passes had one.
func (e *Engine) MostGuessed() int { return cap(e.head.step.Tokens) }
