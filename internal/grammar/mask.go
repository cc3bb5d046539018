package grammar

import (
	"context"
	"math/bits"
	"slices"

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
