package diagnose

import (
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// TestTurned: speeds are said as the base and the scaling that make them, not as angles.
func TestTurned(t *testing.T) {
	right := rope.New(1e6, 16)
	for _, c := range []struct {
		f    []float64
		want string
	}{
		{rope.New(1e4, 16), "as theta 1e+04 without a scaling does, not by theta 1e+06 without a scaling"},
		{times(right, 0.25), "0.25 times as fast as theta 1e+06 without a scaling does"},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8}, "by other angles a position: 1, 2, 3, 4 ..., not 1, 0.1778, 0.03162, 0.005623 ..."},
	} {
		if got := speedsOf(c.f, right, 16); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestTurnedSo: another kind of layers is said by its layers, and whether these slide.
func TestTurnedSo(t *testing.T) {
	r := begun(t)
	for _, n := range r.dump.graph.Nodes {
		if a, ok := n.Attr.(graph.RoPEAttr); ok {
			if got := r.dump.wiring.TurnedSo(a.Freqs); got != "layers 0, 1, 2, 3 should" {
				t.Errorf("%q", got)
			}
			if got := speeds(a.Freqs, n.Shape.Last()); got != "theta 1e+06 without a scaling" {
				t.Errorf("%q", got)
			}
			if got := speeds(append(times(a.Freqs[:2], 1), times(a.Freqs[2:], 0.125)...), n.Shape.Last()); got != "theta 1e+06 and a scaling" {
				t.Errorf("%q", got)
			}
			break
		}
	}
}
