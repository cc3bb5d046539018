package diagnose

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// kinds makes a single cause of two: a layer that turns as layers of another kind do, and has their window, was
// taken for a layer of that kind. With taps behind rope these are two equations.
func (r *search) kinds() error {
	for _, h := range slices.Clone(r.accepted) {
		as := h.detail["speeds"] == mistake.AnotherKind || h.cause == "rope_missing" && hasStillLayers(r.m)
		if h.node.Op != graph.RoPE || !as || h.detail["side"] != nil {
			continue
		}
		for i, x := range r.accepted {
			if x.node.Op != graph.Attention || x.node.Layer != h.node.Layer {
				continue
			}
			kind := r.m.dump.wiring.OtherKind(x.node)
			if kind == nil || x.cause != "window_missing" && x.cause != "layer_pattern" {
				continue
			}
			both := try(kind)
			both.eqs = append(slices.Clone(h.eqs), x.eqs...)
			r.accepted[i] = both
			r.accepted = slices.DeleteFunc(r.accepted, func(a *hypothesis) bool { return a == h })
			break
		}
	}
	return nil
}

// hasStillLayers reports whether the model has layers whose attention turns nothing.
func hasStillLayers(m *measurement) bool {
	return slices.ContainsFunc(m.dump.graph.Nodes, func(n *graph.Node) bool {
		return n.Op == graph.Attention && len(m.dump.wiring.Rotations(n)) == 0
	})
}
