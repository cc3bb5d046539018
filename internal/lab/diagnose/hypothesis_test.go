package diagnose

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
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
	if x := h.of(128); x.cost != 0.9 || x.value != 128 || x.free.fit.make(64).cost != 0.5 || h.cost != 0.4 {
		t.Errorf("%+v", x)
	}
	if x := h.of(0); x != nil {
		t.Errorf("%+v", x)
	}
}

// TestBeforeTheEnd: features whose rows lie past the end of a weight count for nothing only where enough others are left.
func TestBeforeTheEnd(t *testing.T) {
	for _, c := range []struct{ width, laid, read, want int }{
		{160, 416, 512, 130}, {256, 32, 256, 32}, {256, 8, 256, 256}, // of which 8 are left
		{64, 4, 32, 8}, {48, 4, 32, 48}, {8, 416, 512, 8},
	} {
		if got := beforeEnd(c.width, c.laid, c.read); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestSameFactors: factors are multiplied by twice, or left out, all together.
func TestSameFactors(t *testing.T) {
	var all []*hypothesis
	for _, by := range []float64{0.5, 3} {
		n := &graph.Node{Op: graph.Scale, Layer: 1, Attr: graph.ScaleAttr{By: by}}
		all = append(all, (&proposer{measurement: &measurement{subject: &subject{Options: Options{Graph: &graph.Graph{Nodes: []*graph.Node{n}}}}}}).scaleHypotheses(n)...)
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
