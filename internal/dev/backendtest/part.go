package backendtest

import (
	"fmt"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
)

// turned is a graph of one RoPE node with sections, and one whose queries and keys turn so.
func turned(t *testing.T, a graph.RoPEAttr) []*graph.Graph {
	k := newSketch(23)
	one := k.end(t, k.RoPE("q", k.input(3, 20), a))
	k = newSketch(24)
	q, v := k.input(2, 20), k.input(2, 20)
	kv := &graph.KV{Heads: 2, Dim: 20}
	x := k.input(40)
	k.StoreKV(kv, k.RoPE("k", k.Heads(k.linear(tensor.F32, x, 40), 20), a), v)
	both := k.end(t, k.Attention(k.RoPE("q", q, a), kv, 0.3))
	return []*graph.Graph{one, both}
}

// sections: positions of three equal parts have the bits of a position, with sections and without;
// others turn as in float64, in each pair by its own part.
func (s *suite) sections(t *testing.T) {
	ids := []int32{3, 1, 4, 1, 5, 9, 2}
	plain := graph.RoPEAttr{Freqs: rope.New(100, 20)}
	for _, a := range []graph.RoPEAttr{{Sections: [3]int{4, 3, 3}}, {Sections: [3]int{4, 3, 3}, Woven: true},
		{Sections: [3]int{6, 2, 2}, Woven: true, Magnitude: 1.25}, {Sections: [3]int{1, 0, 9}, Interleaved: true}} {
		a.Freqs = plain.Freqs
		without := a
		without.Sections, without.Woven = [3]int{}, false
		for i, g := range turned(t, a) {
			t.Run(fmt.Sprintf("%v %v %d", a.Sections, a.Woven, i), func(t *testing.T) {
				compute := func(b backend.Backend, g *graph.Graph, parts func(i int32) [3]int32) []float32 {
					m := start(t, b, g, len(ids), nil)
					step := m.step(part{0, ids})
					for _, pos := range step.Pos {
						if parts != nil {
							step.Parts = append(step.Parts, parts(pos))
						}
					}
					return m.run(step)
				}
				equal := func(i int32) [3]int32 { return [3]int32{i, i, i} }
				image := func(i int32) [3]int32 { return [3]int32{5, 5 + i/3, 5 + i%3} }
				want := compute(s.open(), turned(t, without)[i], nil)
				if !sameBits(compute(s.open(), g, nil), want) || !sameBits(compute(s.open(), g, equal), want) {
					t.Error("text has other bits than without sections")
				}
				got, exact := compute(s.open(), g, image), compute(wanted(t, g, 1).b, g, image)
				if d := distance(got, exact); !(d <= s.tol.Attention) || distance(got, want) < 1e-2 {
					t.Errorf("an image: relative error %.3g, and %.3g from text", d, distance(got, want))
				}
			})
		}
	}
}
