package tokenizer

import (
	"math/bits"
	"math/rand/v2"
)

// noRank is the rank of a pair that does not merge, above all others.
const noRank = 1<<32 - 1

// A pairTable tells what two adjacent symbols merge into. It is a flat hash
// table with linear probing, at most half full; its multiplier is random, so a file cannot
// be made whose pairs collide.
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
	size := bits.Len(uint(max(2*n, 8) - 1))
	return pairTable{slots: make([]pairSlot, 1<<size), mul: rand.Uint64() | 1, shift: 64 - size}
}

// find returns the pair's slot, or the free one where it belongs.
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

// add sets what a pair merges into. A pair that is named twice keeps the later
// rank, as in the reference.
func (p *pairTable) add(left, right, into int32, rank uint32) {
	*p.find(left, right) = pairSlot{key: uint64(left)<<32 + uint64(right) + 1, rank: rank, into: into}
}

func (p *pairTable) get(left, right int32) (rank uint32, into int32) {
	if s := p.find(left, right); s.key != 0 {
		return s.rank, s.into
	}
	return noRank, 0
}

// A merger merges the symbols of one word after another.
type merger struct {
	ids   []int32
	ranks []uint32 // of the pair that begins at each symbol
	into  []int32
	nodes []node
	queue []uint64
	steps int // queue operations, for the tests of linear time
}

// shortWord is the number of symbols up to which looking through all pairs is
// faster than a queue.
const shortWord = 32

// merge joins adjacent symbols of m.ids, the pair of lowest rank first and of
// equal ones the leftmost, until no pair is in the table.
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

// A node is a symbol in a linked list. next is len(nodes) at the end; a node
// that was merged into its left neighbour has rank noRank for good.
type node struct {
	id, prev, next int32
	rank           uint32 // of the pair that begins here
	into           int32
}

// mergeLong does what mergeShort does with a queue of pairs, ordered by rank
// and position. Each merge adds at most two, so n symbols cost at most 3n entries.
func (m *merger) mergeLong(p *pairTable) {
	n := int32(len(m.ids))
	m.nodes, m.queue = m.nodes[:0], m.queue[:0]
	for i, id := range m.ids {
		m.nodes = append(m.nodes, node{id: id, prev: int32(i) - 1, next: int32(i) + 1, rank: noRank})
	}
	for i := range n - 1 {
		m.rank(p, i)
	}
	for i := len(m.queue)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	for len(m.queue) > 0 {
		top := m.pop()
		i := int32(top & (1<<32 - 1))
		a := &m.nodes[i]
		if a.rank != uint32(top>>32) {
			continue // the pair is no longer there
		}
		b := &m.nodes[a.next]
		a.id, a.next, b.rank = a.into, b.next, noRank
		if a.next < n {
			m.nodes[a.next].prev = i
		}
		m.requeue(p, i)
		if a.prev >= 0 {
			m.requeue(p, a.prev)
		}
	}
	m.ids = m.ids[:0]
	for i := int32(0); i < n; i = m.nodes[i].next {
		m.ids = append(m.ids, m.nodes[i].id)
	}
}

// rank looks up the pair that begins at node i and appends it to the queue.
func (m *merger) rank(p *pairTable, i int32) bool {
	a := &m.nodes[i]
	a.rank = noRank
	if int(a.next) < len(m.nodes) {
		a.rank, a.into = p.get(a.id, m.nodes[a.next].id)
	}
	if a.rank == noRank {
		return false
	}
	m.queue = append(m.queue, uint64(a.rank)<<32|uint64(i))
	return true
}

func (m *merger) requeue(p *pairTable, i int32) {
	if !m.rank(p, i) {
		return
	}
	q := m.queue
	for c := len(q) - 1; c > 0; {
		m.steps++
		parent := (c - 1) / 2
		if q[parent] <= q[c] {
			return
		}
		q[parent], q[c] = q[c], q[parent]
		c = parent
	}
}

func (m *merger) pop() uint64 {
	q := m.queue
	top := q[0]
	q[0] = q[len(q)-1]
	m.queue = q[:len(q)-1]
	m.down(0)
	return top
}

// down moves the queue's entry i to its place below.
func (m *merger) down(i int) {
	q := m.queue
	for {
		m.steps++
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
