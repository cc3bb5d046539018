package engine

import "time"

// Hold keeps the engine from computing until the returned function is called:
// work that is queued meanwhile goes into common steps.
func (e *Engine) Hold() (release func()) {
	e.run.Lock()
	return e.run.Unlock
}

// WaitQueued waits until n callers have queued work.
func (e *Engine) WaitQueued(n int) {
	for e.queued() < n {
		time.Sleep(50 * time.Microsecond)
	}
}

func (e *Engine) queued() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending)
}

// WaitClosed waits until Close has been called.
func (e *Engine) WaitClosed() {
	for closed := false; !closed; time.Sleep(50 * time.Microsecond) {
		e.mu.Lock()
		closed = e.closed
		e.mu.Unlock()
	}
}
