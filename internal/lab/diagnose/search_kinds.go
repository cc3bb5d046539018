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
		as := h.Detail["speeds"] == mistake.AnotherKind || h.Cause == "rope_missing" && hasStillLayers(r.m)
		if h.Node.Op != graph.RoPE || !as || h.Detail["side"] != nil {
			continue
		}
		for i, x := range r.accepted {
			if x.Node.Op != graph.Attention || x.Node.Layer != h.Node.Layer {
				continue
			}
			kind := r.m.dump.wiring.OtherKind(x.Node)
			if kind == nil || x.Cause != "window_missing" && x.Cause != "layer_pattern" {
				continue
			}
			both := kind
			r.show(both).eqs = append(slices.Clone(r.show(h).eqs), r.show(x).eqs...)
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

// agree gives a layer the cause of another layer where two causes explain the layer's equation as well, and the other
// layer's equation the one alone: the same step is wrong in both.
func (r *search) agree() {
	for i, h := range r.accepted {
		for _, x := range r.show(h).also {
			if x.Node == h.Node && slices.ContainsFunc(r.accepted, func(y *hypothesis) bool {
				return y.Cause == x.Cause && y.Node.Layer != h.Node.Layer && role(y.Node) == role(x.Node) &&
					!slices.ContainsFunc(r.show(y).also, func(z *hypothesis) bool { return z.Cause == h.Cause })
			}) {
				r.accepted[i], r.shown[x] = x, r.shown[h]
				r.m.build(x.Edits)
				break
			}
		}
	}
}
