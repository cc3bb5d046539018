package karat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/karat-run/karat/internal/embed"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Pooling selects the rows of a text that make its vector.
type Pooling string

// The poolings.
const (
	PoolMean Pooling = "mean" // the mean of all rows
	PoolCLS  Pooling = "cls"  // the first row
	PoolLast Pooling = "last" // the last row
	PoolNone Pooling = "none" // no pooling: the vectors of all rows, in order
)

// EmbedOptions say how texts become vectors. The zero value follows the model's files.
type EmbedOptions struct {
	Pooling    Pooling // "" is the model's
	Normalize  *bool   // whether vectors have length 1, as new(false); nil is the folder's setting, true by default
	Dimensions int     // number of first features kept, before normalizing; 0 is all
	Prompt     string  // name of the prompt before each text; "" is the model's default prompt, if any
	Caller     Caller  // author of the request

	// Progress is called, on any goroutine, with the number of finished texts and of all. Progress may be nil.
	Progress func(done, total int)
}

// embedder computes the rows behind vectors.
type embedder struct {
	engine interface{ NewSequence() *engine.Sequence } // an engine or a plan
	node   *graph.Node                                 // nil where the graph's result is pooled
}

// atOnce is how many texts are in the engine at a time: enough to fill a step.
const atOnce = 32

// Embed makes a vector of each text. A text's vector has the same bits beside any others. A text without tokens, or
// longer than the context, is an error. The error of an unfit model says what its files lack; with EmbedOptions.Pooling
// any generating model also makes vectors.
func (m *Model) Embed(ctx context.Context, texts []string, o EmbedOptions) ([][]float32, error) {
	return m.embedAll(ctx, len(texts), o, func(ctx context.Context, i int, prompt string) ([]int32, error) {
		return m.prompt(ctx, prompt+texts[i], tokenizer.Options{AddSpecial: true})
	})
}

// EmbedIDs makes vectors like Embed, of texts given as token ids, including all ids around a text. No prompt comes
// before them.
func (m *Model) EmbedIDs(ctx context.Context, texts [][]int, o EmbedOptions) ([][]float32, error) {
	return m.embedAll(ctx, len(texts), o, func(ctx context.Context, i int, _ string) ([]int32, error) {
		return m.promptIDs(ctx, texts[i])
	})
}

// embedAll makes the vectors of n texts, whose ids are tokenize's.
func (m *Model) embedAll(ctx context.Context, n int, o EmbedOptions,
	tokenize func(ctx context.Context, i int, prompt string) ([]int32, error)) ([][]float32, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if m.opened.Engine.InTap() {
		return nil, ErrInTap
	}
	head, prompt, err := m.embedHead(o)
	if err != nil {
		return nil, err
	}
	e, err := m.embedder(ctx)
	if err != nil {
		return nil, err
	}
	out := make([][]float32, n)
	err = forEach(ctx, n, o.Progress, func(ctx context.Context, i int) error {
		ids, err := tokenize(ctx, i, prompt)
		if err == nil && len(ids) == 0 {
			err = errors.New("it has no tokens")
		}
		if err != nil {
			return fmt.Errorf("text %d: %w", i, err)
		}
		rows, err := e.rows(ctx, ids, head.Pooling, o.Caller)
		if err != nil {
			return fmt.Errorf("text %d: %w", i, err)
		}
		out[i] = head.Vector(rows, o.Dimensions)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// EmbedSize returns the number of features in a vector of Embed; with PoolNone, in a row.
func (m *Model) EmbedSize(ctx context.Context, o EmbedOptions) (int, error) {
	if ctx == nil {
		return 0, errNilContext
	}
	head, _, err := m.embedHead(o)
	if err != nil || o.Dimensions > 0 {
		return o.Dimensions, err
	}
	return head.Features(model.Hidden(m.opened.Graph).Shape.Size()), nil
}

// forEach calls do for 0 to n-1, several at a time, until the first error.
func forEach(ctx context.Context, n int, progress func(done, total int),
	do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var all sync.WaitGroup
	for range min(atOnce, n) {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
				if k := done.Add(1); progress != nil {
					progress(int(k), n)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// readHead returns the head at to, read at the first call.
func (m *Model) readHead(to **embed.Head, read func() (*embed.Head, error)) (*embed.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if *to == nil {
		head, err := read()
		if err != nil {
			return nil, err
		}
		if err := head.Check(model.Hidden(m.opened.Graph).Shape.Size()); err != nil {
			return nil, fmt.Errorf("%s: %w", m.opened.Checkpoint.Path, err)
		}
		*to = head
	}
	return *to, nil
}

// embedHead returns the head for o, and the prompt before each text.
func (m *Model) embedHead(o EmbedOptions) (*embed.Head, string, error) {
	files, err := m.readHead(&m.head, m.opened.Checkpoint.Embedding)
	if err != nil {
		return nil, "", err
	}
	h, path := *files, m.opened.Checkpoint.Path
	if o.Pooling != "" {
		p, err := embed.Parse(string(o.Pooling))
		if err != nil {
			return nil, "", fmt.Errorf("EmbedOptions.Pooling: %w", err)
		}
		h.Pooling = p
	}
	if h.Pooling == "" {
		return nil, "", fmt.Errorf("%s: it is not an embedding model, or its files do not name the pooling (in "+
			"modules.json, or %s.pooling_type in GGUF): "+
			"--pooling, or EmbedOptions.Pooling, chooses mean, cls or last", path, m.opened.Checkpoint.Arch)
	}
	if o.Normalize != nil {
		h.Normalize = *o.Normalize
	}
	features := h.Features(model.Hidden(m.opened.Graph).Shape.Size())
	if o.Dimensions < 0 || o.Dimensions > features {
		return nil, "", fmt.Errorf("EmbedOptions.Dimensions is %d, want 1 to %d, or 0 for all", o.Dimensions, features)
	}
	name := o.Prompt
	if name == "" {
		name = h.Default
	}
	prompt, ok := h.Prompts[name]
	if name != "" && !ok {
		return nil, "", fmt.Errorf("%s: no prompt %q, it has %s", path, name,
			joinNames(slices.Sorted(maps.Keys(h.Prompts))))
	}
	if prompt != "" && h.Apart {
		return nil, "", fmt.Errorf("%s: include_prompt is false: leaving a prompt's rows out of the pooling is not "+
			"supported", path)
	}
	return &h, prompt, nil
}

// joinNames lists names for an error.
func joinNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%q", strings.Join(names, ", "))
}

// embedder returns the embedder of m, whose plan its first use makes.
func (m *Model) embedder(ctx context.Context) (*embedder, error) {
	n := model.Hidden(m.opened.Graph)
	if n == m.opened.Graph.Result() {
		return &embedder{engine: m.opened.Engine}, nil
	}
	p, err := m.planOf(ctx, &m.hidden, engine.Options{Keep: func(k *graph.Node) bool { return k == n }})
	return &embedder{p, n}, err
}

// rows computes the rows of ids for the pooling p: all, or the last.
func (e *embedder) rows(ctx context.Context, ids []int32, p embed.Pooling, who Caller) ([][]float32, error) {
	s := e.engine.NewSequence()
	defer s.Close()
	s.As(who.engine())
	wanted := len(ids)
	if p == embed.Last {
		wanted = 1
	}
	if e.node == nil {
		return s.Feed(ctx, ids, wanted)
	}
	return s.Values(ctx, ids, e.node, wanted)
}

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
