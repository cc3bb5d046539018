package diagnose

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// TestCostOfValue: a value of an unlikely parameter is as unlikely: a window that no prompt is longer than is a missing one.
func TestCostOfValue(t *testing.T) {
	h := try(&mistake.Hypothesis{Cause: "window_size", Cost: 0.4, Fit: &mistake.Fit{Make: func(v float64) *mistake.Hypothesis {
		if v < 1 {
			return nil
		}
		return &mistake.Hypothesis{Cause: "window_size", Cost: 0.5}
	}}})
	if x := h.withValue(128); x.cost != 0.9 || x.value != 128 || x.free.fit.make(64).cost != 0.5 || h.cost != 0.4 {
		t.Errorf("%+v", x)
	}
	if x := h.withValue(0); x != nil {
		t.Errorf("%+v", x)
	}
}

// TestSameFactors: factors are multiplied by twice, or left out, all together.
func TestSameFactors(t *testing.T) {
	var all []*hypothesis
	for _, by := range []float64{0.5, 3} {
		n := &graph.Node{Op: graph.Scale, Layer: 1, Attr: graph.ScaleAttr{By: by}}
		p := mistake.Proposer{Wiring: mistake.Wire(&graph.Graph{Nodes: []*graph.Node{n}})}
		all = append(all, tried(p.Of(n))...)
	}
	if one := sameFactors(all[:1]); one != nil {
		t.Errorf("%+v", one)
	}
	joint := sameFactors(all)
	for i, want := range [][]float64{{0.25, 9}, {1, 1}} {
		for k, n := range joint[i].nodes {
			s := &reference.Spec{}
			joint[i].edits[n][0](s)
			if s.By != want[k] || len(joint[i].nodes) != 2 {
				t.Errorf("%s: %v", joint[i].computed, s.By)
			}
		}
	}
}
