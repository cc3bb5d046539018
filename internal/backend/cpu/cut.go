package cpu

import (
	"sync/atomic"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/simd"
)

// queriesAtOnce is how many queries read a page together, where there are enough
// for all threads: many make little of the page's conversion to float32, few stay in
// a core's caches.
const queriesAtOnce = 128

// cut divides a step's attention into pieces: some rows of a sequence, some heads sharing a head of keys and values,
// and, if there are fewer pieces than threads, some of the ranges of positions seen.
type cut struct {
	heads  int
	store  *graph.KV
	scale  float32
	x, out []float32
	attr   graph.AttentionAttr
	sinks  []float32 // by head; nil for none

	blocks []block
	parts  int            // parts of the heads sharing keys and values
	ranges int            // of a piece, at most
	each   int            // pieces of a part of a head
	kept   []float32      // the parts of ranges, by block, range, row and head
	left   []atomic.Int32 // by job, a block of a part of a head: ranges not added yet
}

// block is rows [from, to) of a sequence.
type block struct {
	from, to    int
	oldest, end int // bounds of the positions seen by any row
	first, last int // ranges, as first ≤ r < last
	piece, part int // the number of its first piece of a part of a head, and of its first part in kept
}

// seen returns the positions of range r seen by a block.
func (b *block) seen(r int) (from, to int) {
	return max(b.oldest, r*simd.RangeSlots), min(b.end, (r+1)*simd.RangeSlots)
}

// mostKept is the maximum of numbers kept for parts of ranges where each thread has a piece already: a long prompt's
// rows and context would take hundreds of megabytes.
const mostKept = 8 << 20

// make cuts a step for a number of threads. A head's queries only go apart where there
// would be less than a piece for each thread, and ranges where there would be less than
// two, or where each piece is to have a single range.
func (c *cut) make(s *backend.Step, threads int, single bool) {
	group := c.heads / c.store.Heads
	most := max(1, min(queriesAtOnce/group, len(s.Seqs)*c.store.Heads/threads))
	c.blocks = c.blocks[:0]
	for t, seq := range s.Seqs {
		if n := len(c.blocks); n == 0 || seq != s.Seqs[c.blocks[n-1].from] || t-c.blocks[n-1].from == most {
			c.blocks = append(c.blocks, block{from: t, oldest: int(s.Pos[t])})
		}
		b := &c.blocks[len(c.blocks)-1]
		first, last := s.Range(c.attr, t)
		b.to, b.oldest, b.end = t+1, min(b.oldest, first), max(b.end, last+1)
	}
	all, kept := 0, 0 // ranges of a head, and numbers of all parts
	for i := range c.blocks {
		b := &c.blocks[i]
		b.first, b.last = b.oldest/simd.RangeSlots, (b.end-1)/simd.RangeSlots+1
		all += b.last - b.first
		kept += (b.last - b.first) * (b.to - b.from) * c.heads * simd.PartSize(c.store.Values())
	}
	if c.ranges = all; single {
		c.ranges = 1
	} else if n := c.store.Heads * len(c.blocks); threads > 1 && (n < threads || n < 2*threads && kept <= mostKept) {
		c.ranges = max(1, all*c.store.Heads/(4*threads))
	}
	c.each = 0
	for i := range c.blocks {
		c.blocks[i].piece = c.each
		c.each += (c.blocks[i].last - c.blocks[i].first + c.ranges - 1) / c.ranges
	}
	c.parts = 1
	for c.parts*simd.Quad < group && c.pieces() < threads {
		c.parts++
	}
}

// makeParts makes room for the parts of ranges, of no use after the loop.
func (c *cut) makeParts(kept *[]float32) {
	if c.each == len(c.blocks) {
		return
	}
	if n := len(c.blocks) * c.parts * c.store.Heads; n > len(c.left) {
		c.left = make([]atomic.Int32, n)
	}
	parts := 0
	for i := range c.blocks {
		b := &c.blocks[i]
		b.part = parts
		parts += (b.last - b.first) * (b.to - b.from) * c.heads
		for job := i; job < len(c.blocks)*c.parts*c.store.Heads; job += len(c.blocks) {
			c.left[job].Store(int32(b.last - b.first))
		}
	}
	if n := parts * simd.PartSize(c.store.Values()); n > len(*kept) {
		*kept = make([]float32, n+n/2) // contexts grow
	}
	c.kept = *kept
}

// part returns the memory of query i of p for its part of range r.
func (c *cut) part(p piece, r, i int) []float32 {
	b, size := &c.blocks[p.block], simd.PartSize(c.store.Values())
	at := b.part + (r-b.first)*(b.to-b.from)*c.heads + p.row(i) - b.from*c.heads
	return c.kept[at*size : (at+1)*size]
}

// largest returns the maximum of queries in a piece.
func (c *cut) largest() int {
	rows, group := 0, c.heads/c.store.Heads
	for _, b := range c.blocks {
		rows = max(rows, b.to-b.from)
	}
	return rows * ((group + c.parts - 1) / c.parts)
}

func (c *cut) pieces() int { return c.store.Heads * c.parts * c.each }

// piece returns the i-th piece. Pieces of a head follow each other.
func (c *cut) piece(i int) piece {
	head, at, group := i/c.each, i%c.each, c.heads/c.store.Heads
	part, kv := head%c.parts, head/c.parts
	from, to := group*part/c.parts, group*(part+1)/c.parts
	n := len(c.blocks) - 1
	for c.blocks[n].piece > at {
		n--
	}
	b := &c.blocks[n]
	first := b.first + (at-b.piece)*c.ranges
	return piece{block: n, job: head*len(c.blocks) + n, from: b.from, to: b.to, first: first,
		last: min(b.last, first+c.ranges),
		kv:   kv, head: kv*group + from, heads: to - from, all: c.heads}
}

// piece is the attention of some heads of the rows from ≤ t < to to the ranges first ≤ r
// < last, query i being head head+i%heads of row from+i/heads.
type piece struct {
	block, job  int
	from, to    int
	first, last int
	kv          int // the head of keys and values
	head, heads int
	all         int // heads of a row
}

func (p piece) queries() int { return (p.to - p.from) * p.heads }

// row returns the index of query i among all heads of all rows.
func (p piece) row(i int) int { return (p.from+i/p.heads)*p.all + p.head + i%p.heads }
