package tokenizer

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// noRank is the rank of a pair without a merge, above all others.
const noRank = 1<<32 - 1

// A pairTable holds the merges of adjacent symbols, in a flat hash table with linear probing, at most two thirds
// full. The multiplier is random, so no file can provoke collisions.
type pairTable struct {
	slots []pairSlot
	mul   uint64
	shift int
}

type pairSlot struct {
	key  uint64 // left<<32 + right + 1; 0 where the slot is free
	rank uint32 // lower merges first
	into int32
}

func newPairTable(n int) pairTable {
	size := bits.Len(uint(max(n+n/2, 8) - 1))
	return pairTable{slots: make([]pairSlot, 1<<size), mul: rand.Uint64() | 1, shift: 64 - size}
}

// find returns the pair's slot, or the free slot for the pair.
func (p *pairTable) find(left, right int32) *pairSlot {
	key := uint64(left)<<32 + uint64(right) + 1
	mask := uint64(len(p.slots) - 1)
	for i := key * p.mul >> p.shift; ; i++ {
		s := &p.slots[i&mask]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// add sets the merge of a pair. A pair that is named twice keeps the later rank, as in the reference.
func (p *pairTable) add(left, right, into int32, rank uint32) {
	*p.find(left, right) = pairSlot{key: uint64(left)<<32 + uint64(right) + 1, rank: rank, into: into}
}

func (p *pairTable) get(left, right int32) (rank uint32, into int32) {
	if s := p.find(left, right); s.key != 0 {
		return s.rank, s.into
	}
	return noRank, 0
}

// A merger merges the symbols of words, word after word.
type merger struct {
	watch *watch
	ids   []int32
	ranks []uint32 // rank of the pair beginning at each symbol, in short words
	into  []int32
	spans []uint16 // in long words
	queue []uint64
	steps int // queue operations, for the tests of linear time
}

// shortWord is the number of symbols up to which a scan of all pairs is faster than a queue.
const shortWord = 32

// merge joins adjacent symbols of m.ids, lowest rank first and among equal ranks leftmost first, until no pair is in
// the table.
func (m *merger) merge(p *pairTable) {
	if len(m.ids) <= shortWord {
		m.mergeShort(p)
	} else {
		m.mergeLong(p)
	}
}

func (m *merger) mergeShort(p *pairTable) {
	ids, ranks, into := m.ids, m.ranks[:0], m.into[:0]
	for i := range len(ids) - 1 {
		r, id := p.get(ids[i], ids[i+1])
		ranks, into = append(ranks, r), append(into, id)
	}
	m.ranks, m.into = ranks, into
	for {
		best, at := uint32(noRank), 0
		for i, r := range ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			m.ids = ids
			return
		}
		ids[at] = into[at]
		ids = append(ids[:at+1], ids[at+2:]...)
		ranks = append(ranks[:at], ranks[at+1:]...)
		into = append(into[:at], into[at+1:]...)
		if at < len(ranks) {
			ranks[at], into[at] = p.get(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1], into[at-1] = p.get(ids[at-1], ids[at])
		}
	}
}

// mergeLong does the work of mergeShort with a queue of pairs, ordered by rank and position. Symbols stay at the place
// of their beginning: ids is gone at the other places of a symbol, and spans at its first and last place is the number
// of places, at most maxTokenBytes. With the queue, 15 bytes of memory serve a byte of the word. Each merge adds at
// most two pairs, so n symbols cost at most 3n entries. The merging ends early if the watch does.
func (m *merger) mergeLong(p *pairTable) {
	n := len(m.ids)
	m.spans = slices.Grow(m.spans[:0], n)[:n]
	m.queue = slices.Grow(m.queue[:0], n+n/16)
	for i := range m.spans {
		m.spans[i] = 1
	}
	for i := 0; i < n-1 && m.watch.spend(1); i++ {
		if rank, _ := p.get(m.ids[i], m.ids[i+1]); rank != noRank {
			m.queue = append(m.queue, uint64(rank)<<32|uint64(i))
		}
	}
	m.order()
	for len(m.queue) > 0 && m.watch.spend(1) {
		top := m.pop()
		i := int(top & (1<<32 - 1))
		rank, into := m.pair(p, i)
		if rank == noRank || rank != uint32(top>>32) {
			continue // the pair is no longer there
		}
		left := uint32(noRank) // former rank of the previous pair
		if i > 0 {
			left, _ = m.pair(p, m.previous(i))
		}
		m.join(i, into)
		m.push(p, i, noRank)
		if i > 0 {
			m.push(p, m.previous(i), left)
		}
	}
	ids := m.ids[:0]
	for i := 0; i < n; i += int(m.spans[i]) {
		ids = append(ids, m.ids[i])
	}
	m.ids = ids
}

// gone is the id at places inside a symbol.
const gone = -1

// pair looks up the pair beginning at i, if any.
func (m *merger) pair(p *pairTable, i int) (rank uint32, into int32) {
	next := i + int(m.spans[i])
	if m.ids[i] == gone || next >= len(m.ids) {
		return noRank, 0
	}
	return p.get(m.ids[i], m.ids[next])
}

// previous returns the place of the symbol before the symbol at i.
func (m *merger) previous(i int) int { return i - int(m.spans[i-1]) }

// join joins the symbol at i and the next.
func (m *merger) join(i int, into int32) {
	next := i + int(m.spans[i])
	end := next + int(m.spans[next])
	m.ids[i], m.ids[next] = into, gone
	m.spans[i], m.spans[end-1] = uint16(end-i), uint16(end-i)
}

// push queues the pair beginning at i, unless the previous pair there had the same rank and is still queued.
func (m *merger) push(p *pairTable, i int, old uint32) {
	rank, _ := m.pair(p, i)
	if rank == noRank || rank == old {
		return
	}
	if len(m.queue) == cap(m.queue) {
		m.sweep(p)
	}
	m.queue = append(m.queue, uint64(rank)<<32|uint64(i))
	q := m.queue
	for c := len(q) - 1; c > 0; {
		m.step()
		parent := (c - 1) / 2
		if q[parent] <= q[c] {
			return
		}
		q[parent], q[c] = q[c], q[parent]
		c = parent
	}
}

// sweep removes outdated pairs from the queue, which grows if most pairs are current.
func (m *merger) sweep(p *pairTable) {
	left := m.queue[:0]
	for _, entry := range m.queue {
		m.watch.spend(1)
		if rank, _ := m.pair(p, int(entry&(1<<32-1))); rank == uint32(entry>>32) {
			left = append(left, entry)
		}
	}
	if m.queue = left; cap(left)-len(left) < cap(left)/32 {
		m.queue = slices.Grow(left, len(left)/2)
	}
	m.order()
}

// order makes a queue of its entries.
func (m *merger) order() {
	for i := len(m.queue)/2 - 1; i >= 0 && m.watch.spend(1); i-- {
		m.sift(i)
	}
}

// step counts an operation on the queue.
func (m *merger) step() {
	m.steps++
	m.watch.spend(1)
}

func (m *merger) pop() uint64 {
	q := m.queue
	top := q[0]
	q[0] = q[len(q)-1]
	m.queue = q[:len(q)-1]
	m.sift(0)
	return top
}

// sift moves the queue's entry i to its place below.
func (m *merger) sift(i int) {
	q := m.queue
	for {
		m.step()
		c := 2*i + 1
		if c >= len(q) {
			return
		}
		if c+1 < len(q) && q[c+1] < q[c] {
			c++
		}
		if q[i] <= q[c] {
			return
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
}

// joints holds the pairs of adjacent characters that some merge joins. No merge can cross any other pair, so text can
// be cut there without changing the result: character-level text falls into words as if it had a pre-tokenizer.
type joints struct {
	ascii [utf8.RuneSelf][utf8.RuneSelf / 64]uint64
	other map[uint64]struct{}
	cut   bool // and before every ▁ (pre-tokenizer Metaspace with split)
}

// add lets a merge of left and right happen.
func (j *joints) add(left, right string) {
	a, _ := utf8.DecodeLastRuneInString(left)
	b, _ := utf8.DecodeRuneInString(right)
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		j.ascii[a][b/64] |= 1 << (b % 64)
		return
	}
	if j.other == nil {
		j.other = map[uint64]struct{}{}
	}
	j.other[uint64(a)<<32|uint64(b)] = struct{}{}
}

func (j *joints) has(a, b rune) bool {
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		return j.ascii[a][b/64]>>(b%64)&1 != 0
	}
	_, ok := j.other[uint64(a)<<32|uint64(b)]
	return ok
}

// next returns the length of the first piece of s, not empty.
func (j *joints) next(s string) int {
	a, i := utf8.DecodeRuneInString(s)
	for i < len(s) {
		b, n := rune(s[i]), 1
		if b >= utf8.RuneSelf {
			b, n = utf8.DecodeRuneInString(s[i:])
		}
		if !j.has(a, b) || j.cut && strings.HasPrefix(s[i:], space) {
			break
		}
		a, i = b, i+n
	}
	return i
}
