package cpu

import (
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// storeKV writes the step's keys and values to their pages.
func (e *executable) storeKV(n *graph.Node, keys, values []float32) func() error {
	s := n.Attr.(*graph.KV)
	body := func(_, from, to int) error {
		c := e.step.Cache.(*cache)
		for t := from; t < to; t++ {
			for h := range s.Heads {
				row := (t*s.Heads + h) * s.Dim
				c.store(s, e.step.Seqs[t], int(e.step.Pos[t]), h, keys[row:row+s.Dim], values[row:row+s.Dim])
			}
		}
		return nil
	}
	return func() error {
		c := e.step.Cache.(*cache)
		if err := c.ensure(e.step, c.class[s.Window]); err != nil {
			return err
		}
		return e.b.pool.run(len(e.step.Tokens), 16, body)
	}
}

// attention lets each head of each row attend to its sequence, page by page.
// Heads and rows that see the same keys and values read them together. What a
// head sees of a page follows from its row's position alone.
func (e *executable) attention(n *graph.Node, out, q []float32) func() error {
	a := n.Attr.(graph.AttentionAttr)
	heads, dim := n.In[0].Shape[0], a.KV.Dim
	cut := cut{heads: heads, kvHeads: a.KV.Heads, starts: make([]int, 0, e.rows+1)}
	body := func(worker, from, to int) error {
		s := e.rowsOf(n)
		d := &s.Cache.(*cache).desks[worker]
		for i := from; i < to; i++ {
			p := cut.piece(i)
			d.Reset(p.queries(), dim)
			for i := range p.queries() {
				copy(d.Query(i), q[p.row(i)*dim:])
			}
			d.attend(s, p, a.KV, float32(a.Scale))
			for i := range p.queries() {
				d.Result(i, out[p.row(i)*dim:][:dim])
			}
		}
		return nil
	}
	return func() error {
		s := e.rowsOf(n)
		cut.make(s, e.b.pool.threads)
		desks := s.Cache.(*cache).desks
		for i := range desks {
			desks[i].grow(cut.largest(), dim)
		}
		return e.b.pool.run(cut.pieces(), 1, body)
	}
}

// queriesAtOnce is how many queries read a page together, where there are enough
// for all threads: many make little of the page's conversion to float32, few stay in
// a core's caches.
const queriesAtOnce = 128

// cut divides a step's attention into pieces: some rows of one sequence, and
// some of the heads that share a head of keys and values.
type cut struct {
	heads, kvHeads int
	starts         []int // of blocks of rows, and the end of the last one
	parts          int   // of the heads that share keys and values
}

// make cuts a step for a number of threads. A head's queries only go apart
// where there would be less than a piece for each thread.
func (c *cut) make(s *backend.Step, threads int) {
	group := c.heads / c.kvHeads
	most := max(1, min(queriesAtOnce/group, len(s.Seqs)*c.kvHeads/threads))
	c.starts = c.starts[:0]
	start := 0
	for t, seq := range s.Seqs {
		if t == 0 || seq != s.Seqs[start] || t-start == most {
			start = t
			c.starts = append(c.starts, t)
		}
	}
	c.starts = append(c.starts, len(s.Seqs))
	c.parts = 1
	for c.parts*simd.Quad < group && c.pieces() < threads {
		c.parts++
	}
}

// largest is the most queries that a piece may have.
func (c *cut) largest() int {
	rows := 0
	for i, start := range c.starts[1:] {
		rows = max(rows, start-c.starts[i])
	}
	return rows * ((c.heads/c.kvHeads + c.parts - 1) / c.parts)
}

func (c *cut) pieces() int { return c.kvHeads * c.parts * (len(c.starts) - 1) }

// piece is the i-th piece. Those of one head follow each other.
func (c *cut) piece(i int) piece {
	blocks, group := len(c.starts)-1, c.heads/c.kvHeads
	block, part, kv := i%blocks, i/blocks%c.parts, i/blocks/c.parts
	from, to := group*part/c.parts, group*(part+1)/c.parts
	return piece{from: c.starts[block], to: c.starts[block+1], kv: kv, first: kv*group + from, heads: to - from, all: c.heads}
}

// piece is the attention of some heads of the rows from ≤ t < to, query i being
// head first+i%heads of row from+i/heads.
type piece struct {
	from, to     int
	kv           int // the head of keys and values
	first, heads int
	all          int // heads of a row
}

func (p piece) queries() int { return (p.to - p.from) * p.heads }

// row is where query i is among all heads of all rows.
func (p piece) row(i int) int { return (p.from+i/p.heads)*p.all + p.first + i%p.heads }

// desk is where a worker attends.
type desk struct {
	simd.Attention
	spans []simd.Span // of a page, by query
	k, v  []float32   // a page of one head, if the cache has it in binary16
}

// grow makes room for queries of dim elements.
func (d *desk) grow(queries, dim int) {
	d.Reset(queries, dim)
	if n := kv.PageSize * dim; len(d.k) < n {
		d.k, d.v = make([]float32, n), make([]float32, n)
	}
	if cap(d.spans) < queries {
		d.spans = make([]simd.Span, queries)
	}
}

// attend adds all pages that p sees, in order.
func (d *desk) attend(s *backend.Step, p piece, store *graph.KV, scale float32) {
	c := s.Cache.(*cache)
	oldest := func(pos int32) int {
		if store.Window == 0 {
			return 0
		}
		return max(0, int(pos)-store.Window+1)
	}
	first, last := math.MaxInt, 0
	for _, pos := range s.Pos[p.from:p.to] {
		first, last = min(first, oldest(pos)), max(last, int(pos))
	}
	for page := first &^ (kv.PageSize - 1); page <= last; page += kv.PageSize {
		d.spans = d.spans[:0]
		for _, pos := range s.Pos[p.from:p.to] {
			span := simd.Span{From: max(0, oldest(pos)-page), To: min(kv.PageSize, int(pos)+1-page)}
			for range p.heads {
				d.spans = append(d.spans, span)
			}
		}
		k, v := c.load(d, store, s.Seqs[p.from], page, min(kv.PageSize, last+1-page), p.kv)
		d.Add(k, v, d.spans, scale)
	}
}

// rope turns the heads of each row of x by the table's angles at its position.
func (e *executable) rope(n *graph.Node, out, x []float32, row func(pos int) (cos, sin []float32)) func() error {
	size, dim := n.Shape.Size(), n.Shape.Last()
	body := func(_, from, to int) error {
		copy(out[from*size:to*size], x[from*size:])
		for t := from; t < to; t++ {
			cos, sin := row(int(e.rowsOf(n).Pos[t]))
			for h := 0; h < size; h += dim {
				simd.Rotate(out[t*size+h:t*size+h+dim], cos, sin)
			}
		}
		return nil
	}
	return func() error { return e.b.pool.run(e.count(n), 8, body) }
}
