package grammar

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// Limits of a piece of work. Steps are counted, not time, so that a grammar compiles on every machine or on none.
const (
	maxCompile = 1 << 23  // steps to compile a source: about a second
	maxFuel    = 1 << 21  // steps for the tokens of a state
	maxTerms   = 64 << 20 // bytes of the terms and nodes of a source
	// bytes built by texts. Once half of them are used, all is forgotten, and built again when met
	maxBytes = 32 << 20
)

// work is the rest of a piece of work.
type work struct {
	fuel  int
	bytes int // built so far, about
	most  int // maximum of bytes
	kept  int // bytes of all else
	ctx   context.Context
	share *Share
	place string // in the source, for errors; "" while a text is read
}

// errTooMuch reports a source that takes too much work.
type errTooMuch struct{ place, what string }

func (e errTooMuch) Error() string {
	return e.place + ": it is too complex: " + e.what + ". Make it simpler"
}

// burn takes steps off the fuel.
func (w *work) burn(n int) {
	before := w.fuel
	if w.fuel -= n; w.fuel < 0 {
		w.giveUp("compiling it takes too many steps")
	}
	if before>>14 == w.fuel>>14 {
		return
	}
	if err := w.ctx.Err(); err != nil {
		panic(tooMuch{err})
	}
	if w.place == "" {
		w.share.pass(w.ctx)
	}
}

// take counts bytes built.
func (w *work) take(n int) {
	before := w.bytes
	if w.bytes += n; w.bytes >= w.most {
		w.giveUp(fmt.Sprintf("it takes more than %d MiB", w.most>>20))
	}
	if before>>16 != w.bytes>>16 {
		w.share.hold(w.kept + w.bytes)
	}
}

func (w *work) giveUp(what string) {
	if w.place == "" {
		panic(tooMuch{errComplex})
	}
	panic(tooMuch{errTooMuch{w.place, what}})
}

// compile makes a grammar of a source's node.
func compile(ctx context.Context, s *Share, source func(b *builder) (*node, error)) (g *Grammar, err error) {
	if s == nil {
		s = &Share{}
	} else {
		if err := s.room.compiling.enter(ctx, s.key); err != nil {
			s.Free()
			return nil, err
		}
		defer s.room.compiling.leave(s.key)
	}
	defer func() {
		if err != nil {
			s.Free()
		}
	}()
	defer caught(&err)
	b := newBuilder(work{fuel: maxCompile, most: maxTerms, ctx: ctx, share: s, place: "the source"})
	root, err := source(b)
	if err != nil {
		return nil, err
	}
	if root == nil {
		giveUp("a text of any form needs no grammar")
	}
	return b.grammar(root)
}

// forget drops everything built by texts. g.mu is held.
func (g *Grammar) forget() {
	for _, x := range g.terms.source {
		x.part, x.d, x.clamped = nil, nil, [levels]*term{}
	}
	g.terms.all = map[termKey]*term{}
	g.stacks, g.states = map[stackKey]*stack{}, map[string]*state{}
	for _, p := range g.starts {
		p.t.part = p
		p.loops, p.clamped = 0, [levels]*part{}
		clear(p.next)
	}
	g.gen.Load().bytes = g.terms.bytes
	g.gen.Store(new(generation))
	g.terms.bytes = 0
	g.begin()
	g.recount()
}

// begin makes the states in which texts begin and end.
func (g *Grammar) begin() {
	g.end = g.state(nil, true)
	e := expansion{g: g}
	e.node(g.root, nil)
	g.start.Store(e.state())
}

// recount counts the bytes of the grammar, including older states still held by a matcher. g.mu is held.
func (g *Grammar) recount() {
	g.prune()
	old := map[*generation]bool{}
	for _, p := range g.matchers {
		if m := p.Value(); m != nil && m.gen.Load() != g.gen.Load() {
			old[m.gen.Load()] = true
		}
	}
	g.terms.kept = g.base
	for gen := range old {
		g.terms.kept += gen.bytes
	}
	g.terms.share.hold(g.terms.kept + g.terms.bytes)
}

// prune drops the matchers that are gone.
func (g *Grammar) prune() {
	g.matchers = slices.DeleteFunc(g.matchers, func(p weak.Pointer[Matcher]) bool { return p.Value() == nil })
}

// ErrRoom reports that a room has no more memory for a grammar.
var ErrRoom = fmt.Errorf("%w: the grammars of all answers take too much memory now", ErrGrammar)

// Room is shared by several grammars: a bound for their memory, and processors. Half of the memory is for the first
// callers. The other half is divided equally among the keys, and each part is for the key's grammars.
type Room struct {
	most      int64
	used      atomic.Int64
	mu        sync.Mutex
	shares    map[string]int64 // by key
	compiling turns
	matching  turns // for pieces of work that turn out to be long
}

// NewRoom makes a room of so many bytes.
func NewRoom(bytes int) *Room {
	return &Room{most: int64(bytes), shares: map[string]int64{}, compiling: turns{free: 2},
		matching: turns{free: max(1, runtime.GOMAXPROCS(0)/2)}}
}

// Used returns the approximate bytes of all grammars.
func (r *Room) Used() int { return int(r.used.Load()) }

// Share returns a grammar's share of a room, for the caller with a key. A caller's grammars are compiled in sequence.
func (r *Room) Share(key string) *Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shares[key]++
	return &Share{room: r, key: key}
}

// Share is a grammar's share of a room.
type Share struct {
	room  *Room
	key   string
	held  atomic.Int64
	steps atomic.Int64 // of texts, since Matcher.Steps was called
	turn  bool         // has a turn at matching
}

// Free gives the share back to its room.
func (s *Share) Free() {
	if s.room == nil {
		return
	}
	s.room.used.Add(-s.held.Swap(0))
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.room.shares[s.key]--; s.room.shares[s.key] <= 0 {
		delete(s.room.shares, s.key)
	}
}

// hold notes that the grammar takes so many bytes.
func (s *Share) hold(n int) {
	more := int64(n) - s.held.Swap(int64(n))
	if s.room == nil {
		return
	}
	if s.room.used.Add(more); more > 0 && s.crowded(1) {
		panic(tooMuch{ErrRoom})
	}
}

// crowded reports whether the grammar takes more than a part of its maximum.
func (s *Share) crowded(parts int64) bool {
	if s.room == nil {
		return false
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	half, shares := s.room.most/2, int64(len(s.room.shares))*s.room.shares[s.key]
	return s.room.used.Load() > half && s.held.Load() > half/max(1, shares)/parts
}

// pass lets others have a turn, in the midst of a long piece of matching.
func (s *Share) pass(ctx context.Context) {
	if s.room == nil {
		return
	}
	s.rest()
	if err := s.room.matching.enter(ctx, s.key); err != nil {
		panic(tooMuch{err})
	}
	s.turn = true
}

// rest ends the turn.
func (s *Share) rest() {
	if s.turn {
		s.turn = false
		s.room.matching.leave(s.key)
	}
}

// turns lets a few callers work at a time, one of each key. Waiting keys come in sequence.
type turns struct {
	mu      sync.Mutex
	free    int
	busy    map[string]bool
	waiting map[string][]chan struct{}
	order   []string // waiting keys
}

// enter waits for a turn.
func (t *turns) enter(ctx context.Context, key string) error {
	t.mu.Lock()
	if t.busy == nil {
		t.busy, t.waiting = map[string]bool{}, map[string][]chan struct{}{}
	}
	mine := make(chan struct{}, 1)
	if len(t.waiting[key]) == 0 {
		t.order = append(t.order, key)
	}
	t.waiting[key] = append(t.waiting[key], mine)
	t.grant()
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting[key], mine)
	if i >= 0 {
		t.waiting[key] = slices.Delete(t.waiting[key], i, i+1)
		t.drop(key)
	}
	t.mu.Unlock()
	if i < 0 { // it was granted
		t.leave(key)
	}
	return ctx.Err()
}

// leave ends a turn.
func (t *turns) leave(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, key)
	t.free++
	t.grant()
}

// grant gives the free turns to waiting callers. t.mu is held.
func (t *turns) grant() {
	for _, key := range slices.Clone(t.order) {
		if t.free == 0 {
			return
		}
		if t.busy[key] {
			continue
		}
		i := slices.Index(t.order, key)
		t.order = append(slices.Delete(t.order, i, i+1), key)
		t.waiting[key][0] <- struct{}{}
		t.waiting[key] = t.waiting[key][1:]
		t.busy[key] = true
		t.free--
		t.drop(key)
	}
}

// drop forgets a key without waiting callers. t.mu is held.
func (t *turns) drop(key string) {
	if len(t.waiting[key]) == 0 {
		delete(t.waiting, key)
		t.order = slices.DeleteFunc(t.order, func(k string) bool { return k == key })
	}
}
