package reference_test

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
)

// TestAttributes wants every node of a model with all attributes as the backend computes it,
// from the tokens alone, and their positions where these have three parts.
func TestAttributes(t *testing.T) {
	g := backendtest.Attributes(t, 1)
	ids, image := make([]int32, 23), make([][3]int32, 23)
	for i := range ids {
		ids[i] = int32(i * 5 % backendtest.Vocab)
		image[i] = [3]int32{2, int32(2 + i/5), int32(2 + i%5)}
	}
	for _, parts := range [][][3]int32{nil, image} {
		all := recordedAt(t, g, ids, parts, round.Class{})
		e := reference.Of(g).Eval(ids, nil, nil).At(parts)
		for _, n := range g.Nodes {
			if n.Op == graph.StoreKV {
				continue
			}
			if d := distance(known(all, n), value(t, e, n)); !(d < 1e-12) {
				t.Errorf("%v, image %v: relative error %.3g", n, parts != nil, d)
			}
		}
	}
}
