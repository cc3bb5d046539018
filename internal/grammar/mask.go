package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/karat-run/karat/internal/sample"
)

// key names the subject of a mask: a state, a part in a trie, or the continuation of a state after such a part.
type key struct {
	kind       keyKind
	trie       uint8
	uid, after uint64
	text       sum // of a part, perhaps shared with other grammars
}

type keyKind uint8

const (
	ofState keyKind = iota
	ofPart
	afterPart
)

// maxListed is the maximal number of tokens that a mask lists.
const maxListed = 1 << 10

// candidates holds possible next tokens, and the nodes of the trie at which a part may end.
type candidates struct {
	mask  sample.Mask
	exits []int32
}

func (f *candidates) bytes() int {
	return 160 + 4*len(f.mask.IDs) + 8*len(f.mask.Bits) + 4*len(f.exits)
}

// get returns the entry of a key.
func (v *Vocabulary) get(k key) *candidates {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.young[k]; f != nil {
		return f
	}
	f := v.old[k]
	if f != nil {
		v.keep(k, f)
	}
	return f
}

func (v *Vocabulary) put(k key, f *candidates) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keep(k, f)
}

// keep adds to the young masks. v.mu is held.
func (v *Vocabulary) keep(k key, f *candidates) {
	if v.bytes += f.bytes(); v.bytes > maxCache/2 {
		v.old, v.young, v.bytes = v.young, map[key]*candidates{}, f.bytes()
	}
	v.young[k] = f
}

// walker finds tokens. A walker serves a single goroutine at a time.
type walker struct {
	bits   []uint64 // all 0 between uses
	parts  []*part
	states []*state
	walked int // nodes, since the last spend

	last []*candidates // sources of the newest mask, if its state does not accept
	same *candidates   // the newest mask
}

// borrow returns an unused walker.
func (v *Vocabulary) borrow() *walker {
	v.mu.Lock()
	w := v.walker
	v.walker = nil
	v.mu.Unlock()
	if w == nil {
		deep := 1
		for i := range v.trie {
			deep = max(deep, v.trie[i].deep+1)
		}
		w = &walker{bits: make([]uint64, (v.size+63)/64), parts: make([]*part, deep), states: make([]*state, deep)}
	}
	return w
}

// giveBack keeps a walker for the next caller. The walker holds no states.
func (v *Vocabulary) giveBack(w *walker) {
	clear(w.parts)
	clear(w.states)
	v.mu.Lock()
	v.walker = w
	v.mu.Unlock()
}

func (w *walker) set(ids []int32) {
	for _, id := range ids {
		w.bits[id>>6] |= 1 << (id & 63)
	}
}

// take returns the tokens set, and clears the set.
func (w *walker) take() sample.Mask {
	n := 0
	for _, x := range w.bits {
		n += bits.OnesCount64(x)
	}
	var m sample.Mask
	if n > maxListed {
		m.Bits = append([]uint64(nil), w.bits...)
		clear(w.bits)
		return m
	}
	m.IDs = make([]int32, 0, n)
	for i, x := range w.bits {
		for ; x != 0; x &= x - 1 {
			m.IDs = append(m.IDs, int32(i<<6+bits.TrailingZeros64(x)))
		}
		w.bits[i] = 0
	}
	return m
}

// add sets the tokens of a mask.
func (w *walker) add(m *sample.Mask) {
	for i, x := range m.Bits {
		w.bits[i] |= x
	}
	w.set(m.IDs)
}

// mask returns the possible next tokens in a state, and the state, perhaps built anew.
func (v *Vocabulary) mask(ctx context.Context, g *Grammar, s *state, named []namedToken) (*state, *sample.Mask, error) {
	k := key{kind: ofState, uid: s.uid}
	if f := v.get(k); f != nil {
		return s, &f.mask, nil
	}
	var f *candidates
	err := g.piece(ctx, s, func(now *state) {
		s = now
		f = v.find(g, s, named)
	})
	if err != nil {
		return nil, nil, err
	}
	k.uid = s.uid
	v.put(k, f)
	return s, &f.mask, nil
}

// find finds the possible next tokens in a state.
func (v *Vocabulary) find(g *Grammar, s *state, named []namedToken) *candidates {
	w := v.borrow()
	done := false
	defer func() {
		if !done {
			clear(w.bits)
		}
		v.giveBack(w)
	}()
	var all []*candidates
	for _, c := range s.configs {
		for i := range v.trie {
			if len(v.trie[i].nodes) == 0 {
				continue
			}
			p := g.clampedPart(c.p, i)
			f := v.walkPart(w, g, p, uint8(i))
			all = append(all, f)
			if c.k != nil && len(f.exits) > 0 {
				all = append(all, v.walkExits(w, g, p, uint8(i), f.exits, g.after(c.k)))
			}
		}
	}
	special := w.addNamed(g, v, s, named)
	done = true
	if !s.accept && !special && w.same != nil && slices.Equal(all, w.last) {
		return w.same // as within a long string
	}
	for _, f := range all {
		w.add(&f.mask)
	}
	if s.accept {
		w.set(v.ends)
	}
	f := &candidates{mask: w.take()}
	if !s.accept && !special {
		w.last, w.same = all, f
	}
	return f
}

// walkPart returns the tokens, and beginnings of tokens, that stay within a part.
func (v *Vocabulary) walkPart(w *walker, g *Grammar, p *part, i uint8) *candidates {
	k := key{kind: ofPart, trie: i, text: g.terms.digest(p.t)}
	if f := v.get(k); f != nil {
		return f
	}
	f, t := new(candidates), &v.trie[i]
	w.parts[0] = p
	for n := int32(0); int(n) < len(t.nodes); w.walked++ {
		x := &t.nodes[n]
		from, c := w.parts[x.depth-1], g.classes[x.byte]
		q := g.step(from, c)
		if q.life == dead {
			n = x.end
			continue
		}
		w.parts[x.depth] = q
		if q == from && x.below != 0 && !q.accept && x.below&^g.loops(q) == 0 {
			w.set(t.tokens(n)) // nothing below changes the state
			n = x.end
			continue
		}
		if x.count > 0 {
			w.set(t.ids[x.first : x.first+int32(x.count)])
		}
		n++
		if q.accept && n < x.end {
			f.exits = append(f.exits, n-1)
		}
		if q.last {
			n = x.end
		}
	}
	w.spend(g)
	f.mask = w.take()
	v.put(k, f)
	return f
}

// walkExits returns the tokens that end part p at one of its exits, before their last byte, and go on in state s.
func (v *Vocabulary) walkExits(w *walker, g *Grammar, p *part, i uint8, exits []int32, s *state) *candidates {
	k := key{kind: afterPart, trie: i, uid: p.uid, after: s.uid}
	if f := v.get(k); f != nil {
		return f
	}
	for _, n := range exits {
		w.setBelow(g, &v.trie[i], n, s)
	}
	w.spend(g)
	f := &candidates{mask: w.take()}
	v.put(k, f)
	return f
}

// setBelow sets the tokens below a node at which state s begins.
func (w *walker) setBelow(g *Grammar, t *trie, from int32, s *state) {
	base := t.nodes[from].depth
	w.states[base] = s
	for n, end := from+1, t.nodes[from].end; n < end; w.walked++ {
		x := &t.nodes[n]
		from, c := w.states[x.depth-1], g.classes[x.byte]
		s := from.next[c].Load()
		if s == nil {
			s = g.follow(from, c)
		}
		if s.dead() || len(s.configs) == 0 && x.count == 0 {
			n = x.end
			continue
		}
		w.states[x.depth] = s
		if x.count > 0 {
			w.set(t.ids[x.first : x.first+int32(x.count)])
		}
		n++
	}
}

// spend counts the nodes walked, which cost far less than other steps.
func (w *walker) spend(g *Grammar) {
	n := w.walked / 64
	w.walked = 0
	g.terms.burn(n)
}

// Matcher is a growing text that must fit a grammar. A Matcher serves a single goroutine at a time.
type Matcher struct {
	g     *Grammar
	v     *Vocabulary
	named []namedToken    // tokens named in the grammar
	ctx   context.Context // context of the work
	s     *state
	gen   atomic.Pointer[generation] // of s
	ended bool
}

// Match begins a text. Work for the text ends with ctx. A grammar naming a token absent from the vocabulary is an
// error.
func (g *Grammar) Match(ctx context.Context, v *Vocabulary) (*Matcher, error) {
	named, err := v.findNamed(g)
	if err != nil {
		return nil, err
	}
	m := &Matcher{g: g, v: v, named: named, ctx: ctx}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.at(g.start.Load())
	g.matchers = append(g.matchers, weak.Make(m))
	if len(g.matchers) > 64 {
		g.prune()
	}
	return m, nil
}

// at goes on to a state.
func (m *Matcher) at(s *state) {
	if m.s = s; m.gen.Load() != s.gen {
		m.gen.Store(s.gen)
	}
}

// Mask returns the possible next tokens, including tokens that end the text if the text fits the grammar. The mask is
// shared and must not be changed.
func (m *Matcher) Mask() (*sample.Mask, error) {
	if m.ended {
		return nil, errors.New("the text has ended")
	}
	s, mask, err := m.v.mask(m.ctx, m.g, m.s, m.named)
	if err != nil {
		return nil, err
	}
	m.at(s)
	if mask.Bits == nil && len(mask.IDs) == 0 {
		return nil, errStuck
	}
	return mask, nil
}

// Accept goes on with a token.
func (m *Matcher) Accept(id int) error {
	if m.ended || id < 0 || id >= m.v.size {
		return fmt.Errorf("token %d does not come next", id)
	}
	if m.ended = m.s.accept && m.v.isEnd(int32(id)); m.ended {
		return nil
	}
	s, err := m.readToken(id)
	if err == nil && s.dead() {
		err = fmt.Errorf("token %d, %q, does not come next", id, m.v.text[id])
	}
	if err != nil {
		return err
	}
	m.at(s)
	return nil
}

// Forced returns the bytes with which every fitting text goes on, at most most.
func (m *Matcher) Forced(most int) (text []byte, err error) {
	if m.ended {
		return nil, nil
	}
	err = m.g.piece(m.ctx, m.s, func(s *state) {
		text = text[:0] // of a first try
		for len(text) < most && !s.accept {
			c, next := m.g.only(s)
			if next == nil {
				break
			}
			text, s = append(text, c), next
		}
	})
	return text, err
}

// only returns the only byte that may come next, and the state behind the byte; nil if there are several.
func (g *Grammar) only(s *state) (c byte, next *state) {
	for i, rep := range g.reps {
		t := g.follow(s, uint8(i))
		switch {
		case t.dead():
		case next != nil:
			return 0, nil
		default:
			c, next = rep, t
		}
	}
	for b := int(c) + 1; next != nil && b < len(g.classes); b++ { // c is the first of its class
		if g.classes[b] == g.classes[c] {
			return 0, nil
		}
	}
	return c, next
}

// Steps returns the steps taken by texts of the grammar since the last call.
func (m *Matcher) Steps() int { return int(m.g.terms.share.steps.Swap(0)) }

// Complete reports whether the text fits the grammar.
func (m *Matcher) Complete() bool { return m.s.accept }

func (v *Vocabulary) isEnd(id int32) bool { return slices.Contains(v.ends, id) }

// read returns the state after bytes.
func (g *Grammar) read(ctx context.Context, s *state, b []byte) (*state, error) {
	next := s
	for i := 0; i < len(b) && next != nil && next.gen == g.gen.Load(); i++ {
		next = next.next[g.classes[b[i]]].Load()
	}
	if next != nil && next.gen == g.gen.Load() { // all was met before
		return next, nil
	}
	err := g.piece(ctx, s, func(now *state) {
		s = g.passed(now, b)
	})
	return s, err
}

// piece does a piece of work from a state, built anew if it was forgotten.
func (g *Grammar) piece(ctx context.Context, s *state, do func(s *state)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.terms.ctx = ctx
	defer func() {
		g.terms.share.rest()
		g.terms.ctx = context.Background()
	}()
	err := g.try(g.terms.bytes > maxBytes/2 || g.terms.share.crowded(2), s, do)
	if errors.Is(err, ErrRoom) {
		err = g.try(true, s, do)
	}
	return err
}

func (g *Grammar) try(forget bool, s *state, do func(s *state)) (err error) {
	defer caught(&err)
	defer func() { g.terms.share.steps.Add(int64(maxFuel - g.terms.fuel)) }()
	g.terms.fuel = maxFuel
	if forget {
		g.forget()
	}
	if s.gen != g.gen.Load() {
		s = g.rebuild(s)
	}
	do(s)
	return nil
}

// rebuild returns a forgotten state, built anew.
func (g *Grammar) rebuild(s *state) *state {
	terms, stacks := map[*term]*term{}, map[*stack]*stack{nil: nil}
	var push func(k *stack) *stack
	push = func(k *stack) *stack {
		if _, ok := stacks[k]; !ok {
			stacks[k] = g.push(k.n, k.i, k.j, push(k.next))
		}
		return stacks[k]
	}
	var configs []config
	for _, c := range s.configs {
		p := g.part(copyTerm(&g.terms, c.p.t, terms))
		p.life = c.p.life
		configs = append(configs, config{p, push(c.k)})
	}
	return g.state(configs, s.accept)
}

// Fits reports whether a whole text fits the grammar.
func (g *Grammar) Fits(text []byte) (bool, error) {
	s := g.start.Load()
	for len(text) > 0 && !s.dead() {
		n := min(len(text), 64)
		var err error
		if s, err = g.read(context.Background(), s, text[:n]); err != nil {
			return false, err
		}
		text = text[n:]
	}
	return s.accept, nil
}
