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

// ReadState implements backend.Portable.
func (c *cache) ReadState(s *graph.State, seq *kv.Sequence) (data []byte, err error) {
	if _, err := c.page(c.slots, seq.Slot(c.slots)); err != nil {
		return nil, err
	}
	for _, v := range c.state(s, seq) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data, nil
}

// WriteState implements backend.Portable.
func (c *cache) WriteState(s *graph.State, seq *kv.Sequence, data []byte) error {
	if len(data) != 4*s.Size {
		return fmt.Errorf("%d bytes of a state, want %d", len(data), 4*s.Size)
	}
	if _, err := c.page(c.slots, seq.Slot(c.slots)); err != nil {
		return err
	}
	x := c.state(s, seq)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return nil
}
