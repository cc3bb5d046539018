package diagnose

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// extend looks for accepted causes in layers where they leave the equations within
// their floors: a norm's epsilon may show in one layer of many. There the engine's
// error is projected on what the cause would change: 1 means that it is there, 0
// that it is not, and if rounding hides even that, nothing is said.
func (r *search) extend() error {
	for _, h := range slices.Clone(r.accepted) {
		if h.cause == "unknown" || h.node.Layer < 0 {
			continue
		}
		for _, x := range r.siblings(h.node) {
			if r.accused(h, x) {
				continue
			}
			if err := r.ctx.Err(); err != nil {
				return err
			}
			if err := r.extendTo(h, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// accused reports whether h's cause has been accepted at x.
func (r *search) accused(h *hypothesis, x *graph.Node) bool {
	return slices.ContainsFunc(r.accepted, func(a *hypothesis) bool {
		return a.node == x && (a.cause == h.cause || a.cause == "unknown")
	})
}

func (r *search) extendTo(h *hypothesis, x *graph.Node) error {
	if len(r.byNode[x]) == 0 {
		return nil
	}
	eq := r.byNode[x][0]
	twin, err := r.twin(h, x, eq)
	if twin == nil || err != nil {
		return err
	}
	there, err := r.shows(eq, twin)
	if err != nil || !there {
		return nil // a hypothesis that cannot be computed there is not there
	}
	twin.eqs = []*equation{eq}
	r.accepted = append(r.accepted, twin)
	r.build(twin.edits)
	return nil
}

// twin is the same hypothesis at another layer's node.
func (r *search) twin(h *hypothesis, x *graph.Node, eq *equation) (*hypothesis, error) {
	all, err := propose(r.measurement, eq)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.node != x || c.cause != h.cause {
			continue
		}
		if c.fit != nil && h.value != 0 {
			c = c.fit.make(h.value)
		}
		if c != nil && c.fit == nil && same(c, h) {
			return c, nil
		}
	}
	return nil, nil
}

// visible is how many standard deviations of rounding a change must have to be judged.
const visible = 8

// shows reports whether the engine's error at eq points where h would put it. With the
// error e, the change d and noise of the floor's size, e·d/d·d has a standard
// deviation of floor/(‖d‖·√width), as rounding points anywhere.
func (r *search) shows(eq *equation, h *hypothesis) (bool, error) {
	var ed, dd, seen float64
	w := eq.target.Shape.Size()
	for i, p := range r.prompts {
		var rows []int
		var floors []float64
		for _, x := range eq.errors {
			if x.prompt == i {
				rows, floors = append(rows, x.row), append(floors, x.floor)
			}
		}
		if len(rows) == 0 {
			continue
		}
		want, err := p.center.Compute(eq.target, rows)
		if err != nil {
			return false, err
		}
		changed, err := p.center.With(h.edits).Compute(eq.target, rows)
		if err != nil {
			return false, err
		}
		got := p.read(eq.target, rows)
		for k := range rows {
			var norm, e, d float64
			for j := k * w; j < (k+1)*w; j++ {
				norm += want[j] * want[j]
				e += (got[j] - want[j]) * (changed[j] - want[j])
				d += (changed[j] - want[j]) * (changed[j] - want[j])
			}
			scale := floors[k] * floors[k] * norm
			if scale == 0 {
				continue
			}
			ed, dd, seen = ed+e/scale, dd+d/scale, seen+d/scale
		}
	}
	if math.Sqrt(seen*float64(w)) < visible*3 || dd == 0 {
		return false, nil
	}
	return math.Abs(ed/dd-1) < 0.3, nil
}
