package diagnose

import (
	"math"
)

// fitted returns h with the parameter under which eq comes nearest at the first sites.
func fitted(r *search, eq *equation, base *attempt, h *hypothesis, sites []rowError) *hypothesis {
	few := sites[:min(len(sites), 4)]
	f := h.fit
	at := func(v float64) float64 {
		if f.isRight(v) {
			return math.Inf(1)
		}
		x := f.make(v)
		if x == nil {
			return math.Inf(1)
		}
		errors, err := r.m.remeasure(eq, base, x.edits, few)
		if err != nil {
			return math.Inf(1)
		}
		return mean(errors)
	}
	best, least := 0.0, math.Inf(1)
	consider := func(v float64) {
		if s := at(v); s < least {
			best, least = v, s
		}
	}
	for _, x := range r.accepted {
		if x.cause == h.cause && x.value != 0 {
			consider(x.value)
		}
	}
	for _, v := range f.guesses {
		consider(v)
	}
	if f.right != 0 && !f.integer {
		for _, times := range []float64{0.1, 0.33, 0.8, 0.95, 1.05, 1.25, 3, 10} {
			consider(times * f.right)
		}
		for _, v := range append(f.rounded(), nearby(r.m, eq, base, f, few)...) {
			consider(v)
		}
	}
	if without, err := r.m.remeasure(eq, base, nil, few); err != nil || least > mean(without)-0.05 {
		return nil // no value is better than none
	}
	if least > math.Log2(excess) && f.most > f.least {
		refine(f, consider, at, &best, &least)
	}
	if math.IsInf(least, 1) {
		return nil
	}
	for _, v := range f.guesses { // a round number that is as good
		if math.Abs(v/best-1) < 0.03 && at(v) <= least+roundNumber {
			best = v
		}
	}
	return h.withValue(best)
}

// nearby returns the parameter at which the error would be gone if the error grew evenly from the right parameter
// on, none if that parameter is not near.
func nearby(m *measurement, eq *equation, base *attempt, f *fit, at []rowError) []float64 {
	const step, far = 1e-2, 6e-2
	h := f.make(f.right * (1 + step))
	if h == nil {
		return nil
	}
	p, err := project(m, eq, base, h, at)
	if by := step * p.ed / p.dd; err == nil && math.Abs(by) < far {
		return []float64{f.right * (1 + by)}
	}
	return nil
}

// refine looks for a better value: on a grid, then between neighbours of the grid.
func refine(f *fit, consider func(float64), at func(float64) float64, best, least *float64) {
	const steps = 16
	if f.integer {
		for v := f.least; v <= f.most; v += max(1, math.Floor((f.most-f.least)/128)) {
			consider(v)
		}
		return
	}
	a, b := math.Log(f.least), math.Log(f.most)
	for i := range steps + 1 {
		consider(math.Exp(a + (b-a)*float64(i)/steps))
	}
	lo, hi := math.Log(*best)-(b-a)/steps, math.Log(*best)+(b-a)/steps
	const golden = 0.6180339887498949
	x, y := hi-golden*(hi-lo), lo+golden*(hi-lo)
	fx, fy := at(math.Exp(x)), at(math.Exp(y))
	for range 30 {
		if fx < fy {
			hi, y, fy = y, x, fx
			x = hi - golden*(hi-lo)
			fx = at(math.Exp(x))
		} else {
			lo, x, fx = x, y, fy
			y = lo + golden*(hi-lo)
			fy = at(math.Exp(y))
		}
	}
	consider(math.Exp((lo + hi) / 2))
}

// unify gives hypotheses of the same cause, whose parameter was found in several layers, the same value, if the
// equations hold with the value: the value found where the cause shows most.
func (r *search) unify() error {
	done := map[string]bool{}
	for _, h := range r.accepted {
		if h.value == 0 || done[h.cause+h.op()] {
			continue
		}
		done[h.cause+h.op()] = true
		var all []*hypothesis
		best := h
		for _, x := range r.accepted {
			if x.cause != h.cause || x.value == 0 || x.op() != h.op() || x.free == nil {
				continue
			}
			all = append(all, x)
			if worst(x.eqs[0].before).ratio() > worst(best.eqs[0].before).ratio() {
				best = x
			}
		}
		for _, x := range all {
			if x == best || same(x, best) {
				continue
			}
			if err := adopt(r, x, best.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt gives x another value, if x's equations hold with the value.
func adopt(r *search, x *hypothesis, value float64) error {
	y := x.free.fit.make(value)
	if y == nil {
		return nil
	}
	for _, eq := range x.eqs {
		if _, ok, err := r.m.holds(eq, nil, y.edits); !ok {
			return err
		}
	}
	x.detail, x.computed, x.fix, x.value = y.detail, y.computed, y.fix, value
	r.m.build(y.edits)
	return nil
}

// underClasses takes the attempt that explains logits by themselves together with a class of rounding: logits do
// not show the class as long as the cause is unknown. Of several pairs the nearest wins.
func (r *search) underClasses(eq *equation, all []*attempt) (*attempt, error) {
	if r.m.declared.activations != "" {
		return nil, nil
	}
	var best *attempt
	nearest, class := math.Inf(1), r.m.engine.class
	for _, c := range logitClasses {
		m := r.m.withEngine(newEngine(r.m.dump, c, r.m.engine.edits))
		for _, a := range all[:min(len(all), 3)] {
			errors, ok, err := m.holds(eq, a, nil)
			if err != nil {
				return nil, err
			}
			var residuals []float64
			for _, x := range errors {
				residuals = append(residuals, x.residual)
			}
			if mid := median(residuals); ok && mid < 0.8*nearest {
				best, nearest, class = a, mid, c
			}
		}
	}
	r.m = r.m.withEngine(newEngine(r.m.dump, class, r.m.engine.edits))
	return best, nil
}
