package eval

import (
	"context"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Model is an opened model, to run over windows.
type Model struct{ model.Files }

// Windows cuts a text for the model: see Cut. Of the text no more is read than the windows need.
func (m *Model) Windows(ctx context.Context, text string, size, most int) (*Windows, error) {
	var ids []int32
	for piece, err := range m.Tokenizer.IDs(ctx, text, tokenizer.Options{AddSpecial: true}) {
		if err != nil {
			return nil, err
		}
		for _, id := range piece {
			ids = append(ids, int32(id))
		}
		if most > 0 && len(ids)/most >= size {
			break
		}
	}
	return Cut(ids, size, most)
}

// SameTokens returns an error if a token of w is spelled otherwise in m than in o: predictions of both are then not of
// the same text.
func (m *Model) SameTokens(o *Model, w *Windows) error {
	for _, id := range w.IDs {
		x, _ := m.Tokenizer.Token(int(id))
		if y, _ := o.Tokenizer.Token(int(id)); x != y {
			return fmt.Errorf("%s and %s cannot be compared: token %d is %q and %q", m.Checkpoint.Path,
				o.Checkpoint.Path, id, x, y)
		}
	}
	return nil
}

// Own reports whether the tokens of w are the tokens of m's tokenizer for their text, except for a few at the edges of
// windows. With another tokenizer about a tenth differs.
func (m *Model) Own(w *Windows) bool {
	own, all := 0, 0
	for i := 0; i < w.Count() && all < 1<<13; i++ {
		var ids []int
		for _, id := range w.Window(i) {
			ids = append(ids, int(id))
		}
		left := map[int]int{}
		for _, id := range m.Tokenizer.Encode(m.Tokenizer.Decode(ids, false), tokenizer.Options{ParseSpecial: true}) {
			left[id]++
		}
		for _, id := range ids {
			if left[id]--; left[id] >= 0 {
				own++
			}
		}
		all += len(ids)
	}
	return 100*own >= 97*all
}

// Begin returns the first token of a text for the model, -1 if there is none.
func (m *Model) Begin() int32 {
	if bos, ok := m.Tokenizer.BOS(); ok && m.Tokenizer.AddsBOS() {
		return int32(bos)
	}
	return -1
}

// Runner computes windows with a graph.
type Runner struct {
	backend backend.Backend
	engine  *engine.Engine
	begin   int32
	seq     *engine.Sequence
	ids     []int32 // of the window that are not computed yet
}

// Start readies m for windows of o.Engine.Context tokens. Windows beyond the memory are an error, except with o.NoFit.
func (m *Model) Start(ctx context.Context, o model.Options) (*Runner, error) {
	if !o.NoFit {
		if err := model.Fits(m.Checkpoint, m.Graph, o.Numerics, o.Threads, o.Engine.Context,
			o.Engine.Budget); err != nil {
			return nil, err
		}
	}
	var err error
	if o.Engine.Adapters, err = model.Blend(ctx, m.Checkpoint, m.Graph, o); err != nil {
		return nil, err
	}
	return NewRunner(ctx, m.Graph, o.Numerics, o.Threads, m.Begin(), o.Engine)
}

// NewRunner returns a runner for a graph with texts beginning with the token begin, unless negative. It keeps the keys
// and values of a single window: no two begin equally.
func NewRunner(ctx context.Context, g *graph.Graph, n numerics.Numerics, threads int, begin int32,
	o engine.Options) (*Runner, error) {
	b, err := n.Backend(threads)
	if err != nil {
		return nil, err
	}
	o.Private = true
	e, err := model.Compile(ctx, g, b, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &Runner{backend: b, engine: e, begin: begin}, nil
}

// Close frees the runner.
func (r *Runner) Close() error {
	if r.seq != nil {
		r.seq.Close()
	}
	return errors.Join(r.engine.Close(), r.backend.Close())
}

// Vocab returns the number of logits of a row.
func (r *Runner) Vocab() int { return r.engine.VocabSize() }

// Window begins a window and computes its first rows, of which the logits are not wanted.
func (r *Runner) Window(ctx context.Context, _ int, ids []int32, rows int) error {
	if r.seq != nil {
		r.seq.Close()
	}
	r.seq = r.engine.NewSequence()
	r.ids = append(r.ids[:0], ids...)
	if r.begin >= 0 {
		r.ids[0] = r.begin
	}
	_, err := r.feed(ctx, rows, 0)
	return err
}

// Rows computes the next n rows. least is NaN: all logits are known.
func (r *Runner) Rows(ctx context.Context, n int) ([]Row, error) { return r.feed(ctx, n, n) }

func (r *Runner) feed(ctx context.Context, n, wanted int) (rows []Row, err error) {
	logits, err := r.seq.Feed(ctx, r.ids[:n], wanted)
	if err != nil {
		return nil, err
	}
	r.ids = r.ids[n:]
	for _, x := range logits {
		rows = append(rows, Row{Logits: x})
	}
	return rows, nil
}
