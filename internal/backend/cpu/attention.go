package cpu

import (
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
				p, at, span := c.locate(s, e.step.Seqs[t], int(e.step.Pos[t]), h)
				if c.kv == KVF32 {
					copy(p.f32[at:at+s.Dim], keys[row:])
					copy(p.f32[at+span:at+span+s.Dim], values[row:])
				} else {
					simd.StoreF16(p.f16[at:at+s.Dim], keys[row:row+s.Dim])
					simd.StoreF16(p.f16[at+span:at+span+s.Dim], values[row:row+s.Dim])
				}
			}
		}
		return nil
	}
	return func() error {
		c := e.step.Cache.(*cache)
		c.ensure(e.step, c.class[s.Window])
		return e.b.pool.run(len(e.step.Tokens), 16, body)
	}
}

// attention lets each head of each row attend to its sequence, page by page.
// A block is what the window leaves of a page, so its bounds follow from the
// row's position alone.
func (e *executable) attention(n *graph.Node, out, q []float32) func() error {
	a := n.Attr.(graph.AttentionAttr)
	heads, dim, scale := n.In[0].Shape[0], a.KV.Dim, float32(a.Scale)
	body := func(_, from, to int) error {
		c := e.step.Cache.(*cache)
		var acc simd.Attention
		for i := from; i < to; i++ {
			t, h := i/heads, i%heads
			row := q[i*dim : (i+1)*dim]
			acc.Reset(out[i*dim : (i+1)*dim])
			pos := int(e.step.Pos[t])
			first := 0
			if a.KV.Window > 0 {
				first = max(0, pos-a.KV.Window+1)
			}
			for first <= pos {
				count := min(pos+1-first, kv.PageSize-first%kv.PageSize)
				p, at, span := c.locate(a.KV, e.step.Seqs[t], first, h*a.KV.Heads/heads)
				if size := count * dim; c.kv == KVF32 {
					acc.AddF32(row, p.f32[at:at+size], p.f32[at+span:at+span+size], count, scale)
				} else {
					acc.AddF16(row, p.f16[at:at+size], p.f16[at+span:at+span+size], count, scale)
				}
				first += count
			}
			acc.Result(acc.Acc)
		}
		return nil
	}
	return func() error { return e.b.pool.run(len(e.step.Tokens)*heads, 1, body) }
}

// rope turns the heads of each row of x by the table's angles at its position.
func (e *executable) rope(n *graph.Node, out, x []float32, row func(pos int) (cos, sin []float32)) func() error {
	size, dim := n.Shape.Size(), n.Shape.Last()
	body := func(_, from, to int) error {
		copy(out[from*size:to*size], x[from*size:])
		for t := from; t < to; t++ {
			cos, sin := row(int(e.step.Pos[t]))
			for h := 0; h < size; h += dim {
				simd.Rotate(out[t*size+h:t*size+h+dim], cos, sin)
			}
		}
		return nil
	}
	return func() error { return e.b.pool.run(len(e.step.Tokens), 8, body) }
}
