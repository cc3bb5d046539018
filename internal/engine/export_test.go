package engine

import "time"

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

// WaitQueued waits until n callers have queued work.
func (e *Engine) WaitQueued(n int) {
	for e.Queued() < n {
		time.Sleep(50 * time.Microsecond)
	}
}

// Queued is the number of callers whose work is queued or computed.
func (e *Engine) Queued() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue)
}

// WaitClosed waits until Close has been called.
func (e *Engine) WaitClosed() {
	for closed := false; !closed; time.Sleep(50 * time.Microsecond) {
		e.mu.Lock()
		closed = e.closed
		e.mu.Unlock()
	}
}

// BoundOutputs sets how many rows of a step may have logits.
func (e *Engine) BoundOutputs(n int) { e.outputs = n }
