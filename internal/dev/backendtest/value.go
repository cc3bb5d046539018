package backendtest

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// values: a row that a step asks for has the bits of the same row of the node's tap, whichever
// nodes are kept; asking leaves the logits as they are, and a step without logits leaves
// keys and values for the next one.
func (s *suite) values(t *testing.T) {
	g := Decoder(t, 21, tensor.Q4_0, 0, 7)
	steps := schedule(12, 16, 9, 4)
	tapped := start(t, s.open(), g, 16, all)
	var taps []map[*graph.Node][]float32
	var logits [][]float32
	for _, parts := range steps {
		logits = append(logits, tapped.forward(parts...))
		taps = append(taps, tapped.taps)
	}
	nodes := slices.DeleteFunc(slices.Clone(g.Nodes), func(n *graph.Node) bool { return n.Op == graph.StoreKV })
	sets := [][]*graph.Node{nodes}
	for i, n := range nodes {
		if i%3 == len(sets)%3 || n == g.Result() {
			sets = append(sets, []*graph.Node{n})
		}
	}
	for _, set := range sets {
		for _, bare := range []bool{false, true} {
			m := keeping(t, s.open(), g, 16, func(n *graph.Node) bool { return slices.Contains(set, n) })
			for i, parts := range steps {
				step := m.step(parts...)
				step.NoLogits = bare
				ask(step, set, i)
				got, err := m.plan.Run(t.Context(), step, nil)
				if err != nil {
					t.Fatalf("%v: %v", set[0], err)
				}
				if bare != (got == nil) || !bare && !sameBits(got, outputs(logits[i], step)) {
					t.Errorf("%v and %d others: asking for them changes the logits of step %d", set[0], len(set)-1, i)
				}
				compareValues(t, step, taps[i])
			}
		}
	}
}

// keeping is start with nodes that are kept.
func keeping(t *testing.T, b backend.Backend, g *graph.Graph, rows int, keep func(*graph.Node) bool) *machine {
	t.Helper()
	m := &machine{t: t, g: g, b: b, pool: kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 16384,
		Chunk: rows})}
	m.compile(backend.Options{Rows: rows, Keep: keep})
	return m
}

// ask asks for the nodes' rows of a step: the last, and some others of the i-th. Of the outputs
// some are left.
func ask(s *backend.Step, nodes []*graph.Node, i int) {
	rows := s.Outputs
	if i%2 == 1 {
		rows = []int32{rows[0], rows[len(rows)-1]}
		rows = slices.Compact(rows)
		s.Outputs = rows
	}
	for _, n := range nodes {
		for j, r := range slices.Backward(rows) { // in no order
			if j%2 == 0 || j == len(rows)-1 {
				s.Values = append(s.Values, backend.Value{Node: n, Row: r, Out: make([]float32, n.Shape.Size())})
			}
		}
	}
}

// outputs is the part of all rows' logits that s wants.
func outputs(all []float32, s *backend.Step) (some []float32) {
	n := len(all) / len(s.Tokens)
	for _, r := range s.Outputs {
		some = append(some, all[int(r)*n:][:n]...)
	}
	return some
}

// compareValues wants what s asked for to be the rows of the taps of a step whose rows are all outputs.
func compareValues(t *testing.T, s *backend.Step, taps map[*graph.Node][]float32) {
	t.Helper()
	for _, v := range s.Values {
		n := v.Node.Shape.Size()
		if want := taps[v.Node][int(v.Row)*n:][:n]; !sameBits(v.Out, want) {
			t.Errorf("row %d of %v: %.3g from its tap", v.Row, v.Node, distance(v.Out, want))
		}
	}
}
