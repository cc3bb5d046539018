package backendtest

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// Adapter is a random adapter for the Linears of g that beside wants, all if it is nil, whose
// ranks go around those given.
func Adapter(seed uint64, g *graph.Graph, beside func(*graph.Node) bool, ranks ...int) *backend.Adapter {
	r := rand.New(rand.NewPCG(seed, 2))
	a := &backend.Adapter{Name: fmt.Sprint("random ", seed), Pairs: map[*graph.Weight]*backend.Pair{},
		Hash: sha256.Sum256([]byte(fmt.Sprint(seed, ranks)))}
	for _, n := range g.Nodes {
		if n.Op != graph.Linear || beside != nil && !beside(n) {
			continue
		}
		out, in := n.W[0].Shape[0], n.W[0].Shape[1]
		p := &backend.Pair{Rank: ranks[len(a.Pairs)%len(ranks)], Scale: 0.5}
		p.A, p.B = make([]float32, p.Rank*in), make([]float32, out*p.Rank)
		for _, v := range [][]float32{p.A, p.B} {
			for i := range v {
				v[i] = float32(r.IntN(2001)-1000) / 8192 // the same on every machine
			}
		}
		a.Pairs[n.W[0]] = p
	}
	return a
}

// Blend is adapters, each by its factor.
func Blend(t testing.TB, parts ...backend.Part) *backend.Blend {
	t.Helper()
	b, err := backend.NewBlend(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// adapters: sequences with different adapters, with two at once and with none share steps.
// Their logits are ref's, and have the bits that they have alone, in other steps and with taps.
func (s *suite) adapters(t *testing.T) {
	lengths := []int{70, 50, 60, 40}
	if s.tol.Short {
		lengths = []int{20, 12, 15, 9}
	}
	for _, d := range []tensor.DType{tensor.BF16, tensor.Q4_0} {
		t.Run(d.String(), func(t *testing.T) {
			g := Decoder(t, 20, d, 0, 7)
			every := Adapter(1, g, nil, 3, 16, 33)
			// of a gate or what it gates, for one
			some := Adapter(2, g, func(n *graph.Node) bool { return n.ID%2 == 0 }, 8, 1)
			blends := []*backend.Blend{Blend(t, backend.Part{Adapter: every, By: 1}), nil,
				Blend(t, backend.Part{Adapter: some, By: -0.5}, backend.Part{Adapter: every, By: 0.25}),
				Blend(t, backend.Part{Adapter: some, By: 2})}
			adapted := func(m *machine) *machine {
				m.blends = blends
				return m
			}
			want := adapted(wanted(t, g, 48)).collect(schedule(1, 48, lengths...))
			got := adapted(start(t, s.open(), g, 48, nil)).collect(schedule(1, 48, lengths...))
			plain := start(t, s.open(), g, 48, nil).collect(schedule(1, 48, lengths...))
			var w worst
			for seq := range lengths {
				w.compare(t, fmt.Sprintf("sequence %d", seq), got[seq], want[seq], s.tol.Layer)
				if same := sameBits(got[seq], plain[seq]); same != (blends[seq] == nil) {
					t.Errorf("sequence %d: without adapters the same bits: %v", seq, same)
				}
			}
			t.Logf("relative error at most %.2g", w.d)
			if s.tol.SameBits {
				s.adaptersBits(t, g, adapted, got, lengths)
			}
		})
	}
}

func (s *suite) adaptersBits(t *testing.T, g *graph.Graph, adapted func(*machine) *machine, got [][]float32,
	lengths []int) {
	for _, rows := range []int{1, 5, 300} {
		for _, want := range []func(*graph.Node) bool{nil, all, func(n *graph.Node) bool {
			return n.Op == graph.Linear && n.ID%3 == 0
		}} {
			other := adapted(start(t, s.open(), g, rows, want)).collect(schedule(uint64(rows), rows, lengths...))
			if !sameLists(other, got) {
				t.Errorf("in steps of at most %d rows, with taps %v: other bits", rows, want != nil)
			}
		}
	}
	for seq := range lengths {
		only := make([]int, seq+1)
		only[seq] = lengths[seq]
		alone := adapted(start(t, s.open(), g, 32, nil)).collect(schedule(2, 32, only...))
		if !sameBits(alone[seq], got[seq]) {
			t.Errorf("alone, sequence %d has other bits", seq)
		}
	}
}
