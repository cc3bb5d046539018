package backendtest

import (
	"fmt"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// grouped is a graph of attention that groups change, and of one layer that they do not, over the same rows.
func grouped(t *testing.T, kv graph.KV, ahead bool) *graph.Graph {
	k := newSketch(29)
	seen := graph.AttentionAttr{KV: &kv, Scale: 0.4, Bidirectional: ahead, Grouped: true}
	k.StoreKV(&kv, k.input(kv.Heads, kv.Dim), k.input(kv.Heads, kv.Dim))
	x := k.AttentionWith(k.input(4, kv.Dim), seen, k.weight(tensor.F32, 4))
	plain := seen
	plain.Grouped = false
	return k.end(t, k.Add(x, k.AttentionWith(k.Heads(x, kv.Dim), plain, nil)))
}

// groups: rows of a group see each other, in steps of several sequences, with groups across pages and alone, however a
// sequence is cut between the groups; and a step has all of a group.
func (s *suite) groups(t *testing.T) {
	const length = 150
	groups := []backend.Group{{First: 3, End: 5}, {First: 5, End: 40}, {First: 41, End: 42}, {First: 50, End: 140}}
	of := func(pos int32) (in backend.Group) {
		for _, g := range groups {
			if g.First <= pos && pos < g.End {
				in = g
			}
		}
		return in
	}
	forward := func(m *machine, grouped bool, parts ...part) []float32 {
		step := m.step(parts...)
		for i, pos := range step.Pos {
			if step.Seqs[i] == m.seqs[0] && grouped {
				step.Groups = append(step.Groups, of(pos))
			} else if grouped {
				step.Groups = append(step.Groups, backend.Group{})
			}
		}
		return m.run(step)
	}
	var ids []int32
	for i := range length {
		ids = append(ids, text(0, i))
	}
	other := part{1, ids[:20]}
	for _, x := range []struct {
		kv    graph.KV
		ahead bool
	}{{graph.KV{Heads: 2, Dim: 16}, false}, {graph.KV{Heads: 2, Dim: 16, Window: 12}, false},
		{graph.KV{Heads: 1, Dim: 8, Window: 70}, false}, {graph.KV{Heads: 2, Dim: 32}, true}} {
		t.Run(fmt.Sprintf("%v ahead %v", &x.kv, x.ahead), func(t *testing.T) {
			g := grouped(t, x.kv, x.ahead)
			all := part{0, ids}
			want := forward(wanted(t, g, 200), true, all, other)
			m := start(t, s.open(), g, 200, nil)
			got := forward(m, true, all, other)
			var w worst
			w.compare(t, "groups", got, want, s.tol.Attention)
			plain := forward(start(t, s.open(), g, 200, nil), false, all, other)
			if width := g.Result().Shape.Size(); distance(got[:length*width], plain[:length*width]) < 1e-2 ||
				s.tol.SameBits && !sameBits(got[length*width:], plain[length*width:]) {
				t.Errorf("groups move their rows by %.3g, or rows of other sequences", distance(got, plain))
			}
			for _, cut := range [][]int{{3, 5, 40, 41, 42, 45, 50, 140, 141}, {2, 41, 150}, {1, 50, 149}} {
				if x.ahead || !s.tol.SameBits {
					break
				}
				m, at := start(t, s.open(), g, 200, nil), 0
				var parts []float32
				for _, to := range append(cut, length) {
					if to > at {
						parts, at = append(parts, forward(m, true, part{0, ids[at:to]})...), to
					}
				}
				if !sameBits(parts, got[:len(parts)]) {
					t.Errorf("cut at %v, the bits are others", cut)
				}
			}
			cut := start(t, s.open(), g, 200, nil)
			step := cut.step(part{0, ids[:4]})
			step.Groups = []backend.Group{{}, {}, {}, {First: 3, End: 5}}
			if _, err := cut.plan.Run(t.Context(), step, nil); err == nil {
				t.Error("a step with a part of a group")
			}
		})
	}
}

// deepstack: features behind embeddings are added where a graph says, and tokens have zeros.
func (s *suite) deepstack(t *testing.T) {
	k := newSketch(37)
	x := k.input(12)
	for i := range 2 {
		x = k.linear(tensor.F32, k.Add(x, k.Deepstack(i, 12)), 12)
	}
	g := k.end(t, x)
	ids := []int32{3, 1, 4, 1, 5}
	forward := func(b backend.Backend, change func(row []float32) []float32) []float32 {
		m := start(t, b, g, len(ids), all)
		step := m.step(part{0, ids})
		step.Embeddings = make([][]float32, len(ids))
		for i := 1; i < 4; i++ {
			row := make([]float32, 3*12)
			for j := range row {
				row[j] = float32((7*i+5*j)%11) - 5
			}
			step.Embeddings[i] = change(row)
		}
		return m.run(step)
	}
	whole := func(row []float32) []float32 { return row }
	got := forward(s.open(), whole)
	if d := distance(got, forward(reference.Backend{}, whole)); !(d <= s.tol.Float) {
		t.Errorf("relative error %.3g", d)
	}
	bare := forward(s.open(), func(row []float32) []float32 { return row[:12] })
	clear := forward(s.open(), func(row []float32) []float32 { return append(row[:12:12], make([]float32, 24)...) })
	if !sameBits(bare, clear) || distance(bare, got) < 1e-2 || !sameBits(bare[:12], got[:12]) {
		t.Errorf("features move rows by %.3g, and zeros by %.3g", distance(bare, got), distance(bare, clear))
	}
}
