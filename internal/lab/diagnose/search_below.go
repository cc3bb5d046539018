package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
)

// searchBelow looks for causes within the floors: where rounding is coarse, a cause may hide beside another cause.
// For example, in bfloat16 wrong speeds of rope hide behind a wrong scale of scores. Rounding points anywhere, and
// a cause points the same way in all rows and features. So a cause is accepted if the engine's error lies where the
// cause would put the error, and if most of the error is gone with the cause. Only equations count whose error
// exceeds ratio times the floor.
func (r *search) searchBelow(ratio float64) error {
	open := slices.DeleteFunc(slices.Clone(r.m.eqs), func(eq *equation) bool {
		return r.given[eq] || eq.isFlagged() || worst(eq.errors).ratio() <= ratio || eq.isShadowed(r.m.eqs)
	})
	slices.SortStableFunc(open, func(a, b *equation) int {
		return cmp.Compare(worst(b.errors).ratio(), worst(a.errors).ratio())
	})
	open = open[:min(len(open), maxBelow)]
	for i, eq := range open {
		r.m.dump.progress("looking below the floors", i, len(open))
		if worst(eq.errors).ratio() <= ratio {
			continue // of what was found in others
		}
		h, err := pointed(r, eq)
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		right, err := r.confirm(eq, h)
		if err == nil && right {
			err = r.extend()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pointed returns the cause that most of an equation's error points at, nil if there is none: the likeliest of all
// causes that leave as little.
func pointed(r *search, eq *equation) (best *hypothesis, err error) {
	singles, err := propose(r.m, eq)
	if err != nil {
		return nil, err
	}
	none, nearest := &attempt{}, clearly
	r.rate(eq, none, screen(eq))
	var all []*hypothesis
	var left []float64 // by each of all
	for _, h := range singles {
		if err := r.m.dump.ctx.Err(); err != nil {
			return nil, err
		}
		if isAccused(r, h, h.Node) {
			continue
		}
		if f := h.Fit; f != nil {
			h = fitted(r, eq, none, h, none.errors)
			if h == nil || !slices.Contains(f.Guesses, h.Value) && !foundElsewhere(r, h) {
				continue // a crooked number fits rounding as well
			}
		}
		p, err := project(r.m, eq, none, h, none.errors)
		if err != nil || !p.isPointing() {
			continue
		}
		all, left, nearest = append(all, h), append(left, p.remainder()), min(nearest, p.remainder())
	}
	for i, h := range all {
		if left[i] <= nearest+equally && (best == nil || h.Cost < best.Cost) {
			best = h
		}
	}
	if best == nil {
		return nil, nil
	}
	p, err := project(r.m, eq, none, best, eq.errors)
	if err != nil || !p.isPointing() {
		return nil, err
	}
	if d, err := unrounded(r.m, eq, best, eq.errors); err != nil || d < p.dd/4 {
		return nil, err
	}
	return best, nil
}

// unrounded returns the square of the change that h makes without any rounding at some rows, as a projection has
// the square. Where that change is far smaller, h only lets roundings fall otherwise, and the engine's roundings
// fall otherwise as well. For example, another epsilon turns 8-bit activations that lie in the middle of two steps.
func unrounded(m *measurement, eq *equation, h *hypothesis, at []rowError) (float64, error) {
	exact := class{"f64", "f64", ""}.center()
	x, err := projectFrom(m, eq, h, at, func(p *prompt) *reference.Eval {
		return p.eval(m.dump.model, p.known, exact).With(m.engine.edits)
	})
	return x.dd, err
}

// foundElsewhere reports whether h's number was found in another layer.
func foundElsewhere(r *search, h *hypothesis) bool {
	return slices.ContainsFunc(r.accepted, func(x *hypothesis) bool { return x.Cause == h.Cause && x.Value == h.Value })
}

// projection is how the engine's error e at some rows lies to the change d a cause would
// make, in squares of the rows' floors.
type projection struct {
	ee, ed, dd float64
	dd2        float64 // the sum of the squares of the rows' dd
	width      int
}

// isThere reports whether the error points where the cause would put the error. With noise of the floor's size,
// e·d/d·d has a standard deviation of floor/(‖d‖·√width), as rounding points anywhere.
func (p projection) isThere() bool {
	return p.dd > 0 && math.Abs(p.ed/p.dd-1) < pointing && (math.Sqrt(p.dd*float64(p.width)) >= visible ||
		p.remainder() < nearly && p.isSpread())
}

// isPointing reports whether the cause would take most of the error away.
func (p projection) isPointing() bool { return p.isThere() && p.remainder() < clearly && p.isSpread() }

// isSpread reports whether the change is in several rows: the rounding of a sum turns all features of a row the
// same way.
func (p projection) isSpread() bool {
	const rows = 3
	return p.dd*p.dd >= rows*p.dd2
}

// remainder returns the share of the error's square the cause leaves.
func (p projection) remainder() float64 { return (p.ee - 2*p.ed + p.dd) / p.ee }

// project compares the engine's error in an equation under base with the change that h makes.
func project(m *measurement, eq *equation, base *attempt, h *hypothesis, at []rowError) (projection, error) {
	return projectFrom(m, eq, h, at, func(p *prompt) *reference.Eval { return base.on(m.engine.center[p]) })
}

// projectFrom compares the engine's error in an equation, as an evaluation of each prompt has it, with the change
// that h makes.
func projectFrom(m *measurement, eq *equation, h *hypothesis, at []rowError,
	eval func(p *prompt) *reference.Eval) (projection, error) {
	x := projection{width: eq.target.Shape.Size()}
	for i, p := range m.dump.prompts {
		rows, floors := errorsOf(at, i)
		if len(rows) == 0 {
			continue
		}
		e := eval(p)
		want, err := e.Compute(eq.target, rows)
		if err != nil {
			return x, err
		}
		changed, err := e.With(h.Edits).Compute(eq.target, rows)
		if err != nil {
			return x, err
		}
		x.add(want, changed, p.read(eq.target, rows), floors)
	}
	return x, nil
}

// add adds rows of an equation: the values without the cause, the values with the cause, and the engine's values.
func (p *projection) add(want, changed, got, floors []float64) {
	for k, floor := range floors {
		var norm, ee, ed, dd float64
		for j := k * p.width; j < (k+1)*p.width; j++ {
			e, d := got[j]-want[j], changed[j]-want[j]
			norm, ee, ed, dd = norm+want[j]*want[j], ee+e*e, ed+e*d, dd+d*d
		}
		if scale := floor * floor * norm; scale > 0 {
			p.ee, p.ed, p.dd, p.dd2 = p.ee+ee/scale, p.ed+ed/scale, p.dd+dd/scale, p.dd2+dd*dd/(scale*scale)
		}
	}
}
