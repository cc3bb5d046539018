package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
)

// hypothesis is something that an engine may do instead of what the graph says.
type hypothesis struct {
	cause    string         // an ID of package cause
	node     *graph.Node    // where
	nodes    []*graph.Node  // where, if in several layers at once
	detail   map[string]any // what, the same in all layers
	computed string         // a sentence without subject: "scales the scores by 0.125"
	cost     float64        // how much less likely than others that explain as much; 0 to 3
	edits    sim.Edits

	// If fit is set, the hypothesis has a parameter: edits makes the one of a value.
	fit    *fit
	value  float64                     // that was found
	remake func(v float64) *hypothesis // with another

	eqs   []*equation // that it explains
	also  []*hypothesis
	combo bool // named together with others of its span
}

// attempt is a set of hypotheses and how far the equations lie off under it.
type attempt struct {
	hs    []*hypothesis
	edits sim.Edits
	ratio float64 // of the worst row of the equation
	left  int     // flagged equations among those it touches, less those without it
	score float64 // mean base-2 logarithm of the ratio over rows: how near it comes
	cost  float64
}

// maxDepth is how many faults a single equation may have.
const maxDepth = 3

// progress is how much nearer, as a base-2 logarithm, an attempt has to come to be built upon.
const progress = 0.4

// beam is how many incomplete attempts are built upon.
const beam = 5

// search names what each flagged equation's engine computes instead. What a single
// cause explains comes first, in all layers: with it known, equations in which several
// faults meet need fewer steps.
func (r *run) search() error {
	for deep := false; ; {
		found, err := r.pass(deep)
		switch {
		case err != nil:
			return err
		case found:
			deep = false
		case deep:
			for _, eq := range r.eqs {
				if eq.flagged() && !eq.given {
					r.unknown(eq)
				}
			}
			return nil
		default:
			deep = true
		}
	}
}

// pass tries to explain the open equations, in the graph's order; a deep one returns
// after the first that it could explain.
func (r *run) pass(deep bool) (found bool, err error) {
	tried := map[string]bool{}
	for i, eq := range r.eqs {
		if !eq.flagged() || eq.given {
			continue
		}
		r.progress("naming causes", i, len(r.eqs))
		steps := 1
		if deep {
			steps = maxDepth
		}
		best, err := r.explain(eq, steps, tried[role(eq.target)])
		if err != nil {
			return found, err
		}
		tried[role(eq.target)] = true
		if best == nil {
			continue
		}
		if err := r.accept(eq, best); err != nil {
			return found, err
		}
		if found = true; deep {
			break
		}
	}
	return found, nil
}

// accept builds an attempt's hypotheses into the reference.
func (r *run) accept(eq *equation, a *attempt) error {
	r.edits = r.edits.And(a.edits)
	touched := []*equation{eq}
	for _, h := range a.hs {
		h.eqs, h.combo = append(h.eqs, eq), len(a.hs) > 1
		r.accepted = append(r.accepted, h)
		touched = append(touched, r.touched(h.edits)...)
	}
	slices.SortFunc(touched, func(a, b *equation) int { return a.target.ID - b.target.ID })
	return r.remeasure(slices.Compact(touched))
}

// remeasure measures equations again, under the edits accepted by now.
func (r *run) remeasure(eqs []*equation) error {
	for _, eq := range eqs {
		was := eq.before
		if was == nil {
			was = eq.errors
		}
		if err := r.check([]*equation{eq}); err != nil {
			return err
		}
		eq.before = was
	}
	return nil
}

// touched are the equations whose value the edits may change.
func (r *run) touched(edits sim.Edits) []*equation {
	var eqs []*equation
	for _, eq := range r.eqs {
		if slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return edits[n] != nil }) || r.reads(eq, edits) {
			eqs = append(eqs, eq)
		}
	}
	return eqs
}

// reads reports whether an equation's attention reads a store that is edited.
func (r *run) reads(eq *equation, edits sim.Edits) bool {
	for _, n := range eq.span {
		if n.Op == graph.Attention && edits[r.prompts[0].center.Spec(n).Store] != nil {
			return true
		}
	}
	return false
}

// explain finds the smallest set of hypotheses under which eq holds, nil if there is
// none of so many steps beyond what is likely from the start. An equation whose role
// was tried in vain before has to come nearer with each step.
func (r *run) explain(eq *equation, steps int, again bool) (*attempt, error) {
	if math.IsNaN(worst(eq.errors).residual) {
		return nil, nil // no cause makes what is not a number
	}
	singles, err := r.candidates(eq)
	if err != nil {
		return nil, err
	}
	sites := r.screen(eq)
	start, _, err := r.score(eq, nil, sites)
	if err != nil {
		return nil, err
	}
	frontier := r.likely(singles)
	for range steps {
		var next []*attempt
		for _, base := range frontier {
			for _, h := range singles {
				if err := r.ctx.Err(); err != nil {
					return nil, err
				}
				if !extends(base, h) {
					continue
				}
				a, err := r.try(eq, base, h, sites)
				if err != nil {
					return nil, err
				}
				if a != nil {
					next = append(next, a)
				}
			}
		}
		slices.SortStableFunc(next, func(a, b *attempt) int { return cmp.Compare(a.score, b.score) })
		if best, err := r.verify(eq, next); best != nil || err != nil {
			return best, err
		}
		if r.blackBox {
			return r.underClasses(eq, next)
		}
		if again {
			next = slices.DeleteFunc(next, func(a *attempt) bool { return a.score >= start-progress })
		}
		if frontier = next[:min(len(next), beam)]; len(frontier) == 0 {
			break
		}
	}
	return nil, nil
}

// likely are sets of hypotheses to begin with: none, norms whose taps the dump lacks
// though it has others of that layer, and what has been accepted in other layers.
func (r *run) likely(singles []*hypothesis) []*attempt {
	sets := []*attempt{{}}
	with := func(of func(h *hypothesis) *hypothesis) {
		a := &attempt{}
		for _, h := range singles {
			if h = of(h); h != nil && extends(a, h) {
				a.hs, a.edits, a.cost = append(a.hs, h), a.edits.And(h.edits), a.cost+h.cost
			}
		}
		if len(a.hs) > 0 {
			sets = append(sets, a)
		}
	}
	with(func(h *hypothesis) *hypothesis {
		if h.node.Op == graph.RMSNorm && h.node.HF != "" && h.cause == r.missingNorm(h.node) && len(h.detail) == 0 && r.taps[h.node] == "" && len(r.taps) > r.out.Layers+2 {
			return h
		}
		return nil
	})
	with(r.acceptedElsewhere)
	for _, skip := range r.accepted {
		with(func(h *hypothesis) *hypothesis {
			if h = r.acceptedElsewhere(h); h != nil && h.cause == skip.cause {
				return nil
			}
			return h
		})
		if len(sets) > beam {
			break
		}
	}
	return sets
}

// acceptedElsewhere is h, or the one of its values, that has been accepted in another layer.
func (r *run) acceptedElsewhere(h *hypothesis) *hypothesis {
	for _, x := range r.accepted {
		switch {
		case x.cause != h.cause || x.node == h.node:
		case h.fit != nil && x.value != 0:
			if y := h.fit.make(x.value); y != nil {
				y.value, y.remake = x.value, h.fit.make
				return y
			}
		case h.fit == nil && same(x, h):
			return h
		}
	}
	return nil
}

// extends reports whether h may join base: it is not another value for the same thing.
func extends(base *attempt, h *hypothesis) bool {
	return !slices.ContainsFunc(base.hs, func(b *hypothesis) bool { return b == h || b.cause == h.cause && b.node == h.node })
}

// known reports whether the same hypotheses have been accepted in other layers.
func (r *run) known(a *attempt) bool {
	for _, h := range a.hs {
		if !slices.ContainsFunc(r.accepted, func(x *hypothesis) bool { return same(x, h) }) {
			return false
		}
	}
	return true
}

// screen is a few sites of eq: the worst ones and some of the others.
func (r *run) screen(eq *equation) []rowError {
	all := slices.Clone(eq.errors)
	slices.SortFunc(all, func(a, b rowError) int { return cmp.Compare(b.ratio(), a.ratio()) })
	const most = 14
	if len(all) <= most {
		return all
	}
	out := slices.Clone(all[:most/2])
	for i := range most / 2 {
		out = append(out, all[most/2+i*(len(all)-most/2)/(most/2)])
	}
	return out
}

// try measures eq at some sites with h on top of base; nil where h cannot be computed.
func (r *run) try(eq *equation, base *attempt, h *hypothesis, sites []rowError) (*attempt, error) {
	if h.fit != nil {
		if h = r.fitted(eq, base, h, sites); h == nil {
			return nil, nil
		}
	}
	a := &attempt{hs: append(slices.Clip(base.hs), h), edits: base.edits.And(h.edits), cost: base.cost + h.cost}
	if r.known(a) {
		a.cost -= 1
	}
	var err error
	a.score, a.ratio, err = r.score(eq, a.edits, sites)
	if err != nil {
		return nil, nil // the hypothesis does not fit the shapes
	}
	return a, nil
}

// score is how far eq lies off at the sites under more edits: the mean logarithm of
// the ratios to the floors, and the largest ratio.
func (r *run) score(eq *equation, edits sim.Edits, sites []rowError) (mean, largest float64, err error) {
	floors, at := map[site]float64{}, make([]site, len(sites))
	for i, s := range sites {
		at[i], floors[s.site] = s.site, s.floor
	}
	errors, err := r.measure(eq, r.edits.And(edits), at, floors)
	if err != nil {
		return 0, 0, err
	}
	for _, x := range errors {
		ratio := x.ratio()
		if math.IsInf(ratio, 1) {
			ratio = 1e30
		}
		largest = max(largest, ratio)
		mean += math.Log2(max(ratio, 0.1)) / float64(len(errors))
	}
	return mean, largest, nil
}

// verify takes the attempts under which eq seems to hold, and of those under which it
// does hold at all sites, by floors measured under them, the one that leaves the fewest
// equations flagged; of equal ones the likeliest.
func (r *run) verify(eq *equation, all []*attempt) (*attempt, error) {
	var fit []*attempt
	for _, a := range all {
		if a.ratio > 4*excess || len(fit) >= 24 {
			continue
		}
		errors, err := r.measure(eq, r.edits.And(a.edits), r.sites(eq), nil)
		if err != nil {
			return nil, err
		}
		if worst(errors).ratio() > excess {
			continue
		}
		if a.left, err = r.left(eq, a); err != nil {
			return nil, err
		}
		if a.left -= r.flaggedAround(eq, a); a.left <= 0 {
			fit = append(fit, a)
		}
	}
	slices.SortStableFunc(fit, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.cost, b.cost), cmp.Compare(a.score, b.score))
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
	return best, nil
}

// left counts the equations that an attempt touches and that are flagged under it.
func (r *run) left(eq *equation, a *attempt) (int, error) {
	left := 0
	for _, other := range r.touched(a.edits) {
		if other == eq {
			continue
		}
		_, largest, err := r.score(other, a.edits, r.screen(other))
		if err != nil {
			return 0, err
		}
		if largest > excess {
			left++
		}
	}
	return left, nil
}

// flaggedAround counts those that are flagged without it.
func (r *run) flaggedAround(eq *equation, a *attempt) int {
	n := 0
	for _, other := range r.touched(a.edits) {
		if other != eq && other.flagged() {
			n++
		}
	}
	return n
}
