package karat

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/tokenizer"
)

// RerankOptions say how documents are judged. The zero value is usable.
type RerankOptions struct {
	Truncate bool   // a document whose pair the context does not hold loses its end; else such a pair is an error
	Caller   Caller // author of the request

	// Progress is called, on any goroutine, with the number of finished documents and of all. Progress may be nil.
	Progress func(done, total int)
}

// RerankResult is the score of a document: how well the document answers a query.
type RerankResult struct {
	Index  int     // of the document
	Score  float32 // the model's logit: higher is better, and of most models 1/(1+e^-Score) is a probability
	Tokens int     // of the pair, as read by the model
}

// Rerank judges how well each document answers the query, best first, equal scores in their order. A document's score
// has the same bits beside any others. A pair longer than the context is an error wrapping ErrFull, except with
// RerankOptions.Truncate. The error of an unfit model says what its files lack.
func (m *Model) Rerank(ctx context.Context, query string, documents []string, o RerankOptions) ([]RerankResult, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if m.opened.Engine.InTap() {
		return nil, ErrInTap
	}
	head, err := m.readHead(&m.rank, m.opened.Checkpoint.Ranking)
	if err != nil {
		return nil, err
	}
	e, err := m.embedder(ctx)
	if err != nil {
		return nil, err
	}
	asked, length, err := m.firstIDs(ctx, query)
	if err != nil {
		return nil, err
	}
	out := make([]RerankResult, len(documents))
	err = forEach(ctx, len(documents), o.Progress, func(ctx context.Context, i int) error {
		ids, err := m.pairIDs(ctx, asked, length, documents[i], o.Truncate)
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
		rows, err := e.rows(ctx, ids, head.Pooling, o.Caller)
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
		out[i] = RerankResult{Index: i, Score: head.Vector(rows, 0)[0], Tokens: len(ids)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out, func(a, b RerankResult) int { return cmp.Compare(b.Score, a.Score) })
	return out, nil
}

// firstIDs returns the first ids of a text, at most a context of them, and the number of all.
func (m *Model) firstIDs(ctx context.Context, text string) (ids []int, all int, err error) {
	most := m.opened.Engine.Context()
	for piece, err := range m.opened.Tokenizer.IDs(ctx, text, tokenizer.Options{}) {
		if err != nil {
			return nil, 0, err
		}
		ids, all = append(ids, piece[:min(len(piece), most-len(ids))]...), all+len(piece)
	}
	return ids, all, nil
}

// pairIDs returns the ids of a query and a document in the model's form. query has the first ids of the query, length
// their full number.
func (m *Model) pairIDs(ctx context.Context, query []int, length int, document string, truncate bool) ([]int32, error) {
	ids, all, err := m.firstIDs(ctx, document)
	if err != nil {
		return nil, err
	}
	t, most := m.opened.Tokenizer, m.opened.Engine.Context()
	room := most - t.PairExtra() - length
	if all > room {
		if !truncate || room < 0 {
			return nil, fmt.Errorf("%w: query and document have %d tokens, %d of them the query's, and the context "+
				"holds %d", ErrFull, all+most-room, length, most)
		}
		ids = ids[:room]
	}
	both, kinds := t.Pair(query, ids)
	if n, _ := m.opened.Checkpoint.Setting("type_vocab_size").(float64); n > 1 && len(kinds) > 0 &&
		slices.Max(kinds) > 0 {
		return nil, fmt.Errorf("%s: the model tells a query from a document by token types, which are not supported "+
			"in pairs yet", m.opened.Checkpoint.Path)
	}
	return tokensOf(m.opened.Engine, both)
}
