package cpu

import (
	"encoding/binary"
	"fmt"
	"math"

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
			if _, err := c.page(c.class[s.Window], seq.Page(c.class[s.Window], pos)); err != nil {
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

// ReadStore implements backend.Portable.
func (c *cache) ReadStore(s *graph.KV, seq *kv.Sequence, from, to int) (data []byte, err error) {
	err = c.each(s, seq, from, to, func(p *page, at int) {
		if c.kv == KVF32 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(p.f32[at]))
		} else {
			data = binary.LittleEndian.AppendUint16(data, p.f16[at])
		}
	})
	return data, err
}

// WriteStore implements backend.Portable.
func (c *cache) WriteStore(s *graph.KV, seq *kv.Sequence, from, to int, data []byte) error {
	if want := (to - from) * s.Heads * (s.Dim + s.Values()) * c.kv.Bytes(); len(data) != want {
		return fmt.Errorf("%d bytes of keys and values, want %d", len(data), want)
	}
	return c.each(s, seq, from, to, func(p *page, at int) {
		if c.kv == KVF32 {
			p.f32[at] = math.Float32frombits(binary.LittleEndian.Uint32(data))
		} else {
			p.f16[at] = binary.LittleEndian.Uint16(data)
		}
		data = data[c.kv.Bytes():]
	})
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
