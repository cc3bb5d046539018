package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// Mixed is the part of a prompt besides its tokens, such as an image's rows. The zero value is text.
type Mixed struct {
	// Embeddings are of each token nil, or [hidden] that stands in for it (backend.Step.Embeddings).
	Embeddings [][]float32

	// Parts are positions of the first tokens: time, height and width, by which RoPE nodes with sections turn
	// (backend.Step.Parts). The tokens behind them are text, also the tokens to come: all parts are one more than the
	// largest before. Nil is text alone. For example, behind 3 tokens of text an image of 2 by 2 rows has (3,3,3),
	// (3,3,4), (3,4,3) and (3,4,4), and the text behind it begins with (5,5,5).
	Parts [][3]int32
}

// beside is a Mixed that belongs to a sequence.
type beside struct {
	Mixed
	name  string // tells it from others; "" for text
	shift int32  // difference between the parts and the position of a row behind Parts
}

// Mix is Prefix for a prompt with m. It takes effect as the tokens are fed. Its keys and values serve only sequences of
// the same rows and positions, since tokens alone say nothing of them.
func (s *Sequence) Mix(tokens []int32, m Mixed, salt string) (n int, err error) {
	e := s.plan.e
	if err := e.checkMixed(tokens, m, e.Context()); err != nil {
		return 0, err
	}
	m.Parts = m.parts()
	if m.Parts != nil && !e.turning {
		return 0, errors.New("positions of three parts, the model has no sections that turn by them")
	}
	b := beside{name: m.hash()}
	switch b.name {
	case "":
	case s.beside.name:
		b = s.beside
	default:
		b.Mixed, b.shift = m.clone(), int32(m.behind()-len(m.Parts))
	}
	s.locked(func(*Engine) {
		s.salt = salt
		n = s.rewind(tokens, b)
	})
	return n, nil
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
	most := int32(backend.MaxPart - context) // so that the positions behind them also fit
	for i, p := range m.Parts {
		if slices.Min(p[:]) < 0 || slices.Max(p[:]) > most {
			return fmt.Errorf("position %v at row %d, parts are 0 to %d", p, i, most)
		}
	}
	return nil
}

// turns reports whether positions of g have three parts.
func turns(g *graph.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool {
		a, ok := n.Attr.(graph.RoPEAttr)
		return ok && a.Sections != [3]int{}
	})
}

// behind returns each part of the position behind m.Parts.
func (m Mixed) behind() (p int) {
	for _, part := range m.Parts {
		p = max(p, int(slices.Max(part[:]))+1)
	}
	return p
}

// parts returns m.Parts without the text at its end, whose positions follow anyway; nil where all is text.
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

// embedding returns the row that stands in for the token at a position; nil for none.
func (b *beside) embedding(at int) []float32 {
	if at < len(b.Embeddings) {
		return b.Embeddings[at]
	}
	return nil
}

// part returns the three-part position of the row at a position.
func (b *beside) part(at int) [3]int32 {
	if at < len(b.Parts) {
		return b.Parts[at]
	}
	p := int32(at) + b.shift
	return [3]int32{p, p, p}
}

// partsOf returns the three-part positions of the step; nil where all sequences are text.
func (st *step) partsOf() [][3]int32 {
	if !slices.ContainsFunc(st.batch, func(w *work) bool { return w.seq.beside.Parts != nil }) {
		return nil
	}
	st.parts = st.parts[:0]
	for _, w := range st.batch {
		for i := range w.seat.Rows {
			st.parts = append(st.parts, w.seq.beside.part(w.seat.At+i))
		}
	}
	return st.parts
}

// embeddings returns the embeddings of a step of so many rows; nil for none.
func embeddings(batch []*work, rows int) (all [][]float32) {
	at := 0
	for _, w := range batch {
		for i := range w.seat.Rows {
			if x := w.seq.beside.embedding(w.seat.At + i); x != nil {
				if all == nil {
					all = make([][]float32, rows)
				}
				all[at+i] = x
			}
		}
		at += w.seat.Rows
	}
	return all
}

// Values appends tokens, as Feed does, and returns the values of n after each of the last wanted tokens,
// [wanted][shape...]. Options.Keep must have the node. Steps in which nobody wants logits leave out the nodes that only
// logits need.
func (s *Sequence) Values(ctx context.Context, tokens []int32, n *graph.Node, wanted int) ([][]float32, error) {
	if _, ok := s.plan.kept[n]; !ok {
		return nil, fmt.Errorf("the value of node %v, which Options.Keep does not have", n)
	}
	w, err := s.feed(ctx, tokens, wanted, choice{node: n})
	if err != nil {
		return nil, err
	}
	return w.logits, nil
}
