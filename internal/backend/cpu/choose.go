package cpu

import (
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// sumSlots is how many positions are made room for at a time: a step of one more needs no other memory.
const sumSlots = 16 * simd.RangeSlots

// choose finds the best positions of each row. Rows are taken as many at a time as there are threads, which divide
// their ranges of positions, and then the rows: a score follows from its position alone.
func (e *executable) choose(n *graph.Node, out, q, weights []float32) func() error {
	index, k := n.Attr.(graph.ChooseAttr).Index, n.Shape.Size()
	heads, dim := n.In[0].Shape[0], index.Dim
	e.scores.sums = make([][]float32, e.b.pool.threads)
	first, ranges := 0, 0
	score := func(worker, from, to int) error {
		s := e.rowsOf(n)
		c := s.Cache.(*cache)
		d := &c.desks[worker]
		for i := from; i < to; i++ {
			t, at := first+i/ranges, i%ranges*simd.RangeSlots
			end := min(int(s.Pos[t])+1, at+simd.RangeSlots)
			if int(s.Pos[t]) < k || at >= end {
				continue
			}
			d.grow(heads, index)
			for h := range heads {
				copy(d.Query(h), q[(t*heads+h)*dim:])
			}
			for page := at; page < end; page += kv.PageSize {
				some := e.scores.sums[i/ranges][page:min(end, page+kv.PageSize)]
				clear(some)
				keys, _ := c.load(d, index, s.Seqs[t], page, len(some), 0)
				d.Index(some, keys, weights[t*heads:(t+1)*heads])
			}
		}
		return nil
	}
	pick := func(_, from, to int) error {
		for i := from; i < to; i++ {
			end := int(e.rowsOf(n).Pos[first+i]) + 1
			best(out[(first+i)*k:(first+i+1)*k], e.scores.sums[i][:end], min(index.Skip, end-1))
		}
		return nil
	}
	return func() error {
		s := e.rowsOf(n)
		for first = 0; first < len(s.Pos); first += len(e.scores.sums) {
			rows := min(len(e.scores.sums), len(s.Pos)-first)
			ranges = 0
			for i, pos := range s.Pos[first : first+rows] {
				e.scores.sums[i] = grow(e.scores.sums[i], (int(pos)/sumSlots+1)*sumSlots)
				ranges = max(ranges, int(pos)/simd.RangeSlots+1)
			}
			if err := e.b.pool.run(rows*ranges, 1, score); err != nil {
				return err
			}
			if err := e.b.pool.run(rows, 1, pick); err != nil {
				return err
			}
		}
		return nil
	}
}

// best writes the positions of the largest scores from one on, in order, and then -1.
func best(out, scores []float32, from int) {
	scores = scores[from:]
	want, least, skip := min(len(out), len(scores)), uint32(0), 0 // the least chosen, how often, and how often not
	for i := want; i < len(out); i++ {
		out[i] = -1
	}
	for shift := 24; want < len(scores) && shift >= 0; shift -= 8 {
		var count [256]int
		for _, s := range scores {
			if o := ordered(s); o>>(shift+8) == least>>(shift+8) {
				count[o>>shift&255]++
			}
		}
		digit := 255
		for ; want > count[digit]; digit-- {
			want -= count[digit]
		}
		least |= uint32(digit) << shift
		skip = count[digit] - want
	}
	i := 0
	for j, s := range scores {
		switch o := ordered(s); {
		case o < least:
			continue
		case o == least && skip > 0:
			skip--
			continue
		}
		out[i] = float32(from + j)
		i++
	}
}

// ordered returns a number with the order of scores, 0 for NaN.
func ordered(s float32) uint32 {
	b := math.Float32bits(s + 0)
	switch {
	case s != s:
		return 0
	case b>>31 == 1:
		return ^b
	}
	return b | 1<<31
}

// attendChosen lets heads attend to the positions chosen for their row as if there were no others: blocks and ranges
// are of these.
func (e *executable) attendChosen(n *graph.Node, out, q, chosen []float32) func() error {
	a, heads, k := n.Attr.(graph.AttentionAttr), n.In[0].Shape[0], n.In[1].Shape.Size()
	s, parts := a.KV, 1
	group := heads / s.Heads
	dim, values, size := s.Dim, s.Values(), simd.PartSize(s.Values())
	body := func(worker, from, to int) error {
		step := e.rowsOf(n)
		c := step.Cache.(*cache)
		d := &c.desks[worker]
		for i := from; i < to; i++ {
			t, part, head := i/parts/s.Heads, i%parts, i/parts%s.Heads
			first, last := group*part/parts, group*(part+1)/parts
			row, queries := t*heads+head*group+first, last-first
			d.grow(queries, s)
			total := d.total[:queries*size]
			clear(total)
			for j := range queries {
				copy(d.Query(j), q[(row+j)*dim:])
			}
			seen := d.seen[:0]
			for _, p := range chosen[t*k : (t+1)*k] {
				if p >= 0 && p <= float32(step.Pos[t]) { // a tap may have written others
					seen = append(seen, int(p))
				}
			}
			d.seen = seen
			for at := 0; at < len(seen); at += simd.BlockSlots {
				some := seen[at:min(at+simd.BlockSlots, len(seen))]
				c.gather(d, s, step.Seqs[t], some, head)
				d.spans = d.spans[:0]
				for range queries {
					d.spans = append(d.spans, simd.Span{To: len(some)})
				}
				d.Add(d.k, d.v, d.spans, float32(a.Scale))
				if end := at + simd.BlockSlots; end%simd.RangeSlots == 0 || end >= len(seen) {
					for j := range queries {
						d.Part(j, d.part[:size])
						simd.Merge(total[j*size:(j+1)*size], d.part[:size])
					}
					d.Clear()
				}
			}
			for j := range queries {
				simd.Quotient(out[(row+j)*values:][:values], total[j*size:(j+1)*size])
			}
		}
		return nil
	}
	return func() error {
		rows := len(e.rowsOf(n).Pos) * s.Heads
		for parts = 1; parts*simd.Quad < group && rows*parts < e.b.pool.threads; {
			parts++
		}
		return e.b.pool.run(rows*parts, 1, body)
	}
}

// gather copies keys and values of head h at some positions of a block's number to the desk, side by side.
func (c *cache) gather(d *desk, s *graph.KV, seq *kv.Sequence, positions []int, h int) {
	keys, values := d.k, d.v
	for j, pos := range positions {
		p, k, v := c.locate(s, seq, pos, h)
		slot := pos % kv.PageSize
		k, v = k+slot/simd.KeySlots*simd.KeySlots*s.Dim+slot%simd.KeySlots, v+slot*s.Values()
		to := j/simd.KeySlots*simd.KeySlots*s.Dim + j%simd.KeySlots
		if c.kv == KVF32 {
			pull(keys[to:], p.f32[k:], s.Dim)
			copy(values[j*s.Values():], p.f32[v:v+s.Values()])
			continue
		}
		d.half = grow(d.half, kv.PageSize*s.Dim)
		pull(d.half[to:], p.f16[k:], s.Dim)
		simd.LoadF16(values[j*s.Values():][:s.Values()], p.f16[v:v+s.Values()])
	}
	if c.kv != KVF32 {
		tiles := (len(positions) + simd.KeySlots - 1) &^ (simd.KeySlots - 1) * s.Dim
		simd.LoadF16(keys[:tiles], d.half[:tiles])
	}
}

// pull copies a key from among its neighbours to others.
func pull[T any](dst, key []T, n int) {
	for i := range n {
		dst[i*simd.KeySlots] = key[i*simd.KeySlots]
	}
}
