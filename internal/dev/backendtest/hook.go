package backendtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// hooks: a tap that writes what it sees changes no bit, and a tap that sees nothing is not called. What
// another tap writes to a node is what later nodes read, in its step and from keys and values in later ones.
func (s *suite) hooks(t *testing.T) {
	s.ownValues(t, Attributes(t, 5))
	g := Decoder(t, 21, tensor.Q4_0, 0, 7)
	s.ownValues(t, g)
	mine, want := start(t, s.open(), g, 16, all), wanted(t, g, 16)
	w := &worst{}
	for i, n := range g.Nodes {
		if n.Op == graph.StoreKV || s.tol.Short && i%4 > 0 {
			continue
		}
		mine.seqs, want.seqs = nil, nil
		for j, parts := range schedule(12, 16, 9, 4) {
			got, err := mine.hooked(parts, n, change)
			if err != nil {
				t.Fatal(err)
			}
			ref, err := want.hooked(parts, n, change)
			if err != nil {
				t.Fatal(err)
			}
			w.compare(t, fmt.Sprintf("%v written, step %d", n, j), got, ref, s.tol.Layer)
		}
	}
}

// change is what hooks write in the place of x.
func change(x []float32) {
	for i := range x {
		x[i] = 0.75*x[i] + float32(i%5-2)/16
	}
}

// ownValues hooks all nodes of g and writes the values that are there.
func (s *suite) ownValues(t *testing.T, g *graph.Graph) {
	plain, hooked, calls := start(t, s.open(), g, 16, nil), start(t, s.open(), g, 16, all), 0
	for i, parts := range schedule(12, 16, 9, 4) {
		want := plain.forward(parts...)
		for _, write := range []bool{false, true} {
			m := hooked
			if write && s.tol.Short {
				break
			}
			m.seqs = m.seqs[:0:0]
			for _, earlier := range schedule(12, 16, 9, 4)[:i] {
				m.forward(earlier...)
			}
			step := m.step(parts...)
			step.Write = true
			if !write {
				step.Watch = func(*graph.Node) bool { return false }
			}
			got, err := m.plan.Run(t.Context(), step, func(_ *graph.Node, out []float32) {
				calls++
				copy(out, slices.Clone(out))
			})
			if err != nil || !sameBits(got, want) {
				t.Errorf("step %d, writing %v: %v, or other logits", i, write, err)
			}
			if !write && calls > 0 {
				t.Errorf("step %d: %d calls of a tap that watches nothing", i, calls)
			}
		}
		calls = 0
	}
}

// hooked is forward with a tap that sees n alone, and writes to it.
func (m *machine) hooked(parts []part, n *graph.Node, write func([]float32)) ([]float32, error) {
	step := m.step(parts...)
	step.Write, step.Watch = true, func(x *graph.Node) bool { return x == n }
	logits, err := m.plan.Run(m.t.Context(), step, backend.Tap(func(_ *graph.Node, out []float32) { write(out) }))
	return slices.Clone(logits), err
}
