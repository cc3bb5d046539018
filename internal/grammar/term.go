package grammar

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
)

type termKind uint8

const (
	never  termKind = iota // no text
	empty                  // the empty text
	class                  // a byte of a set
	cat                    // a, then b
	alt                    // any element of list
	both                   // all of list
	not                    // everything but a
	repeat                 // a, from min to max times
	// digits of a number; min is the modulus, max the remainder so far, scale the factor at the end
	mod
)

// inf is no limit.
const inf = math.MaxInt32

// set is a set of bytes.
type set [4]uint64

func (s *set) add(b byte)      { s[b>>6] |= 1 << (b & 63) }
func (s *set) has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// span returns the set of the bytes from lo to hi.
func span(lo, hi byte) (s set) {
	for b := int(lo); b <= int(hi); b++ {
		s.add(byte(b))
	}
	return s
}

// term is a regular expression over bytes. Equal terms are the same term.
type term struct {
	kind            termKind
	null            bool // the empty text fits
	bool            bool // has both or not within: whether anything fits must be searched
	counts          bool // contains a count that clamp may change
	source          bool // is of the source, and is not forgotten
	set             set
	a, b            *term
	list            []*term // sorted by id
	min, max, scale int32

	id      uint32
	sum     sum   // digest, computed on demand
	part    *part // as a state
	clamped [levels]*term
	mark    uint64 // derivation that made d
	d       *term
}

type termKey struct {
	kind            termKind
	set             set
	a, b            uint32
	min, max, scale int32
	list            string
}

// sum names a term among the terms of all grammars: half a SHA-256, so that no grammar can collide with another on
// purpose.
type sum [16]byte

// digest returns the sum of x's contents, independent of the order in which a grammar made its terms.
func (t *termTable) digest(x *term) sum {
	if x.sum != (sum{}) {
		return x.sum
	}
	t.burn(4 + len(x.list))
	b := []byte{byte(x.kind)}
	for _, w := range x.set {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	for _, n := range []int32{x.min, x.max, x.scale} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	list := make([]sum, 0, 2+len(x.list))
	for _, y := range x.list {
		list = append(list, t.digest(y))
	}
	slices.SortFunc(list, func(a, b sum) int { return bytes.Compare(a[:], b[:]) })
	for _, y := range []*term{x.a, x.b} {
		if y != nil {
			list = append(list, t.digest(y))
		}
	}
	for _, s := range list {
		b = append(b, s[:]...)
	}
	all := sha256.Sum256(b)
	x.sum = sum(all[:16])
	return x.sum
}

// termTable has each term once.
type termTable struct {
	all    map[termKey]*term
	source map[termKey]*term // terms of the source, once compiled
	last   uint32
	mark   uint64
	sets   map[set]bool
	none   *term
	unit   *term
	chars  map[string]*term // requested classes of characters
	met    map[reading]*term
	work
}

// reading is a byte behind a term.
type reading struct {
	x *term
	b byte
}

func newTermTable(w work) termTable {
	t := termTable{work: w, all: map[termKey]*term{}, sets: map[set]bool{}, chars: map[string]*term{},
		met: map[reading]*term{}}
	t.none = t.make(term{kind: never})
	t.unit = t.make(term{kind: empty, null: true})
	return t
}

func ids(list []*term) string {
	b := make([]byte, 0, 4*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x.id)
	}
	return string(b)
}

// make returns the unique term equal to x.
func (t *termTable) make(x term) *term {
	t.burn(1 + len(x.list)/4)
	k := termKey{kind: x.kind, set: x.set, min: x.min, max: x.max, scale: x.scale, list: ids(x.list)}
	if x.a != nil {
		k.a = x.a.id
		x.bool, x.counts = x.bool || x.a.bool, x.counts || x.a.counts
	}
	if x.b != nil {
		k.b = x.b.id
		x.bool, x.counts = x.bool || x.b.bool, x.counts || x.b.counts
	}
	for _, y := range x.list {
		x.bool, x.counts = x.bool || y.bool, x.counts || y.counts
	}
	if x.kind == both || x.kind == not {
		x.counts = false // the match may depend on a distant count
	}
	if y := t.all[k]; y != nil {
		return y
	}
	if y := t.source[k]; y != nil {
		return y
	}
	t.last++
	t.take(termBytes + 12*len(x.list))
	y := new(term)
	*y = x
	if cap(x.list) > len(x.list) { // no spare room is kept
		y.list = append(make([]*term, 0, len(x.list)), x.list...)
	}
	y.id = t.last
	t.all[k] = y
	return y
}

func (t *termTable) class(s set) *term {
	if s == (set{}) {
		return t.none
	}
	t.tell(s)
	return t.make(term{kind: class, set: s})
}

// tell notes that terms of the source tell a set of bytes from other bytes.
func (t *termTable) tell(s set) {
	if t.sets != nil {
		t.sets[s] = true
	}
}

func (t *termTable) byte(b byte) *term { return t.class(span(b, b)) }

// text returns a single text.
func (t *termTable) text(s string) *term {
	x := t.unit
	for i := len(s) - 1; i >= 0; i-- {
		x = t.cat(t.byte(s[i]), x)
	}
	return x
}

// seq returns terms in sequence.
func (t *termTable) seq(list ...*term) *term {
	x := t.unit
	for _, y := range slices.Backward(list) {
		x = t.cat(y, x)
	}
	return x
}

func (t *termTable) cat(a, b *term) *term {
	switch {
	case a == t.none || b == t.none:
		return t.none
	case a == t.unit:
		return b
	case b == t.unit:
		return a
	case a.kind == cat:
		t.burn(1)
		return t.cat(a.a, t.cat(a.b, b))
	}
	return t.make(term{kind: cat, a: a, b: b, null: a.null && b.null})
}

func (t *termTable) or(list ...*term) *term {
	var all []*term
	var classes set
	hasClass, null := false, false
	var add func(x *term)
	add = func(x *term) {
		switch x.kind {
		case never:
		case alt:
			for _, y := range x.list {
				add(y)
			}
		case class:
			hasClass = true
			for i := range classes {
				classes[i] |= x.set[i]
			}
		default:
			null = null || x.null
			all = append(all, x)
		}
	}
	for _, x := range list {
		add(x)
	}
	if hasClass {
		all = append(all, t.class(classes))
	}
	t.burn(len(all))
	all = sorted(all)
	if i := slices.Index(all, t.unit); i >= 0 && slices.ContainsFunc(all, func(x *term) bool {
		return x.null && x != t.unit
	}) {
		all = slices.Delete(all, i, i+1)
	}
	switch {
	case len(all) == 0:
		return t.none
	case len(all) == 1:
		return all[0]
	case len(all) > maxAlt:
		panic(tooMuch{errComplex})
	}
	return t.make(term{kind: alt, list: all, null: null})
}

// copyTerm returns a forgotten term, made anew. known has the copies so far.
func copyTerm(t *termTable, x *term, known map[*term]*term) *term {
	if x == nil || x.source {
		return x
	}
	if y := known[x]; y != nil {
		return y
	}
	y := term{kind: x.kind, null: x.null, set: x.set, a: copyTerm(t, x.a, known), b: copyTerm(t, x.b, known),
		min: x.min,
		max: x.max, scale: x.scale, bool: x.bool, counts: x.counts}
	for _, z := range x.list {
		y.list = append(y.list, copyTerm(t, z, known))
	}
	y.list = sorted(y.list)
	known[x] = t.make(y)
	return known[x]
}

func sorted(list []*term) []*term {
	slices.SortFunc(list, func(a, b *term) int { return int(int64(a.id) - int64(b.id)) })
	return slices.Compact(list)
}

func (t *termTable) and(list ...*term) *term {
	var all []*term
	null := true
	for _, x := range list {
		null = null && x.null
		switch {
		case x == t.none:
			return t.none
		case x.kind == both:
			all = append(all, x.list...)
		case x.kind == not && x.a == t.none:
		default:
			all = append(all, x)
		}
	}
	t.burn(len(all))
	switch all = sorted(all); len(all) {
	case 0:
		return t.not(t.none)
	case 1:
		return all[0]
	}
	return t.make(term{kind: both, list: all, null: null, bool: true})
}

func (t *termTable) not(a *term) *term {
	if a.kind == not {
		return a.a
	}
	return t.make(term{kind: not, a: a, null: !a.null, bool: true})
}

func (t *termTable) repeat(a *term, lo, hi int32) *term {
	switch {
	case hi == 0 || a == t.unit || a == t.none && lo == 0:
		return t.unit
	case a == t.none:
		return t.none
	case lo == 1 && hi == 1:
		return a
	case a.kind == repeat && a.min == 0 && a.max == inf:
		return a
	}
	if a.null {
		lo = 0
	}
	if hi == 1 && a.null {
		return a
	}
	return t.make(term{kind: repeat, a: a, min: lo, max: hi, null: lo == 0,
		counts: lo > longest[0] || hi > longest[0] &&
			hi < inf})
}

func (t *termTable) star(a *term) *term { return t.repeat(a, 0, inf) }
func (t *termTable) opt(a *term) *term  { return t.repeat(a, 0, 1) }

// multiple returns the digits of a number whose value times scale is a multiple of m, after digits that leave remainder
// r.
func (t *termTable) multiple(m, r, scale int32) *term {
	for d := byte('0'); d <= '9'; d++ {
		t.tell(span(d, d))
	}
	t.tell(span('.', '.'))
	return t.make(term{kind: mod, min: m, max: r, scale: scale, null: int64(r)*int64(scale)%int64(m) == 0})
}

// derive returns the possible rest of x after b. Shared terms are derived once.
func (t *termTable) derive(x *term, b byte) *term {
	t.mark++
	return t.step(x, b)
}

func (t *termTable) step(x *term, b byte) (d *term) {
	switch x.kind {
	case never, empty:
		return t.none
	case class:
		if x.set.has(b) {
			return t.unit
		}
		return t.none
	}
	if x.mark == t.mark {
		return x.d
	}
	t.burn(1 + len(x.list))
	switch x.kind {
	case cat:
		d = t.cat(t.step(x.a, b), x.b)
		if x.a.null {
			d = t.or(d, t.step(x.b, b))
		}
	case alt, both:
		list := make([]*term, 0, len(x.list))
		for _, y := range x.list {
			if z := t.step(y, b); z != t.none || x.kind == both {
				list = append(list, z)
			}
		}
		if x.kind == both {
			d = t.and(list...)
		} else {
			d = t.or(list...)
		}
	case not:
		d = t.not(t.step(x.a, b))
	case repeat:
		hi := x.max
		if hi != inf {
			hi--
		}
		if d = t.step(x.a, b); d != t.none {
			d = t.cat(d, t.repeat(x.a, max(x.min-1, 0), hi))
		}
	case mod:
		switch {
		case b >= '0' && b <= '9':
			d = t.multiple(x.min, int32((int64(x.max)*10+int64(b-'0'))%int64(x.min)), x.scale)
		case b == '.':
			d = x
		default:
			d = t.none
		}
	}
	x.mark, x.d = t.mark, d
	return d
}

// clamp returns a term that texts of at most longest[level] bytes cannot tell from x: a count that such a text cannot
// use up has no effect.
func (t *termTable) clamp(x *term, level int) *term {
	if !x.counts {
		return x
	}
	if x.clamped[level] != nil {
		return x.clamped[level]
	}
	y := x
	switch x.kind {
	case cat:
		y = t.cat(t.clamp(x.a, level), t.clamp(x.b, level))
	case alt, both:
		list := make([]*term, len(x.list))
		for i, z := range x.list {
			list[i] = t.clamp(z, level)
		}
		if y = t.or(list...); x.kind == both {
			y = t.and(list...)
		}
	case not:
		y = t.not(t.clamp(x.a, level))
	case repeat:
		lo, hi := min(x.min, longest[level]+1), x.max
		if hi > longest[level] {
			hi = inf
		}
		y = t.repeat(t.clamp(x.a, level), lo, hi)
	}
	x.clamped[level] = y
	return y
}
