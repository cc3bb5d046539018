package reference_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
)

// TestHybrid wants what the backend computes of the operations that few families have,
// in any order of rows.
func TestHybrid(t *testing.T) {
	g := backendtest.Hybrid(t, 3)
	ids := make([]int32, 23)
	for i := range ids {
		ids[i] = int32(i * 7 % backendtest.Vocab)
	}
	want := recorded(t, g, ids, round.Class{})
	free := reference.Of(g).Eval(ids, nil, nil)
	for _, n := range g.Nodes {
		if n.Op == graph.StoreKV {
			continue
		}
		y, err := free.Compute(n, []int{22, 3})
		if err != nil {
			t.Fatal(err)
		}
		d, all := n.Shape.Size(), known(want, n)
		if x := append(append([]float64{}, all[22*d:]...), all[3*d:4*d]...); !(distance(x, y) <= 1e-12) {
			t.Errorf("%v: %g", n, distance(x, y))
		}
		if pull := compute(t, reference.Of(g).Eval(ids, want, nil), n); !(distance(all, pull) <= 1e-12) {
			t.Errorf("%v from the values before it: %g", n, distance(all, pull))
		}
	}
}

// TestNoRows: no rows have no values, whatever the operation. A prompt that has no tap asks for none.
func TestNoRows(t *testing.T) {
	for name, g := range map[string]*graph.Graph{"hybrid": backendtest.Hybrid(t, 3), "experts": load(t, "tiny-gemma4-moe")} {
		for _, n := range g.Nodes {
			if y, err := reference.Of(g).Eval(tokens(3), nil, nil).Compute(n, nil); err != nil || len(y) > 0 {
				t.Errorf("%s: %v: %v, %v", name, n, y, err)
			}
		}
	}
}
