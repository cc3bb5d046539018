package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat"
)

// An engine with work and without progress in so many looks, one each second, is stuck. A step of a large model takes
// seconds; none takes a minute.
const (
	stuckAfter = 60
	lookEvery  = time.Second
)

// watch tells whether an engine goes on, by counting.
type watch struct {
	last  karat.Stats
	still int
	stuck atomic.Bool
}

// look compares the engine's progress with the last look's.
func (w *watch) look(now karat.Stats) {
	moved := now.Steps != w.last.Steps || now.Finished != w.last.Finished
	if w.last = now; moved || now.Busy == 0 {
		w.still = 0
	} else {
		w.still++
	}
	w.stuck.Store(w.still >= stuckAfter)
}

func (s *Server) watchAll(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.look()
			s.pool.sweep()
			s.kept.recent.expire()
			if s.store != nil {
				s.store.expire(s.now())
			}
		}
	}
}

// look calls the watches of all engines.
func (s *Server) look() {
	s.pool.loaded(func(_ *entry, m *served) { m.watch.look(s.stats(m.model)) })
}

// showHealth answers GET /health: whether the server can do its work.
func showHealth(x *exchange) any {
	for _, m := range x.s.pool.states() {
		if m.now != nil && m.now.watch.stuck.Load() {
			return &problem{status: http.StatusServiceUnavailable, kind: "server_error", code: "stuck",
				message: "The engine has work, and does not go on"}
		}
	}
	return map[string]string{"status": "ok"}
}

// showReady answers GET /ready: whether the server takes requests.
func showReady(x *exchange) any {
	if x.s.door.isShut() {
		return unavailable("The server is shutting down")
	}
	return showHealth(x)
}

// door counts the requests under way. Once shut, the door lets no more in.
type door struct {
	mu    sync.Mutex
	in    int
	empty chan struct{} // closed when the last request has ended; nil while the door is open
}

// enter lets a request in, and reports whether the door is open.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.empty != nil {
		return false
	}
	d.in++
	return true
}

// leave ends a request.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.in--; d.in == 0 && d.empty != nil {
		close(d.empty)
	}
}

// shut lets no further request in. The returned channel is closed at the end of the last request.
func (d *door) shut() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.empty == nil {
		if d.empty = make(chan struct{}); d.in == 0 {
			close(d.empty)
		}
	}
	return d.empty
}

func (d *door) isShut() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.empty != nil
}
