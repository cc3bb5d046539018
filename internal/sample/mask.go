package sample

import (
	"math"
	"math/bits"
)

// Mask is the set of tokens allowed next: rising IDs, or bits if the tokens are many.
type Mask struct {
	IDs  []int32
	Bits []uint64 // token id is bit id%64 of word id/64; nil if IDs has the tokens
}

// Has reports whether a token may be chosen.
func (m *Mask) Has(id int) bool {
	if m.Bits != nil {
		return id>>6 < len(m.Bits) && m.Bits[id>>6]>>(id&63)&1 != 0
	}
	for _, x := range m.IDs {
		if int(x) == id {
			return true
		}
	}
	return false
}

// each calls yield with the mask's tokens inside the vocabulary, in order.
func (m *Mask) each(vocabulary int, yield func(id int) error) error {
	for _, id := range m.IDs {
		if int(id) >= vocabulary {
			break
		}
		if err := yield(int(id)); err != nil {
			return err
		}
	}
	for i, x := range m.Bits {
		for ; x != 0; x &= x - 1 {
			id := i<<6 + bits.TrailingZeros64(x)
			if id >= vocabulary {
				return nil
			}
			if err := yield(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// SampleMasked samples among the tokens of a mask, as if all other logits were -Inf.
func (s *Sampler) SampleMasked(logits []float32, history []int, mask *Mask) (id int, err error) {
	logits, err = s.adjust(logits, history)
	if err != nil {
		return 0, err
	}
	if id, err = s.chooseMasked(logits, mask); err == nil && s.chosen != nil {
		s.chosen[id]++
	}
	return id, err
}

func (s *Sampler) chooseMasked(logits []float32, mask *Mask) (id int, err error) {
	if s.o.Temperature == 0 {
		best, top := -1, float32(math.Inf(-1))
		err := mask.each(len(logits), func(id int) error {
			if logits[id] > top {
				best, top = id, logits[id]
			}
			return check(id, logits[id])
		})
		if err == nil && best < 0 {
			err = errNoToken
		}
		return best, err
	}
	s.candidates = s.candidates[:0]
	if err := mask.each(len(logits), func(id int) error { return s.admit(id, logits[id]) }); err != nil {
		return 0, err
	}
	return s.pick()
}
