package engine

import (
	"cmp"
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

	// Groups are runs of rows that see each other where the model lets an image's rows do so (graph.AttentionAttr),
	// ascending. A prompt is never cut within a group.
	Groups []backend.Group
}

// extras is the Mixed of a sequence.
type extras struct {
	Mixed
	digest string  // of all; "" for text
	name   string  // the digest where rows have no keys; else ""
	keys   []int32 // below 0, in place of the tokens of rows of embeddings, so that rows are found as tokens are
	tokens []int32 // of these rows
	shift  int32   // difference between the parts and the position of a row behind Parts
}

// checkMixed returns an error if m does not belong to tokens, to the model or to sequences of so many positions.
func (f *facts) checkMixed(tokens []int32, m Mixed, context int) error {
	if n := max(len(m.Embeddings), len(m.Parts)); n > len(tokens) {
		return fmt.Errorf("%d rows of embeddings and %d positions for %d tokens", len(m.Embeddings), len(m.Parts),
			len(tokens))
	}
	for i, x := range m.Embeddings {
		if x != nil && (len(x) != f.hidden && len(x) != f.hidden+f.stacked || len(x) == 0) {
			return fmt.Errorf("the embedding at row %d has %d elements, the model's have %d", i, len(x), f.hidden)
		}
	}
	end := int32(0)
	for _, g := range m.Groups {
		if g.First < end || g.End <= g.First || int(g.End) > len(tokens) || int(g.End-g.First) > f.chunk {
			return fmt.Errorf("a group of rows %d to %d after row %d, of %d tokens; a step has at most %d rows",
				g.First, g.End-1, end-1, len(tokens), f.chunk)
		}
		end = g.End
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
	m = Mixed{slices.Clone(m.Embeddings), slices.Clone(m.Parts), slices.Clone(m.Groups)}
	for i, x := range m.Embeddings {
		m.Embeddings[i] = slices.Clone(x)
	}
	return m
}

// newExtras returns the extras of a prompt with m, without m itself.
func newExtras(m Mixed, ring *keyring) (b extras) {
	b.Mixed, b.shift = m, int32(m.end()-len(m.Parts))
	whole, any := sha256.New(), len(m.Parts) > 0 || len(m.Groups) > 0
	named := b.stray()
	b.keys = make([]int32, len(m.Embeddings))
	for i := 0; i < len(m.Embeddings); i++ {
		from := i
		for i < len(m.Embeddings) && m.Embeddings[i] != nil {
			i++
		}
		if from == i {
			continue
		}
		run := b.hash(from, i)
		whole.Write(binary.LittleEndian.AppendUint64(run[:], uint64(from)))
		first := ring.keys(run, i-from)
		any, named = true, named || first == 0
		for at := from; at < i; at++ {
			b.keys[at] = first + int32(at-from)
		}
	}
	if !any {
		return extras{}
	}
	fmt.Fprint(whole, m.Parts, m.Groups)
	if b.digest = string(whole.Sum(nil)); named {
		b.name, b.keys = b.digest, nil
	}
	return b
}

// stray reports whether rows without embeddings have positions of three parts other than a text's, or groups.
func (b *extras) stray() bool {
	p := int32(0)
	for i, part := range b.Parts {
		if b.embedding(i) == nil && part != [3]int32{p, p, p} {
			return true
		}
		p = max(p, slices.Max(part[:])+1)
	}
	return slices.ContainsFunc(b.Groups, func(g backend.Group) bool {
		return int(g.End) > len(b.Embeddings) || slices.ContainsFunc(b.Embeddings[g.First:g.End],
			func(x []float32) bool { return x == nil })
	})
}

// hash returns the SHA-256 of rows of embeddings, their positions and their groups.
func (b *extras) hash(from, to int) [sha256.Size]byte {
	h, buf := sha256.New(), []byte(nil)
	for i := from; i < to; i++ {
		part, g := b.part(i), b.group(i)
		for _, v := range []int32{part[0], part[1], part[2], int32(i) - g.First, g.End - int32(i)} {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(v))
		}
		for _, v := range b.Embeddings[i] {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		h.Write(buf)
		buf = buf[:0]
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// key returns what stands for the token at a position among a sequence's tokens.
func (b *extras) key(at int, token int32) int32 {
	if at < len(b.keys) && b.keys[at] < 0 {
		return b.keys[at]
	}
	return token
}

// keyed returns a prompt's tokens with keys in place of rows.
func (b *extras) keyed(tokens []int32) []int32 {
	if len(b.keys) == 0 {
		return tokens
	}
	tokens = slices.Clone(tokens)
	for i := range tokens {
		tokens[i] = b.key(i, tokens[i])
	}
	return tokens
}

// group returns the group of the row at a position; zero for none.
func (b *extras) group(at int) backend.Group {
	i, _ := slices.BinarySearchFunc(b.Groups, int32(at),
		func(g backend.Group, at int32) int { return cmp.Compare(g.End-1, at) })
	if i < len(b.Groups) && b.Groups[i].First <= int32(at) {
		return b.Groups[i]
	}
	return backend.Group{}
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
