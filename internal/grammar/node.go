package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
)

type nodeKind uint8

const (
	regular nodeKind = iota // a part
	row                     // list in sequence
	choice                  // any element of list
	many                    // list[0], from min to max times
	rule                    // list[0], which may contain the rule
)

// node is a grammar above its regular parts.
type node struct {
	kind     nodeKind
	term     *term
	part     *part
	list     []*node
	min, max int32
	name     string // of a rule
	place    string // in the source

	id         uint32
	null       bool // the empty text fits
	productive bool // some text fits
	visit      visit
}

// builder makes the nodes of a grammar.
type builder struct {
	t     termTable
	nodes []*node

	ignored []string // paths without effect
	tokens  []token  // tokens named in the source
}

func newBuilder(w work) *builder { return &builder{t: newTermTable(w)} }

func (b *builder) node(n node) *node {
	b.t.burn(1 + len(n.list))
	b.t.take(nodeBytes + 8*len(n.list))
	x := new(node)
	*x = n
	x.place = b.t.place
	x.id = uint32(len(b.nodes))
	b.nodes = append(b.nodes, x)
	return x
}

func (b *builder) regular(t *term) *node  { return b.node(node{kind: regular, term: t}) }
func (b *builder) text(s string) *node    { return b.regular(b.t.text(s)) }
func (b *builder) row(l ...*node) *node   { return b.node(node{kind: row, list: l}) }
func (b *builder) rule(name string) *node { return b.node(node{kind: rule, name: name}) }

func (b *builder) choice(l ...*node) *node {
	if len(l) == 1 {
		return l[0]
	}
	return b.node(node{kind: choice, list: l})
}

func (b *builder) many(n *node, lo, hi int32) *node {
	return b.node(node{kind: many, list: []*node{n}, min: lo, max: hi})
}

// grammar makes the automaton of root's texts.
func (b *builder) grammar(root *node) (*Grammar, error) {
	g := &Grammar{terms: b.t, root: root, ignored: b.ignored, tokens: b.tokens, stacks: map[stackKey]*stack{},
		states: map[string]*state{}}
	g.gen.Store(new(generation))
	b.classify(g)
	t := &g.terms
	t.chars, t.met, t.sets = nil, nil, nil
	for _, x := range t.all {
		x.source = true
	}
	t.source, t.all = t.all, map[termKey]*term{}
	for _, n := range b.nodes {
		if n.kind == regular && n.term.part == nil {
			g.terms.place = n.place
			g.starts = append(g.starts, g.part(n.term))
		}
	}
	g.base = t.bytes
	t.kept, t.bytes, t.most = g.base, 0, maxBytes
	for _, n := range b.nodes {
		if n.kind == regular {
			t.place, n.part = n.place, n.term.part
			n.null, n.productive = n.term.null, g.isAlive(n.part)
		}
	}
	b.settle()
	if !root.productive {
		return nil, fmt.Errorf("no finite text fits it")
	}
	for _, n := range b.nodes {
		if err := n.checkLeftRecursion(); err != nil {
			return nil, err
		}
	}
	g.begin()
	g.terms.place = ""
	g.recount()
	return g, nil
}

// classify groups the bytes that no term tells apart.
func (b *builder) classify(g *Grammar) {
	for s := range b.t.sets {
		b.t.burn(32)
		// Each class is cut into the bytes inside and outside the set. Classes have numbers in the order of their first
		// bytes, whatever the order of the sets.
		var seen [512]int
		g.reps = g.reps[:0]
		for i := range 256 {
			half := 2*int(g.classes[i]) + int(s[i>>6]>>(i&63)&1)
			if seen[half] == 0 {
				g.reps = append(g.reps, byte(i))
				seen[half] = len(g.reps)
			}
			g.classes[i] = uint8(seen[half] - 1)
		}
		if len(g.reps) == 256 {
			break
		}
	}
	if len(g.reps) == 0 {
		g.reps = []byte{0}
	}
}

// settle finds the nodes that the empty text fits, and the nodes that some text fits, each once, and removes impossible
// choices.
func (b *builder) settle() {
	b.spread(func(n *node) *bool { return &n.null })
	b.spread(func(n *node) *bool { return &n.productive })
	for _, n := range b.nodes {
		switch {
		case n.kind == choice:
			n.list = slices.DeleteFunc(n.list, func(x *node) bool { return !x.productive })
		case n.kind == many && !n.list[0].productive:
			n.max = 0
		}
	}
}

// spread finds the nodes with a property that holds for a row if it holds for all of its list, and for other nodes if
// it holds for any element.
func (b *builder) spread(holds func(*node) *bool) {
	above := make([][]*node, len(b.nodes))
	missing := make([]int, len(b.nodes))
	var queue []*node
	for _, n := range b.nodes {
		missing[n.id] = min(1, len(n.list))
		if n.kind == row {
			missing[n.id] = len(n.list)
		}
		if n.kind == many && n.min == 0 || n.kind == row && len(n.list) == 0 {
			*holds(n) = true
		}
		for _, x := range n.list {
			above[x.id] = append(above[x.id], n)
		}
		if *holds(n) {
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, x := range above[n.id] {
			if missing[x.id]--; missing[x.id] == 0 && !*holds(x) {
				*holds(x) = true
				queue = append(queue, x)
			}
		}
	}
}

type visit uint8

const (
	fresh visit = iota
	open
	closed
)

// checkLeftRecursion fails for a rule that begins with itself, for which the automaton would never end.
func (n *node) checkLeftRecursion() error {
	switch n.visit {
	case closed:
		return nil
	case open:
		return fmt.Errorf("%s begins with itself (left recursion): put something before the recursion", n.name)
	}
	if n.kind == rule {
		n.visit = open
	}
	for _, x := range n.list {
		if err := x.checkLeftRecursion(); err != nil {
			return err
		}
		if n.kind == row && !x.null {
			break
		}
	}
	n.visit = closed
	return nil
}

// stack is the rest after a part: node n from place i on, or n, a many, i to j times more; then next. nil is empty.
type stack struct {
	n     *node
	i, j  int32
	next  *stack
	depth int
	uid   uint64
	after *state // state beginning with the stack
}

type stackKey struct {
	n, i, j uint32
	next    uint64
}

// push returns the unique equal stack, nil if the stack is too deep.
func (g *Grammar) push(n *node, i, j int32, next *stack) *stack {
	k := stackKey{n: n.id, i: uint32(i), j: uint32(j)}
	depth := 1
	if next != nil {
		k.next, depth = next.uid, next.depth+1
	}
	if depth > maxStack {
		return nil
	}
	s := g.stacks[k]
	if s == nil {
		s = &stack{n: n, i: i, j: j, next: next, depth: depth, uid: uids.Add(1)}
		g.stacks[k] = s
		g.terms.take(160)
	}
	return s
}

// config is a place in a text: a state of a part, and the rest after the part.
type config struct {
	p *part
	k *stack
}

// state is the set of places to which a text may have led.
type state struct {
	uid     uint64
	configs []config
	accept  bool // the text may end here
	next    []atomic.Pointer[state]
	gen     *generation
}

// dead reports whether no text leads here.
func (s *state) dead() bool { return !s.accept && len(s.configs) == 0 }

func (k *stack) id() uint64 {
	if k == nil {
		return 0
	}
	return k.uid
}

// state returns the unique state with these places, after sorting them.
func (g *Grammar) state(configs []config, accept bool) *state {
	slices.SortFunc(configs, func(a, b config) int {
		if a.p != b.p {
			return int(int64(a.p.uid) - int64(b.p.uid))
		}
		return int(int64(a.k.id()) - int64(b.k.id()))
	})
	configs = slices.Compact(configs)
	if len(configs) > maxAlt {
		panic(tooMuch{errComplex})
	}
	g.key = g.key[:0]
	if accept {
		g.key = append(g.key, 1)
	}
	for _, c := range configs {
		g.key = binary.LittleEndian.AppendUint64(g.key, c.p.uid)
		g.key = binary.LittleEndian.AppendUint64(g.key, c.k.id())
	}
	s := g.states[string(g.key)]
	if s == nil {
		s = &state{uid: uids.Add(1), configs: append(make([]config, 0, len(configs)), configs...), accept: accept,
			next: make([]atomic.Pointer[state], len(g.reps)), gen: g.gen.Load()}
		g.terms.take(160 + 40*len(configs) + 8*len(g.reps))
		g.states[string(g.key)] = s
	}
	return s
}

// expansion finds the parts with which a text may go on.
type expansion struct {
	g       *Grammar
	configs []config
	accept  bool
	seen    map[visited]bool
}

type visited struct {
	n    *node
	i, j int32
	k    *stack
}

func (e *expansion) state() *state { return e.g.state(e.configs, e.accept) }

// met reports whether a place was met before.
func (e *expansion) met(n *node, i, j int32, k *stack) bool {
	e.g.terms.burn(1)
	v := visited{n, i, j, k}
	if e.seen[v] {
		return true
	}
	if e.seen == nil {
		e.seen = map[visited]bool{}
	}
	e.seen[v] = true
	return false
}

func (e *expansion) node(n *node, k *stack) {
	e.g.terms.burn(1)
	if !n.productive {
		return
	}
	switch n.kind {
	case regular:
		if !n.part.last {
			e.configs = append(e.configs, config{n.part, k})
		}
		if n.part.accept {
			e.stack(k)
		}
	case row:
		e.row(n, 0, k)
	case choice:
		if e.met(n, 0, 0, k) {
			return
		}
		for _, x := range n.list {
			e.node(x, k)
		}
	case many:
		e.many(n, n.min, n.max, k)
	case rule:
		e.node(n.list[0], k)
	}
}

// row goes on with n's list from i on.
func (e *expansion) row(n *node, i int32, k *stack) {
	if int(i) == len(n.list) {
		e.stack(k)
		return
	}
	if int(i) < len(n.list)-1 {
		if k = e.g.push(n, i+1, 0, k); k == nil {
			return
		}
	}
	e.node(n.list[i], k)
}

// many goes on with n, lo to hi times.
func (e *expansion) many(n *node, lo, hi int32, k *stack) {
	if e.met(n, lo, hi, k) {
		return
	}
	if lo == 0 || n.list[0].null {
		e.stack(k)
	}
	if hi == 0 {
		return
	}
	if hi != 1 {
		if hi != inf {
			hi--
		}
		if k = e.g.push(n, max(lo-1, 0), hi, k); k == nil {
			return
		}
	}
	e.node(n.list[0], k)
}

// stack goes on with the rest after a part.
func (e *expansion) stack(k *stack) {
	switch {
	case k == nil:
		e.accept = true
	case k.n.kind == many:
		e.many(k.n, k.i, k.j, k.next)
	default:
		e.row(k.n, k.i, k.next)
	}
}

// after returns the state that begins with a stack.
func (g *Grammar) after(k *stack) *state {
	if k == nil {
		return g.end
	}
	if k.after == nil {
		e := expansion{g: g}
		e.stack(k)
		k.after = e.state()
	}
	return k.after
}

// follow returns the state after a byte of class c.
func (g *Grammar) follow(s *state, c uint8) *state {
	if t := s.next[c].Load(); t != nil {
		return t
	}
	g.terms.burn(1 + len(s.configs))
	var all []config
	accept := false
	for _, x := range s.configs {
		p := g.step(x.p, c)
		if p.life == dead {
			continue
		}
		if !p.last {
			all = append(all, config{p, x.k})
		}
		if p.accept {
			t := g.after(x.k)
			all, accept = append(all, t.configs...), accept || t.accept
		}
	}
	t := g.state(all, accept)
	s.next[c].Store(t)
	return t
}

// part is a state of a regular part: a term, and the next part for each class of bytes.
type part struct {
	t       *term
	uid     uint64
	accept  bool // the part may end here
	last    bool // and cannot go on
	life    life
	next    []*part // by class; nil is not known yet
	loops   uint32  // sorts of bytes that lead back here, and looped once known
	clamped [levels]*part
}

// life is whether anything fits a term.
type life uint8

const (
	unknown life = iota
	alive
	dead
)

// part returns the state for a term. g.mu is held.
func (g *Grammar) part(t *term) *part {
	if t.part == nil {
		p := &part{t: t, uid: uids.Add(1), accept: t.null, last: t.kind == empty, next: make([]*part, len(g.reps))}
		switch {
		case t.kind == never:
			p.life = dead
		case t.null || !t.bool:
			p.life = alive
		}
		t.part = p
		g.terms.take(160 + 8*len(g.reps))
	}
	return t.part
}

// step returns the state after p and a byte of class c, the dead state if nothing fits.
func (g *Grammar) step(p *part, c uint8) *part {
	if q := p.next[c]; q != nil {
		return q
	}
	q := g.part(g.terms.derive(p.t, g.reps[c]))
	if !g.isAlive(q) {
		q = g.part(g.terms.none)
	}
	p.next[c] = q
	return q
}

// searched is the cost in steps of a state kept by a search: some 700 bytes.
const searched = 32

// isAlive reports whether any text fits p. Terms without kinds both and not know the answer; others are searched for an
// accepting state.
func (g *Grammar) isAlive(p *part) bool {
	if p.life != unknown {
		return p.life == alive
	}
	type visit struct {
		p    *part
		from int
	}
	seen := map[*part]bool{p: true}
	queue := []visit{{p, -1}}
	for i := 0; i < len(queue); i++ {
		for _, b := range g.reps {
			q := g.part(g.terms.derive(queue[i].p.t, b))
			if q.life == alive {
				for j := i; j >= 0; j = queue[j].from {
					queue[j].p.life = alive
				}
				return true
			}
			if q.life == unknown && !seen[q] {
				seen[q] = true
				g.terms.burn(searched)
				queue = append(queue, visit{q, i})
			}
		}
	}
	for _, v := range queue {
		v.p.life = dead
	}
	return false
}

// clampedPart returns p for the tokens of a level.
func (g *Grammar) clampedPart(p *part, level int) *part {
	if !p.t.counts {
		return p
	}
	if p.clamped[level] == nil {
		p.clamped[level] = g.part(g.terms.clamp(p.t, level))
	}
	return p.clamped[level]
}

// looped marks the loops of a part as known.
const looped = 1 << 31

// loops returns the sorts of bytes that leave p unchanged.
func (g *Grammar) loops(p *part) uint32 {
	if p.loops != 0 {
		return p.loops &^ looped
	}
	known := ^uint32(0)
	for b, sort := range sorts {
		if g.step(p, g.classes[b]) != p {
			known &^= 1 << sort
		}
	}
	p.loops = known | looped
	return known &^ looped
}
