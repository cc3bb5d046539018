package backendtest

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// States checks that a sequence's states are zero where it starts, also in a slot that another
// had, and stay with it. begin and state are of the cache that open makes: begin readies it for a
// step, and state is what s holds of q, to be read and written.
func States[F float32 | float64](t *testing.T, open func(*graph.Graph, *kv.Pool) (begin func(*backend.Step) error,
	state func(s *graph.State, q *kv.Sequence) []F)) {
	t.Helper()
	states := []*graph.State{{Name: "conv", Size: 3}, {Name: "scan", Size: 70}}
	g := &graph.Graph{Nodes: []*graph.Node{{State: states[0]}, {State: states[1]}, {State: states[0]}}}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g), Context: 8, Chunk: 8})
	ready, state := open(g, pool)
	begin := func(pos int32, seqs ...*kv.Sequence) {
		t.Helper()
		for _, q := range seqs {
			if err := q.Grow(1); err != nil {
				t.Fatal(err)
			}
		}
		if err := ready(&backend.Step{Pos: slices.Repeat([]int32{pos}, len(seqs)), Seqs: seqs}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(q *kv.Sequence, x F) {
		t.Helper()
		for _, s := range states {
			if got := state(s, q); !slices.Equal(got, slices.Repeat([]F{x}, s.Size)) {
				t.Errorf("%s holds %v, want %v", s.Name, got, x)
			}
		}
	}
	fill := func(q *kv.Sequence, x F) {
		for _, s := range states {
			copy(state(s, q), slices.Repeat([]F{x}, s.Size))
		}
	}
	q, r := pool.NewSequence(), pool.NewSequence()
	begin(0, q, r)
	want(q, 0)
	fill(q, 1)
	fill(r, 2)
	begin(1, r, q)
	want(q, 1)
	want(r, 2)
	q.Free()
	begin(0, q)
	want(q, 0)
	want(r, 2)
}
