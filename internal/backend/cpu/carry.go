package cpu

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/simd"
)

// Element implements backend.Portable.
func (c *cache) Element() int { return c.kv.Bytes() }

// each calls f with the elements of the keys, then of the values, of positions from to to, in the order of
// backend.Portable.
func (c *cache) each(s *graph.KV, seq *kv.Sequence, from, to int, f func(p *page, at int)) error {
	for _, keys := range []bool{true, false} {
		for pos := from; pos < to; pos++ {
			class := c.stores[s].whole(pos / kv.PageSize).class
			if _, err := c.page(class, seq.Page(class, pos)); err != nil {
				return err
			}
			slot := pos % kv.PageSize
			for h := range s.Heads {
				p, k, v := c.locate(s, seq, pos, h)
				if keys {
					k += slot/simd.KeySlots*simd.KeySlots*s.Dim + slot%simd.KeySlots
					for i := range s.Dim {
						f(p, k+i*simd.KeySlots)
					}
					continue
				}
				for i := range s.Values() {
					f(p, v+slot*s.Values()+i)
				}
			}
		}
	}
	return nil
}

// Spans implements backend.Portable.
func (c *cache) Spans(s *graph.KV, n int) []backend.Span {
	first := 0
	if s.Window > 0 {
		first = max(0, n-s.Window+1)
	}
	recent := backend.RecentPage(n)
	if !c.stores[s].narrow || recent == 0 {
		return []backend.Span{{From: first, To: n}}
	}
	var spans []backend.Span
	if s.Window == 0 {
		spans, first = append(spans, backend.Span{To: kv.PageSize}), kv.PageSize
	}
	if first /= kv.PageSize; first < recent {
		spans = append(spans, backend.Span{From: first * kv.PageSize, To: recent * kv.PageSize, Narrow: true})
	}
	return append(spans, backend.Span{From: recent * kv.PageSize, To: n})
}

// narrowPages calls f with the scales and codes of the pages of a span in 8 bits, and of all heads.
func (c *cache) narrowPages(s *graph.KV, seq *kv.Sequence, span backend.Span, f func(n *simd.Narrow)) error {
	x := c.stores[s].older
	codes, scales := simd.NarrowSize(s.Dim, s.Values())
	for pos := span.From; pos < span.To; pos += kv.PageSize {
		p, err := c.page(x.class, seq.Page(x.class, pos))
		if err != nil {
			return err
		}
		f(&simd.Narrow{Codes: p.codes[x.at.codes:][:s.Heads*codes],
			Scales: p.f16[x.at.elements:][:s.Heads*scales]})
	}
	return nil
}

// ReadStore implements backend.Portable.
func (c *cache) ReadStore(s *graph.KV, seq *kv.Sequence, span backend.Span) (data []byte, err error) {
	if span.Narrow {
		err = c.narrowPages(s, seq, span, func(n *simd.Narrow) {
			for _, x := range n.Scales {
				data = binary.LittleEndian.AppendUint16(data, x)
			}
			data = append(data, n.Codes...)
		})
		return data, err
	}
	err = c.each(s, seq, span.From, span.To, func(p *page, at int) {
		if c.kv == KVF32 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(p.f32[at]))
		} else {
			data = binary.LittleEndian.AppendUint16(data, p.f16[at])
		}
	})
	return data, err
}

// WriteStore implements backend.Portable. Pages written whole get their 8-bit form.
func (c *cache) WriteStore(s *graph.KV, seq *kv.Sequence, span backend.Span, data []byte) error {
	each := int64(s.Heads*(s.Dim+s.Values())) * int64(c.kv.Bytes())
	if span.Narrow {
		each = backend.NarrowBytes(s)
	}
	if want := int64(span.To-span.From) * each; int64(len(data)) != want {
		return fmt.Errorf("%d bytes of keys and values, want %d", len(data), want)
	}
	if span.Narrow {
		return c.narrowPages(s, seq, span, func(n *simd.Narrow) {
			for i := range n.Scales {
				n.Scales[i], data = binary.LittleEndian.Uint16(data), data[2:]
			}
			data = data[copy(n.Codes, data):]
		})
	}
	err := c.each(s, seq, span.From, span.To, func(p *page, at int) {
		if c.kv == KVF32 {
			p.f32[at] = math.Float32frombits(binary.LittleEndian.Uint32(data))
		} else {
			p.f16[at] = binary.LittleEndian.Uint16(data)
		}
		data = data[c.kv.Bytes():]
	})
	for pos := span.From; err == nil && c.stores[s].narrow && pos+kv.PageSize <= span.To; pos += kv.PageSize {
		whole, first := backend.Span{From: pos, To: pos + kv.PageSize}, c.stores[s].isFirst(pos/kv.PageSize)
		if err = c.narrowPages(s, seq, whole, func(*simd.Narrow) {}); err == nil && !first {
			for h := range s.Heads {
				c.pack(&c.desks[0], s, seq, pos, h)
			}
		}
	}
	return err
}

// eachState calls f with the elements of seq's state and rows, in the order of backend.Portable.
func (c *cache) eachState(s *graph.State, seq *kv.Sequence, f func(x []float32)) error {
	if err := c.begin(seq); err != nil {
		return err
	}
	state, rows := c.state(s, seq)
	f(state)
	for i := range seq.Len() - seq.Start() {
		part := rows
		for _, r := range s.Rows {
			for j := range r.Count {
				f(part[(j*kv.PageSize+i)*r.Size:][:r.Size])
			}
			part = part[r.Count*kv.PageSize*r.Size:]
		}
	}
	return nil
}

// ReadState implements backend.Portable.
func (c *cache) ReadState(s *graph.State, seq *kv.Sequence) (data []byte, err error) {
	err = c.eachState(s, seq, func(x []float32) {
		for _, v := range x {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	})
	return data, err
}

// WriteState implements backend.Portable.
func (c *cache) WriteState(s *graph.State, seq *kv.Sequence, data []byte) error {
	if want := 4 * (s.Size + s.Row()*(seq.Len()-seq.Start())); len(data) != want {
		return fmt.Errorf("%d bytes of a state, want %d", len(data), want)
	}
	return c.eachState(s, seq, func(x []float32) {
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data))
			data = data[4:]
		}
	})
}
