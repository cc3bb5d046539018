package reference

import (
	"context"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/mmap"
)

// edited runs a graph of edited nodes: an engine with mistakes. Each sequence has an evaluation of its own with the
// values of all positions.
type edited struct {
	g     *graph.Graph
	rows  int
	want  func(*graph.Node) bool
	after map[*graph.Node]bool // nodes behind Rows, with a row for each output
}

// histories are the evaluations of sequences: the cache of an edited graph.
type histories struct {
	backend Backend
	model   *Model
	class   *Numerics
	of      map[*kv.Sequence]*Eval
}

func (h *histories) PageBytes(int) int64          { return 0 }
func (h *histories) Bytes() int64                 { return 0 }
func (h *histories) Copy(int, int32, int32) error { return nil }
func (h *histories) Close() error                 { return nil }

// step appends a step's tokens to its sequence's evaluation, and returns the evaluation and the positions.
func (h *histories) step(s *backend.Step) (*Eval, []int, error) {
	q, first := s.Seqs[0], int(s.Pos[0])
	e := h.of[q]
	if e == nil || first == 0 {
		e = h.model.Eval(nil, nil, h.class)
		e.edits = h.backend.Edits
		h.of[q] = e
	}
	rows := make([]int, len(s.Tokens))
	for i, id := range s.Tokens {
		if s.Seqs[i] != q || int(s.Pos[i]) != len(e.ids) || len(s.Adapters) > 0 {
			return nil, nil, errors.New("an edited graph runs one sequence of tokens, from its first on")
		}
		rows[i] = len(e.ids)
		e.ids = append(e.ids, id)
		if r := append(e.rows, make([][]float32, rows[i]-len(e.rows))...); s.Embeddings != nil {
			e.rows = append(r, s.Embeddings[i])
		}
		if s.Parts != nil {
			e.parts = append(e.parts, s.Parts[i])
		}
		if g := append(e.groups, make([]backend.Group, rows[i]-len(e.groups))...); s.Groups != nil {
			e.groups = append(g, s.Groups[i])
		}
		e.steps = append(e.steps, [2]int{first, first + len(s.Tokens) - 1})
	}
	return e, rows, nil
}

// Run implements backend.Executable.
func (x *edited) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if err := s.Check(x.rows, backend.Vocab(x.g)); err != nil {
		return nil, err
	}
	h, ok := s.Cache.(*histories)
	if !ok {
		return nil, errors.New("the step's cache is not this backend's")
	}
	e, rows, err := h.step(s)
	if err != nil {
		return nil, err
	}
	var outputs []int
	for _, r := range s.Outputs {
		outputs = append(outputs, rows[r])
	}
	var last []float64
	for _, n := range x.g.Nodes {
		tapped := tap != nil && x.want != nil && n.Op != graph.StoreKV && x.want(n) && s.Sees(n)
		if !tapped && n != x.g.Result() {
			continue
		}
		at := rows
		if x.after[n] {
			at = outputs
		}
		err := mmap.Guard(func() (err error) {
			last, err = e.Value(n, at)
			return err
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("%v: %w", n, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case tapped:
			tap(n, narrow(last))
		}
	}
	return narrow(last), nil
}
