package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
)

// Model is a model, its names, and a way to load it.
type Model struct {
	Name    string
	Aliases []string

	// Model is a loaded model. Without Load it lives as long as the server, and the server does not close it.
	Model *karat.Model

	// Load loads the model at a request, if Model is nil or was closed. The load may take at most memory bytes of
	// memory; 0 is no bound. The server closes models it has loaded, and Model too, after Keep's time without a
	// request, when other models of its Device need the memory, and at its end; never while in use by a request.
	Load   func(ctx context.Context, memory int64) (*karat.Model, error)
	Keep   time.Duration // below 0 is for ever
	Device string        // owner of the memory; "" is this machine's

	Bytes   int64     // of its files, for lists of models
	Changed time.Time // its files, for lists of models
}

// entry is a model of the pool, loaded or not.
type entry struct {
	Model
	now     *served                  // nil if not loaded
	loading *load                    // under way, or nil
	keeps   map[string]time.Duration // times to stay wanted by past callers, by their keys' names
	uses    int                      // requests with the model in use, or waiting for it
	last    uint64                   // the pool's clock at its last use
	idle    time.Time
}

// load is a load under way.
type load struct {
	done chan struct{} // closed at its end
	err  error
	by   map[string]bool // keys waiting for the load: the first key in its turn loads
}

// pool has the models by their names. The pool loads models at request, one at a time, and closes the least needed:
// never a model in use.
type pool struct {
	open   func(ctx context.Context, e *entry, m *karat.Model) (*served, error) // makes a loaded model served
	log    *slog.Logger
	now    func() time.Time
	memory int64 // maximum for models in this machine's memory together; 0 is unknown
	most   int   // models loaded at a time; 0 is any number
	list   []*entry
	turn   chan struct{}   // held while loading or closing
	ctx    context.Context // of loads
	stop   context.CancelFunc
	work   sync.WaitGroup // loads and sweeps

	mu     sync.Mutex // guards the fields below, and entries
	tuned  []*tuned
	clock  uint64
	closed bool
	// turns has for each key a chain of its loads: a key with many models waits for itself
	turns map[string]chan struct{}
}

// errBusy is why a model is not loaded while others are in use.
var errBusy = errors.New("other models are in use, and take the memory that it needs")

// add takes a model in, and serves it if loaded.
func (p *pool) add(ctx context.Context, m Model) (err error) {
	if m.Model == nil && m.Load == nil {
		return fmt.Errorf("model %q is nil", m.Name)
	}
	for _, name := range append([]string{m.Name}, m.Aliases...) {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("the model's name %q is empty, or has control characters", name)
		}
		if p.find(name) != nil {
			return fmt.Errorf("two models are named %q", name)
		}
	}
	e := &entry{Model: m, keeps: map[string]time.Duration{}, idle: p.now()}
	if m.Model != nil {
		if e.now, err = p.open(ctx, e, m.Model); err != nil {
			return err
		}
	}
	p.list = append(p.list, e)
	return nil
}

// find returns the model of a name, nil if there is none.
func (p *pool) find(name string) *entry {
	for _, e := range p.list {
		if e.Name == name || slices.Contains(e.Aliases, name) {
			return e
		}
	}
	return nil
}

// take returns a model for use until give, loaded if necessary, for the key of a name. The end of ctx ends the waiting,
// and not the load, perhaps awaited by others.
func (p *pool) take(ctx context.Context, e *entry, who string) (*served, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.uses++
	for e.now == nil {
		if p.closed || e.Load == nil {
			e.uses--
			return nil, karat.ErrClosed
		}
		if e.loading == nil {
			e.loading = &load{done: make(chan struct{}), by: map[string]bool{}}
		}
		l := e.loading
		if !l.by[who] {
			l.by[who] = true
			if p.turns[who] == nil {
				p.turns[who] = make(chan struct{}, 1)
			}
			own := p.turns[who]
			p.work.Go(func() { p.load(e, l, own) })
		}
		p.mu.Unlock()
		var err error
		select {
		case <-l.done:
			err = l.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		p.mu.Lock()
		if err != nil {
			e.uses--
			return nil, err
		}
	}
	p.clock++
	e.last = p.clock
	if _, said := e.keeps[who]; !said {
		e.keeps[who] = e.Keep
	}
	return e.now, nil
}

// give ends a use.
func (p *pool) give(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.uses--; e.uses > 0 {
		return
	}
	if e.idle = p.now(); e.keep() == 0 && e.Load != nil && !p.closed {
		p.work.Go(p.sweep)
	}
}

// load loads a model, in whose place others may have to go, unless another key's turn came first.
func (p *pool) load(e *entry, l *load, own chan struct{}) {
	for _, turn := range []chan struct{}{own, p.turn} {
		turn <- struct{}{}
		defer func() { <-turn }()
	}
	p.mu.Lock()
	over := e.loading != l
	p.mu.Unlock()
	if over {
		return
	}
	now, err := p.loadOne(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now != nil {
		p.untune(now)
	}
	e.now, e.loading, l.err = now, nil, err
	close(l.done)
}

func (p *pool) loadOne(e *entry) (*served, error) {
	began := p.now()
	for {
		left, room := p.room(e.Device)
		if !room {
			if p.evict(e.Device) {
				continue
			}
			return nil, errBusy
		}
		m, err := e.Load(p.ctx, left)
		if errors.Is(err, karat.ErrMemory) && p.evict(e.Device) {
			continue
		}
		if errors.Is(err, karat.ErrMemory) && p.isBusy(e.Device) {
			return nil, errBusy
		}
		if err != nil {
			p.log.Error("model not loaded", "model", e.Name, "error", err.Error())
			return nil, err
		}
		x, err := p.open(p.ctx, e, m)
		if err != nil {
			p.log.Error("model not loaded", "model", e.Name, "error", err.Error())
			return nil, errors.Join(err, m.Close())
		}
		p.log.Info("model loaded", "model", e.Name, "ms", p.now().Sub(began).Milliseconds())
		return x, nil
	}
}

// room returns the memory left for another model, 0 if unknown, and whether there is any.
func (p *pool) room(device string) (left int64, room bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, loaded := p.memory, 0
	for _, e := range p.list {
		if e.now != nil && e.Device == device {
			left -= e.now.info.Memory
			loaded++
		}
	}
	if p.most > 0 && loaded >= p.most {
		return 0, false
	}
	if p.memory <= 0 || device != "" {
		return 0, true
	}
	return left, left > 0
}

// isBusy reports whether models of a device are in use.
func (p *pool) isBusy(device string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.list, func(e *entry) bool { return e.now != nil && e.Device == device })
}

// evict closes the least recently used model of a device without a user, if there is such a model. The caller has the
// turn.
func (p *pool) evict(device string) bool {
	p.mu.Lock()
	var oldest *entry
	for _, e := range p.list {
		if e.isIdle() && e.Device == device && (oldest == nil || e.last < oldest.last) {
			oldest = e
		}
	}
	if oldest == nil {
		p.mu.Unlock()
		return false
	}
	m := oldest.drop()
	p.mu.Unlock()
	p.close(m)
	return true
}

// isIdle reports whether the server may close the model.
func (e *entry) isIdle() bool { return e.now != nil && e.uses == 0 && e.Load != nil }

// drop takes the loaded model away from e.
func (e *entry) drop() *served {
	m := e.now
	e.now = nil
	clear(e.keeps)
	return m
}

// keep returns the time the model stays without requests: the longest time wanted by a past caller, so no key unloads
// the model of another. Below 0 is for ever.
func (e *entry) keep() time.Duration {
	if len(e.keeps) == 0 {
		return e.Keep
	}
	longest := time.Duration(0)
	for _, keep := range e.keeps {
		if keep < 0 {
			return keep
		}
		longest = max(longest, keep)
	}
	return longest
}

func (p *pool) close(m *served) {
	if err := m.model.Close(); err != nil {
		p.log.Error("model not closed", "model", m.name, "error", err.Error())
		return
	}
	p.log.Info("model closed", "model", m.name)
}

// sweep closes the models past their time. During a load sweep does nothing: the watch calls it each second, and has
// other work.
func (p *pool) sweep() {
	select {
	case p.turn <- struct{}{}:
	default:
		return
	}
	defer func() { <-p.turn }()
	var over []*served
	p.mu.Lock()
	for _, e := range p.list {
		if e.isIdle() && e.keep() >= 0 && p.now().Sub(e.idle) >= e.keep() {
			over = append(over, e.drop())
		}
	}
	p.mu.Unlock()
	for _, m := range over {
		p.close(m)
	}
}

// stay notes how long the key of a name wants an idle model to stay.
func (p *pool) stay(e *entry, who string, keep time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.keeps[who] = keep
}

// loaded calls see for the loaded models, and keeps them loaded meanwhile.
func (p *pool) loaded(see func(e *entry, m *served)) {
	for _, e := range p.list {
		p.mu.Lock()
		m := e.now
		if m != nil {
			e.uses++
		}
		p.mu.Unlock()
		if m == nil {
			continue
		}
		see(e, m)
		p.mu.Lock()
		e.uses--
		p.mu.Unlock()
	}
}

// state is an entry in lists of models.
type state struct {
	*entry
	now     *served // nil if not loaded
	keep    time.Duration
	expires time.Time
}

// states returns all models with their states now.
func (p *pool) states() (all []state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.list {
		x := state{entry: e, now: e.now, keep: e.keep()}
		if x.keep >= 0 && e.Load != nil {
			x.expires = p.now().Add(x.keep)
			if e.uses == 0 {
				x.expires = e.idle.Add(x.keep)
			}
		}
		all = append(all, x)
	}
	return all
}

// end closes the models the server may close. Requests under way end with ErrClosed.
func (p *pool) end() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.work.Wait()
	var all []*served
	p.mu.Lock()
	for _, e := range p.list {
		if e.now != nil && e.Load != nil {
			all = append(all, e.drop())
		}
	}
	p.mu.Unlock()
	for _, m := range all {
		p.close(m)
	}
}
