package backend_test

import (
	"math"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// TestBlendScale: factors that float32 does not hold with a pair's scale are errors, 0 leaves an adapter out.
func TestBlendScale(t *testing.T) {
	a := &backend.Adapter{Name: "a", Pairs: map[*graph.Weight]*backend.Pair{{}: {Rank: 1, Scale: 1e30}}}
	for by, good := range map[float64]bool{0: true, -1: true, 1e8: true, 1e9: false, 1e300: false, math.Inf(-1): false} {
		b, err := backend.NewBlend(backend.Part{Adapter: a, By: by})
		if (err == nil) != good || good && (b == nil) != (by == 0) {
			t.Errorf("by %v: %v, %v", by, b, err)
		}
	}
	if _, err := backend.NewBlend(backend.Part{Adapter: a, By: math.NaN()}); err == nil {
		t.Error("by NaN: no error")
	}
}
