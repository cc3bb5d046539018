package diagnose

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
)

// otherKind is a layer treated as one of the model's other kind: its window and its turning;
// nil where there is none of that shape.
func (r *run) otherKind(n *graph.Node) *hypothesis {
	kv := n.Attr.(graph.AttentionAttr).KV
	for _, x := range r.g.Nodes {
		a, ok := x.Attr.(graph.AttentionAttr)
		if !ok || a.KV.Window == kv.Window || a.KV.Dim != kv.Dim {
			continue
		}
		h := edit("layer_pattern", n, "is computed as a layer of another kind, like "+fmt.Sprint(x.Layer), detail{"kind": "another"}, func(s *sim.Spec) { s.Window = a.KV.Window })
		if freqs, mine := r.rotations(x), r.rotations(n); len(freqs) > 0 {
			for _, y := range mine {
				h.edits[y] = []sim.Edit{func(s *sim.Spec) { s.Freqs = freqs[0].Attr.(graph.RoPEAttr).Freqs }}
			}
		}
		return h
	}
	return nil
}

// kinds makes one cause of two: a layer that turns as those of another kind do, and whose
// window is theirs, too, was taken for one of them. With taps behind rope these are two equations.
func (r *run) kinds() error {
	for _, h := range slices.Clone(r.accepted) {
		if h.node.Op != graph.RoPE || h.detail["speeds"] != anotherKind || h.detail["side"] != nil {
			continue
		}
		for i, x := range r.accepted {
			if x.node.Op != graph.Attention || x.node.Layer != h.node.Layer {
				continue
			}
			both := r.otherKind(x.node)
			if both == nil || x.cause != "window_missing" && x.cause != "layer_pattern" {
				continue
			}
			both.eqs = append(slices.Clone(h.eqs), x.eqs...)
			r.accepted[i] = both
			r.accepted = slices.DeleteFunc(r.accepted, func(a *hypothesis) bool { return a == h })
			break
		}
	}
	return nil
}

// anotherKind is what rope's speeds are said to be of, where they are another kind of layers'.
const anotherKind = "of another kind"
