package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// Mix is Prefix for a prompt some of whose rows are embeddings, such as an image's: of each
// token rows has nil, or [hidden] that stands in for it (backend.Step.Embeddings). They take
// effect as the tokens are fed. Its keys and values serve only sequences of the same rows
// at the same positions: tokens alone say nothing of them.
func (s *Sequence) Mix(tokens []int32, rows [][]float32, salt string) (int, error) {
	if len(rows) > len(tokens) {
		return 0, fmt.Errorf("engine: %d rows of embeddings for %d tokens", len(rows), len(tokens))
	}
	for i, x := range rows {
		if x != nil && (len(x) != s.e.hidden || len(x) == 0) {
			return 0, fmt.Errorf("engine: the embedding at row %d has %d elements, the model's have %d", i, len(x), s.e.hidden)
		}
	}
	name := nameOf(rows)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.salt = salt
	if name == "" {
		return s.rewind(tokens, nil, ""), nil
	}
	mixed := s.mixed
	if name != s.rows {
		mixed = slices.Clone(rows)
		for i, x := range mixed {
			mixed[i] = slices.Clone(x)
		}
	}
	return s.rewind(tokens, mixed, name), nil
}

// nameOf tells rows from all others: the SHA-256 of their positions and elements; "" where there are none.
func nameOf(rows [][]float32) string {
	h, any := sha256.New(), false
	var b []byte
	for i, x := range rows {
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
	return string(h.Sum(nil))
}

// embedding is the row that stands in for the token at a position; nil for none.
func (s *Sequence) embedding(at int) []float32 {
	if at < len(s.mixed) {
		return s.mixed[at]
	}
	return nil
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
		return nil, fmt.Errorf("engine: the value of node %v, which Options.Keep does not have", n)
	}
	w, err := s.feed(ctx, tokens, wanted, choice{node: n})
	if err != nil {
		return nil, err
	}
	return w.logits, nil
}
