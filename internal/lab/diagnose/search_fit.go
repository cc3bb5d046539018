package diagnose

import (
	"math"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/lab/mistake"
)

// fitted returns h with the parameter under which eq comes nearest at the first sites.
func fitted(r *search, eq *equation, base *attempt, h *hypothesis, sites []rowError) *hypothesis {
	few := sites[:min(len(sites), 4)]
	f := h.Fit
	at := func(v float64) float64 {
		if f.IsRight(v) {
			return math.Inf(1)
		}
		x := f.Make(v)
		if x == nil {
			return math.Inf(1)
		}
		errors, err := r.m.remeasure(eq, base, x.Edits, few)
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
		if x.Cause == h.Cause && x.Value != 0 {
			consider(x.Value)
		}
	}
	for _, v := range f.Guesses {
		consider(v)
	}
	if f.Right != 0 && !f.Integer {
		for _, times := range []float64{0.1, 0.33, 0.8, 0.95, 1.05, 1.25, 3, 10} {
			consider(times * f.Right)
		}
		for _, v := range append(f.Rounded(), nearby(r.m, eq, base, f, few)...) {
			consider(v)
		}
	}
	if without, err := r.m.remeasure(eq, base, nil, few); err != nil || least > mean(without)-0.05 {
		return nil // no value is better than none
	}
	if least > math.Log2(excess) && f.Most > f.Least {
		refine(f, consider, at, &best, &least)
	}
	if math.IsInf(least, 1) {
		return nil
	}
	for _, v := range f.Guesses { // a round number that is as good
		if math.Abs(v/best-1) < 0.03 && at(v) <= least+roundNumber {
			best = v
		}
	}
	if !f.Integer && !slices.Contains(f.Guesses, best) {
		for digits := range 3 {
			if v := rounded(best, 1+digits); at(v) <= max(math.Log2(excess), least-progress) {
				return h.With(v)
			}
		}
	}
	return h.With(best)
}

// rounded returns v with so many decimal digits.
func rounded(v float64, digits int) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64)
	if err != nil {
		return v
	}
	return x
}

// nearby returns the parameter at which the error would be gone if the error grew evenly from the right parameter
// on, as it does for factors however large they are; none if there is no such parameter.
func nearby(m *measurement, eq *equation, base *attempt, f *mistake.Fit, at []rowError) []float64 {
	const step = 1e-2
	h := f.Make(f.Right * (1 + step))
	if h == nil {
		return nil
	}
	p, err := project(m, eq, base, h, at)
	if by := 1 + step*p.ed/p.dd; err == nil && by > 1/huge && by < huge {
		return []float64{f.Right * by}
	}
	return nil
}

// refine looks for a better value: on a grid, past the grid's ends as long as that helps, then between neighbours.
func refine(f *mistake.Fit, consider func(float64), at func(float64) float64, best, least *float64) {
	const steps = 16
	if f.Integer {
		for v := f.Least; v <= f.Most; v += max(1, math.Floor((f.Most-f.Least)/128)) {
			consider(v)
		}
		return
	}
	a, b := math.Log(f.Least), math.Log(f.Most)
	for i := range steps + 1 {
		consider(math.Exp(a + (b-a)*float64(i)/steps))
	}
	width := (b - a) / steps
	for end, out := range map[float64]float64{a: a - b, b: b - a} {
		for math.Exp(end) == *best && math.Abs(end+out) < math.Log(huge) {
			end, width = end+out, b-a
			consider(math.Exp(end))
		}
	}
	lo, hi := math.Log(*best)-width, math.Log(*best)+width
	const golden = 0.6180339887498949
	x, y := hi-golden*(hi-lo), lo+golden*(hi-lo)
	fx, fy := at(math.Exp(x)), at(math.Exp(y))
	for hi-lo > 1e-6 {
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
	r.agree()
	done := map[string]bool{}
	for _, h := range r.accepted {
		if h.Value == 0 || done[h.Cause+h.Op()] {
			continue
		}
		done[h.Cause+h.Op()] = true
		var all []*hypothesis
		best := h
		for _, x := range r.accepted {
			if x.Cause != h.Cause || x.Value == 0 || x.Op() != h.Op() || x.Free == nil {
				continue
			}
			all = append(all, x)
			if worst(r.show(x).eqs[0].before).ratio() > worst(r.show(best).eqs[0].before).ratio() {
				best = x
			}
		}
		for _, x := range all {
			if x == best || same(x, best) {
				continue
			}
			if err := adopt(r, x, best.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt gives x another value, if x's equations hold with the value.
func adopt(r *search, x *hypothesis, value float64) error {
	y := x.Free.Fit.Make(value)
	if y == nil {
		return nil
	}
	for _, eq := range r.show(x).eqs {
		if _, ok, err := r.m.holds(eq, nil, y.Edits); !ok {
			return err
		}
	}
	x.Detail, x.Computed, x.Fix, x.Value = y.Detail, y.Computed, y.Fix, value
	r.m.build(y.Edits)
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
