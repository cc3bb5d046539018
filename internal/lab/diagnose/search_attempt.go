package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
)

// attempt is a set of hypotheses and the errors of equations under the set.
type attempt struct {
	hs     []*hypothesis
	edits  reference.Edits
	errors []rowError // of the equation at some sites
	ratio  float64    // the worst row
	score  float64    // mean base-2 logarithm of the ratios
	left   int        // flagged equations among the touched, less the equations flagged without the attempt
	breaks bool       // an equation is flagged that was not
	vain   int        // flagged equations among the touched that come no nearer
	cost   float64
	evals  map[*reference.Eval]*reference.Eval // with the edits, by evaluations without
}

// alone returns the attempt of a single hypothesis.
func alone(h *hypothesis) *attempt {
	return &attempt{hs: []*hypothesis{h}, edits: h.Edits, cost: h.Cost}
}

// on returns values under the attempt; a nil attempt changes nothing.
func (a *attempt) on(center *reference.Eval) *reference.Eval {
	if a == nil || len(a.edits) == 0 {
		return center
	}
	if a.evals == nil {
		a.evals = map[*reference.Eval]*reference.Eval{}
	}
	if a.evals[center] == nil {
		a.evals[center] = center.With(a.edits)
	}
	return a.evals[center]
}

// with returns the attempt's edits and more.
func (a *attempt) with(more reference.Edits) reference.Edits {
	if a == nil {
		return more
	}
	return a.edits.And(more)
}

func (a *attempt) take(errors []rowError) {
	a.errors, a.ratio, a.score = errors, worst(errors).ratio(), mean(errors)
}

// without returns the attempt without its i-th hypothesis.
func (a *attempt) without(i int) *attempt {
	less := &attempt{hs: slices.Delete(slices.Clone(a.hs), i, i+1), cost: a.cost - a.hs[i].Cost}
	for _, h := range less.hs {
		less.edits = less.edits.And(h.Edits)
	}
	return less
}

// refute adds the worst rows at which eq does not hold to the errors of an attempt under which eq seemed to hold: a
// hypothesis that joins the attempt shall mend these rows.
func (a *attempt) refute(errors []rowError) {
	const most = 4
	all := slices.Clone(a.errors)
	for _, x := range worstFirst(errors)[:min(len(errors), most)] {
		if x.ratio() > excess && !slices.ContainsFunc(all, func(y rowError) bool { return y.site == x.site }) {
			all = append(all, x)
		}
	}
	a.take(all)
}

// mean returns the mean base-2 logarithm of the rows' ratios to their floors.
func mean(errors []rowError) float64 {
	var sum float64
	for _, x := range errors {
		sum += math.Log2(min(max(x.ratio(), 0.1), huge*huge))
	}
	return sum / float64(len(errors))
}

// isJoinable reports whether h may join base: base has no other value for the same thing.
func isJoinable(base *attempt, h *hypothesis) bool {
	return !slices.ContainsFunc(base.hs, func(b *hypothesis) bool {
		return b == h || b.Cause == h.Cause && b.Node == h.Node
	})
}

// includes reports whether a has all of b's hypotheses.
func (a *attempt) includes(b *attempt) bool {
	return !slices.ContainsFunc(b.hs, func(h *hypothesis) bool {
		return !slices.ContainsFunc(a.hs, func(x *hypothesis) bool {
			return x == h || h.Value != 0 && x.Node == h.Node && x.Cause == h.Cause && x.Value == h.Value
		})
	})
}

// try measures eq at some sites with h on top of base. The result is nil if h cannot be computed.
func (r *search) try(eq *equation, base *attempt, h *hypothesis, sites []rowError) *attempt {
	if f := h.Fit; f != nil {
		if h = fitted(r, eq, base, h, sites); h == nil {
			return nil
		}
		if !slices.Contains(f.Guesses, h.Value) {
			h.Cost += crooked
		}
	}
	a := &attempt{hs: append(slices.Clip(base.hs), h), edits: base.edits.And(h.Edits), cost: base.cost + h.Cost}
	if unknown(r, a) == 0 {
		a.cost -= 1
	}
	errors, err := r.m.remeasure(eq, base, h.Edits, sites)
	if err != nil {
		return nil // the hypothesis does not fit the shapes
	}
	a.take(errors)
	return a
}

// refitted returns a with the numbers of its hypotheses found again beside the other hypotheses, if a comes nearer
// so: the first number may have made up for a cause found later.
func refitted(r *search, eq *equation, a *attempt) *attempt {
	const rounds = 2
	for range rounds {
		was := a
		for _, h := range was.hs {
			i := slices.Index(a.hs, h)
			if h.Free == nil || i < 0 || a.ratio <= excess {
				continue
			}
			if b := r.try(eq, a.without(i), h.Free, fewSites(r, eq, a)); b != nil {
				if r.rate(eq, b, a.errors); b.score < a.score {
					a = b
				}
			}
		}
		if a == was {
			break
		}
	}
	return a
}

// rate measures an attempt at the sites. An attempt that cannot be computed explains nothing.
func (r *search) rate(eq *equation, a *attempt, sites []rowError) {
	errors, err := r.m.remeasure(eq, a, nil, sites)
	if err != nil {
		a.ratio, a.score = math.Inf(1), math.Inf(1)
		return
	}
	a.take(errors)
}

// verify returns the attempt, of the attempts under which eq holds at all sites by floors measured under the
// attempt, that leaves the fewest equations flagged, and of equals the likeliest. Attempts that flag no other
// equation, and attempts with known hypotheses, come first: a scale of attention in all layers is likelier than a
// scale in some layers and another weight of keys in the rest. So do attempts that change nothing in vain: where
// queries alone are turned otherwise, keys that are wrong in another way come no nearer by it.
func (r *search) verify(eq *equation, all []*attempt) (*attempt, error) {
	var fit []*attempt
	for _, a := range all {
		if a.ratio > 4*excess || len(fit) >= maxFit || slices.ContainsFunc(fit, a.includes) {
			continue
		}
		if errors, ok, err := r.m.holds(eq, a, nil); err != nil {
			return nil, err
		} else if !ok {
			a.refute(errors)
			continue
		}
		if err := countAround(r, eq, a); err != nil {
			return nil, err
		}
		if a.left <= 0 {
			fit = append(fit, a)
		}
	}
	slices.SortStableFunc(fit, func(a, b *attempt) int {
		return cmp.Or(falseFirst(a.breaks, b.breaks), cmp.Compare(unknown(r, a), unknown(r, b)),
			cmp.Compare(a.left, b.left), cmp.Compare(a.vain, b.vain), cmp.Compare(a.cost, b.cost),
			cmp.Compare(a.score, b.score))
	})
	if len(fit) == 0 {
		return nil, nil
	}
	best := fit[0]
	for _, a := range fit[1:] {
		if a.left == best.left && len(a.hs) == 1 && a.hs[0].Cause != best.hs[0].Cause {
			of := r.show(best.hs[0])
			of.also = append(of.also, a.hs[0])
		}
	}
	return r.least(eq, best)
}

// confirm accepts h alone if eq holds under it, and reports whether it does.
func (r *search) confirm(eq *equation, h *hypothesis) (bool, error) {
	a, err := r.verify(eq, []*attempt{alone(h)})
	if err != nil || a == nil {
		return false, err
	}
	return true, r.accept(eq, a)
}

// least returns an attempt without hypotheses eq does not need.
func (r *search) least(eq *equation, a *attempt) (*attempt, error) {
	for i := 0; i < len(a.hs) && len(a.hs) > 1; {
		less := a.without(i)
		_, ok, err := r.m.holds(eq, less, nil)
		if r.m.dump.ctx.Err() != nil {
			return nil, r.m.dump.ctx.Err()
		}
		if ok && err == nil {
			a = less
		} else {
			i++
		}
	}
	return a, nil
}

// falseFirst compares two booleans, of which false comes first.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// countAround counts the other equations an attempt touches and leaves flagged, less the equations flagged without
// the attempt.
func countAround(r *search, eq *equation, a *attempt) error {
	a.left, a.vain, a.breaks = 0, 0, false
	for _, other := range r.m.touched(a.edits) {
		if other == eq {
			continue
		}
		errors, err := r.m.remeasure(other, a, nil, sitesBeside(other, eq))
		if err != nil {
			return err
		}
		if worst(errors).ratio() > excess {
			a.left++
			a.breaks = a.breaks || !other.isFlagged()
			if other.isFlagged() && mean(errors) > mean(sitesBeside(other, eq))-progress {
				a.vain++
			}
		}
		if other.isFlagged() {
			a.left--
		}
	}
	return nil
}
