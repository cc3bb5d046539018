package diagnose

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// extend looks for accepted causes in layers where a cause leaves the equations within their floors: a norm's
// epsilon may show in a single layer of many. There the engine's error is projected on the change the cause
// makes: 1 means that the layer has the cause, 0 means that the layer lacks the cause. If rounding hides even that,
// extend accepts nothing. Where the equation does not hold, the cause has to take nearly all of the error away: a sum
// of the stream and anything wrong lies as far from the right sum as the stream alone points.
func (r *search) extend() error {
	for _, h := range slices.Clone(r.accepted) {
		if h.Cause == "unknown" || h.Node.Layer < 0 {
			continue
		}
		for _, x := range r.m.dump.wiring.Siblings(h.Node) {
			if isAccused(r, h, x) {
				continue
			}
			if err := r.m.dump.ctx.Err(); err != nil {
				return err
			}
			if err := extendTo(r, h, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// isAccused reports whether h's cause has been accepted at x.
func isAccused(r *search, h *hypothesis, x *graph.Node) bool {
	return slices.ContainsFunc(r.accepted, func(a *hypothesis) bool {
		return a.Node == x && (a.Cause == h.Cause || a.Cause == "unknown")
	})
}

func extendTo(r *search, h *hypothesis, x *graph.Node) error {
	if len(r.m.byNode[x]) == 0 {
		return nil
	}
	eq := r.m.byNode[x][0]
	twin, err := findTwin(r, h, x, eq)
	if twin == nil || err != nil {
		return err
	}
	p, err := project(r.m, eq, nil, twin, eq.errors)
	if err != nil || !p.isThere() || eq.isFlagged() && p.remainder() > nearly {
		return nil // a hypothesis that cannot be computed there is not there
	}
	r.show(twin).eqs = []*equation{eq}
	r.accepted = append(r.accepted, twin)
	r.m.build(twin.Edits)
	return nil
}

// findTwin returns the same hypothesis at another layer's node, nil if there is none.
func findTwin(r *search, h *hypothesis, x *graph.Node, eq *equation) (*hypothesis, error) {
	all, err := propose(r.m, eq)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.Node != x || c.Cause != h.Cause {
			continue
		}
		if c.Fit != nil && h.Value != 0 {
			c = c.Fit.Make(h.Value)
		}
		if c != nil && c.Fit == nil && same(c, h) {
			return c, nil
		}
	}
	return nil, nil
}
