package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// head drafts tokens by the model's own head (family.Decoder), before the step that verifies them. Rows of a draft
// write to the head's keys and values at the step's positions, and the step writes there again.
type head struct {
	run       backend.Executable
	fed, made *graph.Node // states for the head: of the engine's graph, and of its own
	step      backend.Step
	passes    int // before the running step
	took      time.Duration
}

// mostDrafting is the maximum of sequences with drafts in a step.
const mostDrafting = 64

// newHead compiles a head, nil for none. The engine's graph has the states.
func newHead(e *Engine, g *graph.Graph) (*head, error) {
	if g == nil {
		return nil, nil
	}
	h := &head{fed: e.graph.Node(family.StateName), made: g.Node(family.StateName)}
	rows := min(mostDrafting, e.chunk)
	var err error
	h.run, err = e.backend.Compile(g, backend.Options{Rows: rows, Outputs: rows, Tokens: e.tokens,
		Keep: func(n *graph.Node) bool { return n == h.made }})
	return h, err
}

// keep returns the nodes kept by a plan: keep's, and the states for the head.
func (h *head) keep(keep func(*graph.Node) bool) func(*graph.Node) bool {
	if h == nil {
		return keep
	}
	return func(n *graph.Node) bool { return n == h.fed || keep != nil && keep(n) }
}

// states are a sequence's states for the head.
type states struct {
	from, n int         // positions
	rows    [][]float32 // [n][hidden], and more memory
	own     []float32   // the head's state behind a draft
}

// has reports whether there is the state of a position.
func (x *states) has(at int) bool { return at >= x.from && at < x.from+x.n }

// wantStates adds to s the states of the outputs of a work whose request has drafts by the head. s has the rows.
func (h *head) wantStates(s *backend.Step, batch []*work) {
	row := 0
	for _, w := range batch {
		row += w.seat.Rows
		if !w.choice.states {
			continue
		}
		x := &w.seq.states
		x.n = 0 // until the step is computed
		for i := range w.seat.Outputs {
			if i == len(x.rows) {
				x.rows = append(x.rows, make([]float32, h.fed.Shape.Size()))
			}
			v := backend.Value{Node: h.fed, Row: int32(row - w.seat.Outputs + i), Out: x.rows[i]}
			s.Values = append(s.Values, v)
		}
	}
}

// drafts reports whether a pass with so many tokens drafted before has a row of w.
func (w *work) drafts(before int) bool { return w.choice.guessed && w.seat.Rows > 1+before }

// draft makes the drafts of a batch, a token of each in a pass.
func (h *head) draft(ctx context.Context, e *Engine, batch []*work) error {
	h.passes, h.took = 0, 0
	start := time.Now()
	for {
		s := &h.step
		*s = backend.Step{Tokens: s.Tokens[:0], Pos: s.Pos[:0], Seqs: s.Seqs[:0], Outputs: s.Outputs[:0],
			Embeddings: s.Embeddings[:0], Parts: nil, Values: s.Values[:0], Cache: e.cache}
		parts, turned := [][3]int32(nil), false
		for _, w := range batch {
			if !w.drafts(h.passes) {
				continue
			}
			row, at, x := int32(len(s.Tokens)), w.seat.At+h.passes, &w.seq.states
			state := x.own
			if h.passes == 0 {
				state = x.rows[at-1-x.from]
			}
			s.Tokens, s.Pos = append(s.Tokens, w.token(at)), append(s.Pos, int32(at))
			s.Seqs, s.Outputs = append(s.Seqs, w.seq.seat.Pages), append(s.Outputs, row)
			s.Embeddings, parts = append(s.Embeddings, state), append(parts, w.seq.extras.part(at))
			turned = turned || w.seq.extras.Parts != nil
			if w.drafts(h.passes + 1) {
				if x.own == nil {
					x.own = make([]float32, h.made.Shape.Size())
				}
				s.Values = append(s.Values, backend.Value{Node: h.made, Row: row, Out: x.own})
			}
		}
		if len(s.Tokens) == 0 {
			h.took = time.Since(start)
			return nil
		}
		if turned {
			s.Parts = parts
		}
		logits, err := h.run.Run(ctx, s, nil)
		if err != nil {
			return err
		}
		clear(s.Seqs)
		h.passes++
		for _, w := range batch {
			if w.drafts(h.passes - 1) {
				w.tokens[w.seat.At+h.passes-w.seat.From] = likeliest(logits[:min(cmp.Or(e.tokens, e.vocab), e.ids)])
				logits = logits[e.vocab:]
			}
		}
	}
}

// likeliest returns the first of the highest logits.
func likeliest(logits []float32) (best int32) {
	for i, v := range logits {
		if v > logits[best] {
			best = int32(i)
		}
	}
	return best
}
