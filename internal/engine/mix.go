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

// Mixed is what a prompt has besides tokens, such as an image's rows. The zero value is text.
type Mixed struct {
	// Embeddings are of each token nil, or [hidden] that stands in for it (backend.Step.Embeddings).
	Embeddings [][]float32

	// Parts are positions of the first tokens: time, height and width, by which RoPE nodes with sections
	// turn (backend.Step.Parts). The tokens behind them, those to come too, are text: all parts are one more than the
	// largest before. None are of text alone. For example, behind 3 tokens of text an image of 2 by 2 rows has
	// (3,3,3), (3,3,4), (3,4,3) and (3,4,4), and the text behind it begins with (5,5,5).
	Parts [][3]int32
}

// Mix is Prefix for a prompt with m. It takes effect as the tokens are fed. Its keys and values serve only
// sequences of the same rows and positions: tokens alone say nothing of them.
func (s *Sequence) Mix(tokens []int32, m Mixed, salt string) (int, error) {
	if err := s.e.checkMixed(tokens, m); err != nil {
		return 0, err
	}
	m.Parts = m.parts()
	if m.Parts != nil && !s.e.turning {
		return 0, errors.New("positions of three parts, the model has no sections that turn by them")
	}
	name := m.name()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.salt = salt
	switch {
	case name == "":
		m = Mixed{}
	case name == s.rows:
		m = s.mixed
	default:
		m = m.clone()
	}
	return s.rewind(tokens, m, name), nil
}

// checkMixed tells whether m belongs to tokens and to the model.
func (e *Engine) checkMixed(tokens []int32, m Mixed) error {
	if n := max(len(m.Embeddings), len(m.Parts)); n > len(tokens) {
		return fmt.Errorf("%d rows of embeddings and %d positions for %d tokens", len(m.Embeddings), len(m.Parts), len(tokens))
	}
	for i, x := range m.Embeddings {
		if x != nil && (len(x) != e.hidden || len(x) == 0) {
			return fmt.Errorf("the embedding at row %d has %d elements, the model's have %d", i, len(x), e.hidden)
		}
	}
	most := int32(backend.MaxPart - e.Context()) // so that those behind them fit, too
	for i, p := range m.Parts {
		if slices.Min(p[:]) < 0 || slices.Max(p[:]) > most {
			return fmt.Errorf("position %v at row %d, parts are 0 to %d", p, i, most)
		}
	}
	return nil
}

// turning reports whether positions of g have three parts.
func turning(g *graph.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool {
		a, ok := n.Attr.(graph.RoPEAttr)
		return ok && a.Sections != [3]int{}
	})
}

// behind is each part of the position behind m.Parts.
func (m Mixed) behind() (p int) {
	for _, part := range m.Parts {
		p = max(p, int(slices.Max(part[:]))+1)
	}
	return p
}

// parts is m.Parts without the text at its end, whose positions follow anyway; nil where all is text.
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

// name tells m from all others: the SHA-256 of where its embeddings are, their elements, and its
// positions; "" where there are none.
func (m Mixed) name() string {
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
	b = binary.LittleEndian.AppendUint64(b[:0], math.MaxUint64) // which is no row
	for _, p := range m.Parts {
		for _, v := range p {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	h.Write(b)
	return string(h.Sum(nil))
}

// embedding is the row that stands in for the token at a position; nil for none.
func (s *Sequence) embedding(at int) []float32 {
	if at < len(s.mixed.Embeddings) {
		return s.mixed.Embeddings[at]
	}
	return nil
}

// part is the three-part position of the row at a position.
func (s *Sequence) part(at int) [3]int32 {
	if at < len(s.mixed.Parts) {
		return s.mixed.Parts[at]
	}
	p := int32(at) + s.shift
	return [3]int32{p, p, p}
}

// partsOf is the three-part positions of a step; nil where all sequences are text.
func (e *Engine) partsOf(batch []*work) [][3]int32 {
	if !slices.ContainsFunc(batch, func(w *work) bool { return w.seq.mixed.Parts != nil }) {
		return nil
	}
	e.parts = e.parts[:0]
	for _, w := range batch {
		for i := range w.rows {
			e.parts = append(e.parts, w.seq.part(w.at+i))
		}
	}
	return e.parts
}

// embeddings are those of a step of so many rows; nil for none.
func embeddings(batch []*work, rows int) (all [][]float32) {
	at := 0
	for _, w := range batch {
		for i := range w.rows {
			if x := w.seq.embedding(w.at + i); x != nil {
				if all == nil {
					all = make([][]float32, rows)
				}
				all[at+i] = x
			}
		}
		at += w.rows
	}
	return all
}

// Values appends tokens, as Feed does, and returns the values of n after each of the last wanted ones of them,
// [wanted][shape...]. The node is one that Options.Keep has. What only logits need is left out of steps in which nobody
// wants any.
func (s *Sequence) Values(ctx context.Context, tokens []int32, n *graph.Node, wanted int) ([][]float32, error) {
	if _, ok := s.e.kept[n]; !ok {
		return nil, fmt.Errorf("the value of node %v, which Options.Keep does not have", n)
	}
	w, err := s.feed(ctx, tokens, wanted, choice{node: n})
	if err != nil {
		return nil, err
	}
	return w.logits, nil
}
