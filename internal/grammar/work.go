package grammar

import (
	"context"
	"fmt"
	"slices"
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
