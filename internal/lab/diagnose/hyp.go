package diagnose

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// proposer lists what an engine may do instead of what the graph says.
type proposer struct {
	m     *measurement
	steps *steps
	base  *attempt // the assumptions so far; nil for none
	of    *mistake.Proposer
}

// proposer returns the proposer for an equation, under assumptions.
func (m *measurement) proposer(eq *equation, base *attempt, errors []rowError) *proposer {
	r := &proposer{m: m, steps: &steps{m.dump.prompts, m.byNode, errors}, base: base}
	r.of = &mistake.Proposer{Wiring: m.dump.wiring, Span: eq.span, Dump: mistake.Dump{
		Logits: r.lostLogits(), Sizes: r.steps.stepSizes, Size: r.steps.stepSize, Wrong: r.steps.firstWrong,
		Prefilled: r.steps.prefilled,
		Tapped:    func(n *graph.Node) bool { return m.dump.taps[n] != "" },
	}}
	for _, p := range m.dump.prompts {
		if p.tapped {
			r.of.Longest = max(r.of.Longest, len(p.IDs))
		}
		r.of.Decodes = r.of.Decodes || p.decoded() > 0
	}
	return r
}

// lostLogits returns how many logits lie in front of the last ones, if an engine's last are always 0; else 0.
func (r *proposer) lostLogits() int {
	w, end := r.m.dump.graph.Result().Shape.Size(), 0
	for _, p := range r.m.dump.prompts {
		if p.known[r.m.dump.graph.Result()] == nil {
			continue
		}
		first, count := p.known[r.m.dump.graph.Result()].Rows()
		for _, row := range sample(first, count, maxRows) {
			got, last := p.read(r.m.dump.graph.Result(), []int{row}), w
			for last > end && got[last-1] == 0 {
				last--
			}
			end = last
		}
	}
	return end
}

// propose lists what the engine may do instead in the nodes of eq's span. A fault
// that is on no list fits none of them, and stays unknown.
func propose(m *measurement, eq *equation) ([]*hypothesis, error) {
	r, all := m.proposer(eq, nil, nil), []*hypothesis(nil)
	for _, n := range eq.span {
		all = append(all, tried(r.of.Of(n))...)
		all = append(all, tried(r.of.SkippedNorms(n))...)
		if n.Op == graph.RMSNorm || n.Op == graph.Add || mistake.Role(n) == "inp_gate" {
			for _, h := range tried(r.of.PlacesOfPLE(n)) {
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

// sameEpsilon returns one other epsilon in all norms of the layer that an equation ends in, and one in all norms
// that it has, since an engine reads it in one place.
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

// joined returns x and h, a copy of h if x is nil.
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
	if eq.layers() > 1 || !slices.ContainsFunc(eq.span, func(n *graph.Node) bool {
		return n.Op == graph.Attention || n.Op == graph.Linear
	}) {
		return nil, nil
	}
	errors, err := m.remeasure(eq, base, nil, eq.errors)
	if err != nil {
		return nil, nil // base cannot be computed at all rows
	}
	r := m.proposer(eq, base, errors)
	var all []*hypothesis
	for _, n := range eq.span {
		a, ok := n.Attr.(graph.AttentionAttr)
		if !ok || n.Op != graph.Attention || a.KV.Latent {
			continue
		}
		all = append(all, tried(r.of.ByErrors(n))...)
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
			return x.node.Layer >= 0 && h.node.Layer >= 0 && !slices.Contains(x.nodes, h.node) && x.cause == h.cause &&
				role(x.node) == role(h.node) && (x.fit == nil) == (h.fit == nil) && (x.fit != nil || same(x, h))
		})
		if at < 0 {
			out = append(out, joined(nil, h))
			continue
		}
		join(out[at], h)
	}
	return out
}

// sameFactors returns two causes: the engine multiplies by each factor of an equation twice, or by none. So it is
// where the weights of a file have them already, or should have.
func sameFactors(all []*hypothesis) []*hypothesis {
	var joint []*hypothesis
	for i, computed := range []string{"multiplies by each of its factors twice", "multiplies by none of its factors"} {
		var x *hypothesis
		for _, h := range all {
			if h.cause != "scale_factor" || h.fit == nil {
				continue
			}
			y := h.withValue([]float64{h.fit.right * h.fit.right, 1}[i])
			if y == nil {
				continue
			}
			if x != nil {
				join(x, y)
				continue
			}
			x = &hypothesis{cause: h.cause, node: h.node, nodes: []*graph.Node{h.node}, cost: h.cost, computed: computed,
				detail: detail{"times": float64(2 - 2*i)}, edits: y.edits}
		}
		if x != nil && len(x.nodes) > 1 {
			joint = append(joint, x)
		}
	}
	return joint
}
