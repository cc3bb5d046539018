package diagnose

import (
	"testing"

	"github.com/karat-run/karat/internal/graph"
)

// TestCostOfValue: a value of an unlikely parameter is as unlikely: a window that no prompt is longer than is a missing one.
func TestCostOfValue(t *testing.T) {
	h := unlikely(0.4, fitting("window_size", &graph.Node{}, fit{make: func(v float64) *hypothesis {
		if v < 1 {
			return nil
		}
		return unlikely(0.5, &hypothesis{cause: "window_size"})
	}}))
	if x := h.of(128); x.cost != 0.9 || x.value != 128 || x.remake(64).cost != 0.5 || h.cost != 0.4 {
		t.Errorf("%+v", x)
	}
	if x := h.of(0); x != nil {
		t.Errorf("%+v", x)
	}
}
