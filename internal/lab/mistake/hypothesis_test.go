package mistake

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// TestCostOfValue: a value of an unlikely parameter is as unlikely: a window that no prompt is longer than is a missing one.
func TestCostOfValue(t *testing.T) {
	h := (&Hypothesis{Cause: "window_size", Cost: 0.4, Fit: &Fit{Make: func(v float64) *Hypothesis {
		if v < 1 {
			return nil
		}
		return &Hypothesis{Cause: "window_size", Cost: 0.5}
	}}})
	if x := h.With(128); x.Cost != 0.9 || x.Value != 128 || x.Free.Fit.Make(64).Cost != 0.5 || h.Cost != 0.4 {
		t.Errorf("%+v", x)
	}
	if x := h.With(0); x != nil {
		t.Errorf("%+v", x)
	}
}

// TestCommonFactors: factors are multiplied by twice, or left out, all together.
func TestCommonFactors(t *testing.T) {
	var all []*Hypothesis
	for _, by := range []float64{0.5, 3} {
		n := &graph.Node{Op: graph.Scale, Layer: 1, Attr: graph.ScaleAttr{By: by}}
		p := Proposer{Wiring: Wire(&graph.Graph{Nodes: []*graph.Node{n}})}
		all = append(all, p.Of(n)...)
	}
	if one := commonFactors(all[:1]); one != nil {
		t.Errorf("%+v", one)
	}
	joint := commonFactors(all)
	for i, want := range [][]float64{{0.25, 9}, {1, 1}} {
		for k, n := range joint[i].Nodes {
			s := &reference.Spec{}
			joint[i].Edits[n][0](s)
			if s.By != want[k] || len(joint[i].Nodes) != 2 {
				t.Errorf("%s: %v", joint[i].Computed, s.By)
			}
		}
	}
}

// TestPairsOfRoutes: a route without its bias has every other mistake besides, since a search tries them together.
func TestPairsOfRoutes(t *testing.T) {
	g := load(t, "ernie45moe")
	p := build(g).Proposer
	n := build(g).layers[2].first(graph.Route)
	pairs := 0
	for _, h := range p.OfCause("router_bias", n) {
		for _, x := range p.Of(n) {
			for _, x := range x.Guesses() {
				if x.Cause == h.Cause {
					continue
				}
				for _, edits := range []reference.Edits{h.Edits.And(x.Edits), x.Edits.And(h.Edits)} {
					pairs++
					run(t, g, edits, ids(3), 0)
				}
			}
		}
	}
	if pairs < 10 {
		t.Errorf("%d pairs", pairs)
	}
}
