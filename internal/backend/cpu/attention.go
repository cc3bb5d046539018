package cpu

import (
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// makePages returns the function that makes the pages for storeKV.
func (e *executable) makePages(n *graph.Node) func() error {
	return func() error {
		return e.step.Cache.(*cache).ensure(e.step, n.Attr.(*graph.KV))
	}
}

// storeKV writes the step's keys and values to their pages. Values that are a part of keys are stored again: values are
// read by rows, and keys by columns.
func (e *executable) storeKV(n *graph.Node, keys, values []float32) func(from, to int) error {
	s := n.Attr.(*graph.KV)
	wide, stride := s.Values(), s.Values()
	if s.Latent {
		stride = s.Dim
	}
	return func(from, to int) error {
		c := e.step.Cache.(*cache)
		for t := from; t < to; t++ {
			for h := range s.Heads {
				row := t*s.Heads + h
				key, value := keys[row*s.Dim:(row+1)*s.Dim], values[row*stride:row*stride+wide]
				c.store(s, e.step.Seqs[t], int(e.step.Pos[t]), h, key, value)
			}
		}
		return nil
	}
}

// narrow returns the function that makes the 8-bit form of the pages completed by storeKV. So the form follows from
// the page alone, and rows choose the form by their positions.
func (e *executable) narrow(n *graph.Node) func() error {
	s := n.Attr.(*graph.KV)
	var full []int // rows at the ends of pages
	body := func(worker, from, to int) error {
		c := e.step.Cache.(*cache)
		for i := from; i < to; i++ {
			t := full[i/s.Heads]
			c.pack(&c.desks[worker], s, e.step.Seqs[t], int(e.step.Pos[t])-kv.PageSize+1, i%s.Heads)
		}
		return nil
	}
	return func() error {
		full = full[:0]
		for t, pos := range e.step.Pos {
			x := e.step.Cache.(*cache).stores[s]
			if pos%kv.PageSize == kv.PageSize-1 && x.narrow && !x.isFirst(int(pos)/kv.PageSize) {
				full = append(full, t)
			}
		}
		return e.b.pool.run(len(full)*s.Heads, 1, body)
	}
}

// attention lets each head of each row attend to its sequence, page by page and range by range. Heads and rows with the
// same keys and values read together. A head's part of a page follows from its row's position alone.
func (e *executable) attention(n *graph.Node, out, q, sinks []float32) func() error {
	a := n.Attr.(graph.AttentionAttr)
	heads, dim := n.In[0].Shape[0], a.KV.Dim
	cut := cut{heads: heads, store: a.KV, scale: float32(a.Scale), x: q, out: out, attr: a, sinks: sinks}
	begin := func(d *desk, s *backend.Step, p piece) {
		d.turned = s.Cache.(*cache).stores[a.KV].narrow
		d.Reset(p.queries(), dim, a.KV.Values(), float32(a.Cap))
		for i := range p.queries() {
			copy(d.Query(i), q[p.row(i)*dim:])
			d.turn(d.Query(i), dim)
		}
	}
	body := func(worker, from, to int) error {
		s := e.rowsOf(n)
		d := &s.Cache.(*cache).desks[worker]
		for i := from; i < to; i++ {
			p := cut.piece(i)
			begin(d, s, p)
			for r := p.first; r < p.last; r++ {
				cut.addRange(d, s, p, r)
				cut.end(d, p, r, d.total)
			}
		}
		return nil
	}
	first := 0
	recorded := func(lane, _, _ int) error {
		s, p := e.rowsOf(n), cut.piece(first+lane)
		d := &s.Cache.(*cache).desks[lane]
		begin(d, s, p)
		cut.addRange(d, s, p, p.first)
		return nil
	}
	return func() error {
		s := e.rowsOf(n)
		c := s.Cache.(*cache)
		records := e.b.pool.lanes > 0 && !c.stores[a.KV].narrow && simd.Records(a.KV.Values())
		cut.make(s, e.b.pool.threads, records)
		for i := range c.desks {
			c.desks[i].grow(cut.largest(), a.KV)
		}
		if !records {
			cut.makeParts(&e.scores.parts)
			return e.b.pool.run(cut.pieces(), 1, body)
		}
		for first = 0; first < cut.pieces(); first += e.b.pool.lanes {
			some := min(e.b.pool.lanes, cut.pieces()-first)
			if err := e.b.pool.record(some, 1, recorded); err != nil {
				return err
			}
			for i := range some {
				p := cut.piece(first + i)
				r, b := p.first, &cut.blocks[p.block]
				p.first, p.last = b.first, b.last // pieces come in order: no part need be kept
				cut.end(&c.desks[i], p, r, c.desks[0].total)
			}
		}
		return nil
	}
}

// desk holds a worker's memory for attention.
type desk struct {
	simd.Attention
	turned bool        // keys and values are in the form of simd.Turn
	spans  []simd.Span // of a page, by query
	older  []simd.Span // of a page in 8 bits
	k, v   []float32   // page of one head, converted from binary16
	total  []float32   // parts of the ranges so far, by query
	part   []float32   // part of one query
	seen   []int       // chosen positions
	half   []uint16    // their keys
}

// grow makes room for queries of a store.
func (d *desk) grow(queries int, s *graph.KV) {
	d.Reset(queries, s.Dim, s.Values(), 0)
	if n := kv.PageSize * s.Dim; len(d.k) < n {
		d.k = make([]float32, n)
	}
	if n := kv.PageSize * s.Values(); len(d.v) < n {
		d.v = make([]float32, n)
	}
	if cap(d.spans) < queries {
		d.spans, d.older = make([]simd.Span, queries), make([]simd.Span, queries)
	}
	d.total, d.part = grow(d.total, queries*simd.PartSize(s.Values())), grow(d.part, simd.PartSize(s.Values()))
}

// turn turns a query, or a result back.
func (d *desk) turn(x []float32, size int) {
	if d.turned {
		simd.Turn(x, simd.TurnSize(size))
	}
}

// end ends range r of p, with the totals of p's ranges so far. If there are no other ranges, the result is complete;
// else the parts are kept, of p or of all, and the worker with the last parts of a job merges these.
func (c *cut) end(d *desk, p piece, r int, totals []float32) {
	b, dim, size := &c.blocks[p.block], c.store.Values(), simd.PartSize(c.store.Values())
	shared := p.last-p.first < b.last-b.first
	for i := range p.queries() {
		total := totals[i*size : (i+1)*size]
		switch {
		case shared:
			d.Part(i, c.part(p, r, i))
		case p.last-p.first == 1 && c.sinks == nil:
			out := c.out[p.row(i)*dim:][:dim]
			d.Result(i, out)
			d.turn(out, dim)
		default:
			if r == p.first {
				clear(total)
			}
			d.Part(i, d.part[:size])
			if simd.Merge(total, d.part[:size]); r == p.last-1 {
				c.result(d, p, i, total)
			}
		}
	}
	if d.Clear(); shared && c.left[p.job].Add(-1) == 0 {
		c.merge(d, p)
	}
}

// merge makes the result of p's queries of the parts of all ranges, in order.
func (c *cut) merge(d *desk, p piece) {
	b := &c.blocks[p.block]
	for i := range p.queries() {
		total := c.part(p, b.first, i)
		for r := b.first + 1; r < b.last; r++ {
			simd.Merge(total, c.part(p, r, i))
		}
		c.result(d, p, i, total)
	}
}

// result writes the result of query i of p, from total, the state after all positions.
func (c *cut) result(d *desk, p piece, i int, total []float32) {
	if c.sinks != nil {
		simd.Sink(total, c.sinks[p.row(i)%c.heads])
	}
	dim := c.store.Values()
	out := c.out[p.row(i)*dim:][:dim]
	simd.Quotient(out, total)
	d.turn(out, dim)
}

// addRange adds the pages of range r seen by p, in order, each in the form of its row.
func (c *cut) addRange(d *desk, s *backend.Step, p piece, r int) {
	kvs, cache, seq := c.store, s.Cache.(*cache), s.Seqs[p.from]
	form := cache.stores[kvs]
	first, end := c.blocks[p.block].seen(r)
	for page := first &^ (kv.PageSize - 1); page < end; page += kv.PageSize {
		d.spans, d.older = d.spans[:0], d.older[:0]
		var whole, older bool
		for t := p.from; t < p.to; t++ {
			pos := int(s.Pos[t])
			oldest, newest := s.Range(c.attr, t)
			span := simd.Span{From: max(0, oldest-page), To: min(kv.PageSize, newest+1-page)}
			var none simd.Span
			if form.isOlder(page/kv.PageSize, pos) {
				span, none, older = none, span, true
			} else {
				whole = true
			}
			for range p.heads {
				d.spans, d.older = append(d.spans, span), append(d.older, none)
			}
		}
		if whole {
			k, v := cache.load(d, kvs, seq, page, min(kv.PageSize, end-page), p.kv)
			d.Add(k, v, d.spans, c.scale)
		}
		if older {
			block, next := cache.older(kvs, seq, page, p.kv), page+kv.PageSize
			if next < p.last*simd.RangeSlots && form.isOlder(next/kv.PageSize, int(s.Pos[p.from])) {
				block.Next = cache.older(kvs, seq, next, p.kv)
			}
			d.AddNarrow(block, d.older, c.scale)
		}
	}
}

// rope turns the heads of each row of x by the table's angles at its position.
func (e *executable) rope(
	n *graph.Node, out, x []float32, row func(pos int) (cos, sin []float32),
) func(from, to int) error {
	size, dim, attr := n.Shape.Size(), n.Shape.Last(), n.Attr.(graph.RoPEAttr)
	part, rotate := attr.Turning(dim), simd.Rotate
	if attr.Interleaved {
		rotate = simd.RotatePairs
	}
	return func(from, to int) error {
		copy(out[from*size:to*size], x[from*size:])
		s := e.rowsOf(n)
		var angles []float32
		if s.Parts != nil {
			angles = make([]float32, 2*len(attr.Freqs))
		}
		for t := from; t < to; t++ {
			cos, sin := angles[:len(angles)/2], angles[len(angles)/2:]
			if !s.Turn(attr, t, cos, sin) {
				cos, sin = row(int(s.Pos[t]))
			}
			for h := 0; h < size; h += dim {
				rotate(out[t*size+h:t*size+h+part], cos, sin)
			}
		}
		return nil
	}
}
