package diagnose

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// proposer lists what an engine may do instead of what the graph says.
type proposer struct {
	*measurement
	steps *steps
	base  *attempt // the assumptions so far; nil for none
}

// propose lists what the engine may do instead in the nodes of eq's span. A fault
// that is on no list fits none of them, and stays unknown.
func propose(m *measurement, eq *equation) ([]*hypothesis, error) {
	r, all := &proposer{m, &steps{m.prompts, m.byNode, nil}, nil}, []*hypothesis(nil)
	for _, n := range eq.span {
		all = append(all, r.of(eq, n)...)
		all = append(all, r.skippedNorms(n)...)
		if n.Op == graph.RMSNorm || n.Op == graph.Add || role(n) == "inp_gate" {
			for _, h := range r.placesOfPLE(n) {
				if !slices.ContainsFunc(all, func(x *hypothesis) bool { return x.node == h.node && same(x, h) }) {
					all = append(all, h)
				}
			}
		}
	}
	everywhere := append(sameEpsilon(all, eq.target.Layer), sameFactors(all)...)
	if eq.layers() > 1 {
		return append(systemic(all), everywhere...), nil
	}
	measured, err := r.measured(eq)
	return slices.Concat(all, everywhere, measured), err
}

// of lists what the engine may do instead of node n.
func (r *proposer) of(eq *equation, n *graph.Node) []*hypothesis {
	switch n.Op {
	case graph.Embed:
		return r.embedHypotheses(n)
	case graph.Linear:
		return r.linearHypotheses(n)
	case graph.RMSNorm:
		return r.normHypotheses(n)
	case graph.RoPE:
		return r.ropeHypotheses(eq, n)
	case graph.Attention:
		return r.attentionHypotheses(n)
	case graph.Add:
		return r.addHypotheses(n)
	case graph.Mul:
		return r.mulHypotheses(n)
	case graph.Scale:
		return r.scaleHypotheses(n)
	case graph.GLU, graph.Act:
		return append(gluHypotheses(n), r.upActivated(n)...)
	case graph.Route:
		return append(routeHypotheses(n), r.moreExperts(n)...)
	case graph.Experts:
		return r.expertsHypotheses(n)
	case graph.Softcap:
		return softcapHypotheses(n)
	case graph.LayerNorm:
		return r.layerNormHypotheses(n)
	case graph.EmbedPos:
		return positionHypotheses(n)
	case graph.ScalePos:
		return temperatureHypotheses(n)
	case graph.Concat:
		return concatHypotheses(n)
	case graph.Slice:
		return sliceHypotheses(n)
	case graph.L2Norm:
		return []*hypothesis{edit("norm_length", n, "divides by the root of the mean square", detail{}, func(s *reference.Spec) { s.Func = meanSquare }), edit("norm_missing", n, "leaves the norm out", detail{}, passes(0))}
	case graph.HeadLinear, graph.Pool:
		return headHypotheses(n)
	case graph.Conv, graph.SSMScan, graph.DeltaScan:
		return r.scanHypotheses(n)
	}
	return nil
}

// sameEpsilon is one other epsilon in all norms of the layer that an equation ends in, and one in all norms that it has, since an
// engine reads it in one place.
func sameEpsilon(all []*hypothesis, layer int) []*hypothesis {
	var inside, joint *hypothesis
	for _, h := range all {
		if h.cause != "norm_eps" || joint != nil && h.fit.right != joint.fit.right {
			continue
		}
		joint = joined(joint, h)
		if h.node.Layer == layer {
			inside = joined(inside, h)
		}
	}
	switch {
	case joint == nil || len(joint.nodes) == 1:
		return nil
	case inside == nil || len(inside.nodes) == 1 || len(inside.nodes) == len(joint.nodes):
		return []*hypothesis{joint}
	}
	return []*hypothesis{inside, joint}
}

// joined is x and h, a copy of h if x is nil.
func joined(x, h *hypothesis) *hypothesis {
	if x != nil {
		join(x, h)
		return x
	}
	y := *h
	y.nodes = []*graph.Node{h.node}
	return &y
}

// proposeUnder lists what the engine may do besides what base assumes, as far as that shows only
// with base: values read off errors and taps, which two faults at once make others.
func proposeUnder(m *measurement, eq *equation, base *attempt) ([]*hypothesis, error) {
	if eq.layers() > 1 || !slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return n.Op == graph.Attention || n.Op == graph.Linear }) {
		return nil, nil
	}
	errors, err := m.at(eq, base, nil, eq.errors)
	if err != nil {
		return nil, nil // base cannot be computed at all rows
	}
	r := &proposer{m, &steps{m.prompts, m.byNode, errors}, base}
	var all []*hypothesis
	for _, n := range eq.span {
		a, ok := n.Attr.(graph.AttentionAttr)
		if !ok || n.Op != graph.Attention || a.KV.Latent {
			continue
		}
		all = append(all, r.anew(n)...)
		all = append(all, r.masks(n, a)...)
		all = append(all, r.windows(n, a.KV)...)
	}
	measured, err := r.measured(eq)
	return append(all, measured...), err
}

// systemic makes of the same hypotheses in several layers one: of an equation across
// layers, and without taps between them, no more can be told.
func systemic(all []*hypothesis) []*hypothesis {
	var out []*hypothesis
	for _, h := range all {
		at := slices.IndexFunc(out, func(x *hypothesis) bool {
			return x.node.Layer >= 0 && h.node.Layer >= 0 && !slices.Contains(x.nodes, h.node) && x.cause == h.cause && role(x.node) == role(h.node) && (x.fit == nil) == (h.fit == nil) && (x.fit != nil || same(x, h))
		})
		if at < 0 {
			out = append(out, joined(nil, h))
			continue
		}
		join(out[at], h)
	}
	return out
}
