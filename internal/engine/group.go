package engine

import (
	"slices"
	"sync"
	"sync/atomic"
)

// group is the engines of one pool of keys and values (Options.With). One of them computes at a time. An engine that finds no
// room gets the pages that the others' idle sequences have. If that is not enough, the others start nothing until it goes
// on, and one that finds no room either gives up all of its pages: they are computed again later.
type group struct {
	between sync.Mutex // held while a step is chosen and computed, or a state carried; before each engine's mu

	first atomic.Pointer[Engine] // the one that waits for room, and came first

	mu      sync.Mutex
	engines []*Engine
}

func (g *group) add(e *Engine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engines = append(g.engines, e)
}

func (g *group) remove(e *Engine) {
	g.unstick(e)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engines = slices.DeleteFunc(g.engines, func(x *Engine) bool { return x == e })
}

// others returns the engines beside e.
func (g *group) others(e *Engine) []*Engine {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.engines), func(x *Engine) bool { return x == e })
}

// makeRoom frees what others than e hold and do not need, and reports whether there was any. The caller holds between and e.mu.
func (g *group) makeRoom(e *Engine) (any bool) {
	others := g.others(e)
	if len(others) == 0 || !g.first.CompareAndSwap(nil, e) && g.first.Load() != e {
		return false
	}
	for _, x := range others {
		x.mu.Lock()
		any = x.yield(false) || any
		x.mu.Unlock()
	}
	return any
}

// holdsBack reports whether e starts nothing, since another engine waits for room.
func (g *group) holdsBack(e *Engine) bool {
	f := g.first.Load()
	return f != nil && f != e
}

// unstick notes that e waits for no room.
func (g *group) unstick(e *Engine) {
	if g.first.CompareAndSwap(e, nil) {
		for _, x := range g.others(e) {
			x.signal()
		}
	}
}

// freed tells the engine that waits for room of another's pages.
func (g *group) freed() {
	if f := g.first.Load(); f != nil {
		f.signal()
	}
}

// yield gives up the pages of sequences that nobody asks for or that wait to run, or of all, and reports whether there were any.
// The caller holds mu, and no step of e is under way.
func (e *Engine) yield(all bool) (any bool) {
	for _, x := range e.live {
		if x.pages.Pages() > 0 && (all || !x.runs || e.idle(x)) {
			e.preempt(x, nil)
			any = true
		}
	}
	return any
}
