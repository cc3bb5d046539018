package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
)

// attempt is a set of hypotheses and how far the equations lie off under it.
type attempt struct {
	hs     []*hypothesis
	edits  reference.Edits
	errors []rowError // of the equation at some sites
	ratio  float64    // the worst of them
	score  float64    // mean base-2 logarithm of their ratios: how near it comes
	left   int        // flagged equations among those it touches, less those without it
	breaks bool       // it flags one that was not
	cost   float64
	evals  map[*reference.Eval]*reference.Eval // with its edits, by those without
}

// on returns values under the attempt; a nil one changes nothing.
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

// with is the attempt's edits and more.
func (a *attempt) with(more reference.Edits) reference.Edits {
	if a == nil {
		return more
	}
	return a.edits.And(more)
}

func (a *attempt) take(errors []rowError) {
	a.errors, a.ratio, a.score = errors, worst(errors).ratio(), mean(errors)
}

// without is the attempt without its i-th hypothesis.
func (a *attempt) without(i int) *attempt {
	less := &attempt{hs: slices.Delete(slices.Clone(a.hs), i, i+1), cost: a.cost - a.hs[i].cost}
	for _, h := range less.hs {
		less.edits = less.edits.And(h.edits)
	}
	return less
}

// refute adds to the knowledge of an attempt, under which eq seemed to hold, the worst of the rows where it does not: what
// joins the attempt shall mend these.
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

// mean is the mean base-2 logarithm of the rows' ratios to their floors.
func mean(errors []rowError) float64 {
	var sum float64
	for _, x := range errors {
		sum += math.Log2(min(max(x.ratio(), 0.1), 1e30))
	}
	return sum / float64(len(errors))
}

// includes reports whether a has all of b's hypotheses.
func (a *attempt) includes(b *attempt) bool {
	return !slices.ContainsFunc(b.hs, func(h *hypothesis) bool {
		return !slices.ContainsFunc(a.hs, func(x *hypothesis) bool {
			return x == h || h.value != 0 && x.node == h.node && x.cause == h.cause && x.value == h.value
		})
	})
}

// try measures eq at some sites with h on top of base; nil where h cannot be computed.
func (r *search) try(eq *equation, base *attempt, h *hypothesis, sites []rowError) *attempt {
	if f := h.fit; f != nil {
		if h = r.fitted(eq, base, h, sites); h == nil {
			return nil
		}
		if !slices.Contains(f.guesses, h.value) {
			h.cost += crooked
		}
	}
	a := &attempt{hs: append(slices.Clip(base.hs), h), edits: base.edits.And(h.edits), cost: base.cost + h.cost}
	if r.known(a) {
		a.cost -= 1
	}
	errors, err := r.m.at(eq, base, h.edits, sites)
	if err != nil {
		return nil // the hypothesis does not fit the shapes
	}
	a.take(errors)
	return a
}

// refitted is a with the numbers of its hypotheses found again beside all the others, if it comes nearer with them: what
// was found first made up for what was found later.
func (r *search) refitted(eq *equation, a *attempt) *attempt {
	const rounds = 2
	for range rounds {
		was := a
		for _, h := range was.hs {
			i := slices.Index(a.hs, h)
			if h.free == nil || i < 0 || a.ratio <= excess {
				continue
			}
			if b := r.try(eq, a.without(i), h.free, r.few(eq, a)); b != nil {
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

// rate measures an attempt at the sites; one that cannot be computed explains nothing.
func (r *search) rate(eq *equation, a *attempt, sites []rowError) {
	errors, err := r.m.at(eq, a, nil, sites)
	if err != nil {
		a.ratio, a.score = math.Inf(1), math.Inf(1)
		return
	}
	a.take(errors)
}

// verify takes the attempts under which eq seems to hold, and of those under which it
// does hold at all sites, by floors measured under them, the one that leaves the fewest
// equations flagged; of equal ones the likeliest. Before them come attempts that flag no other equation, and that
// are known: one scale of attention in all layers is likelier than it in some, and another weight of keys that the rest share.
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
		if err := r.around(eq, a); err != nil {
			return nil, err
		}
		if a.left <= 0 {
			fit = append(fit, a)
		}
	}
	slices.SortStableFunc(fit, func(a, b *attempt) int {
		return cmp.Or(last(a.breaks, b.breaks), last(!r.known(a), !r.known(b)), cmp.Compare(a.left, b.left), cmp.Compare(a.cost, b.cost), cmp.Compare(a.score, b.score))
	})
	if len(fit) == 0 {
		return nil, nil
	}
	best := fit[0]
	for _, a := range fit[1:] {
		if a.left == best.left && len(a.hs) == 1 && a.hs[0].cause != best.hs[0].cause {
			best.hs[0].also = append(best.hs[0].also, a.hs[0])
		}
	}
	return r.least(eq, best)
}

// least is an attempt without the hypotheses that eq holds without.
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

// last sorts true behind false.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// around counts the other equations that an attempt touches and that are flagged under it, less the ones flagged without it.
func (r *search) around(eq *equation, a *attempt) error {
	a.left, a.breaks = 0, false
	for _, other := range r.m.touched(a.edits) {
		if other == eq {
			continue
		}
		errors, err := r.m.at(other, a, nil, beside(other, eq))
		if err != nil {
			return err
		}
		if worst(errors).ratio() > excess {
			a.left++
			a.breaks = a.breaks || !other.flagged()
		}
		if other.flagged() {
			a.left--
		}
	}
	return nil
}
