package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
)

// Mixed is the part of a prompt besides its tokens, such as an image's rows. The zero value is text.
type Mixed struct {
	// Embeddings are for each token nil, or [hidden] in its place (backend.Step.Embeddings).
	Embeddings [][]float32

	// Parts are positions of the first tokens: time, height and width, the angles of RoPE nodes with sections
	// (backend.Step.Parts). Later tokens are text, also the tokens to come: all parts are one more than the largest
	// before. Nil is text alone. For example, after 3 tokens of text an image of 2 by 2 rows has (3,3,3), (3,3,4),
	// (3,4,3) and (3,4,4), and the text after the image begins with (5,5,5).
	Parts [][3]int32
}

// extras is the Mixed of a sequence.
type extras struct {
	Mixed
	name  string // identity among extras; "" for text
	shift int32  // difference between the parts and the position of a row behind Parts
}

// checkMixed returns an error if m does not belong to tokens, to the model or to sequences of so many positions.
func (f *facts) checkMixed(tokens []int32, m Mixed, context int) error {
	if n := max(len(m.Embeddings), len(m.Parts)); n > len(tokens) {
		return fmt.Errorf("%d rows of embeddings and %d positions for %d tokens", len(m.Embeddings), len(m.Parts),
			len(tokens))
	}
	for i, x := range m.Embeddings {
		if x != nil && (len(x) != f.hidden || len(x) == 0) {
			return fmt.Errorf("the embedding at row %d has %d elements, the model's have %d", i, len(x), f.hidden)
		}
	}
	most := int32(backend.MaxPart - context) // so that later positions also fit
	for i, p := range m.Parts {
		if slices.Min(p[:]) < 0 || slices.Max(p[:]) > most {
			return fmt.Errorf("position %v at row %d, parts are 0 to %d", p, i, most)
		}
	}
	return nil
}

// end returns each part of the position behind m.Parts.
func (m Mixed) end() (p int) {
	for _, part := range m.Parts {
		p = max(p, int(slices.Max(part[:]))+1)
	}
	return p
}

// parts returns m.Parts without the text at its end, with implied positions; nil if all is text.
func (m Mixed) parts() [][3]int32 {
	n, p := 0, int32(0)
	for i, part := range m.Parts {
		if part != [3]int32{p, p, p} {
			n = i + 1
		}
		p = max(p, slices.Max(part[:])+1)
	}
	if n == 0 {
		return nil
	}
	return m.Parts[:n]
}

func (m Mixed) clone() Mixed {
	m = Mixed{slices.Clone(m.Embeddings), slices.Clone(m.Parts)}
	for i, x := range m.Embeddings {
		m.Embeddings[i] = slices.Clone(x)
	}
	return m
}

// hash returns the SHA-256 of the places of m's embeddings, their elements, and its positions; "" where there are none.
func (m Mixed) hash() string {
	h, any := sha256.New(), len(m.Parts) > 0
	var b []byte
	for i, x := range m.Embeddings {
		if x == nil {
			continue
		}
		any, b = true, binary.LittleEndian.AppendUint64(b[:0], uint64(i))
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		h.Write(b)
	}
	if !any {
		return ""
	}
	b = binary.LittleEndian.AppendUint64(b[:0], math.MaxUint64) // the place of no row
	for _, p := range m.Parts {
		for _, v := range p {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	h.Write(b)
	return string(h.Sum(nil))
}

// embedding returns the row in place of the token at a position; nil for none.
func (b *extras) embedding(at int) []float32 {
	if at < len(b.Embeddings) {
		return b.Embeddings[at]
	}
	return nil
}

// part returns the three-part position of the row at a position.
func (b *extras) part(at int) [3]int32 {
	if at < len(b.Parts) {
		return b.Parts[at]
	}
	p := int32(at) + b.shift
	return [3]int32{p, p, p}
}
