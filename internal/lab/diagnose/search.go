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

	eqs  []*equation // that it explains
	also []*hypothesis
}

// attempt is a set of hypotheses and how far the equations lie off under it.
type attempt struct {
	hs     []*hypothesis
	edits  sim.Edits
	errors []rowError // of the equation at some sites
	ratio  float64    // the worst of these
	score  float64    // mean base-2 logarithm of their ratios: how near it comes
	left   int        // flagged equations among those it touches, less those without it
	cost   float64
	evals  map[*sim.Eval]*sim.Eval // with its edits, by those without
}

// on is p's values under the attempt; a nil one changes nothing.
func (a *attempt) on(p *prompt) *sim.Eval {
	if a == nil || len(a.edits) == 0 {
		return p.center
	}
	if a.evals == nil {
		a.evals = map[*sim.Eval]*sim.Eval{}
	}
	if a.evals[p.center] == nil {
		a.evals[p.center] = p.center.With(a.edits)
	}
	return a.evals[p.center]
}

// with is the attempt's edits and more.
func (a *attempt) with(more sim.Edits) sim.Edits {
	if a == nil {
		return more
	}
	return a.edits.And(more)
}

// maxDepth is how many faults a single equation may have.
const maxDepth = 3

// progress is how much nearer, as a base-2 logarithm, an attempt has to come to be built upon.
const progress = 0.4

// crooked is the cost of a number that is none of those that are usual.
const crooked = 0.3

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
				if eq.flagged() && !eq.given && !r.shadowed(eq) {
					if err := r.leftOver(eq); err != nil {
						return err
					}
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
		if !eq.flagged() || eq.given || r.shadowed(eq) {
			continue
		}
		r.progress("naming causes", i, len(r.eqs))
		depth := 1
		if deep {
			depth = maxDepth
		}
		best, err := r.explain(eq, depth, tried[role(eq.target)])
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

// shadowed reports whether eq rests on earlier positions that the dump lacks, and whose
// values cannot be had, since an equation on the way to them does not hold.
func (r *run) shadowed(eq *equation) bool {
	return slices.ContainsFunc(r.eqs, func(x *equation) bool { return x != eq && eq.behind[x.target] && x.flagged() })
}

// accept builds an attempt's hypotheses into the reference.
func (r *run) accept(eq *equation, a *attempt) error {
	r.build(a.edits)
	touched := []*equation{eq}
	for _, h := range a.hs {
		h.eqs = append(h.eqs, eq)
		r.accepted = append(r.accepted, h)
		touched = append(touched, r.touched(h.edits)...)
		for _, eq := range r.eqs {
			if eq.behind[h.node] {
				touched = append(touched, eq)
			}
		}
	}
	slices.SortFunc(touched, func(a, b *equation) int { return a.target.ID - b.target.ID })
	return r.remeasure(slices.Compact(touched))
}

// build makes edits part of what is taken for the engine.
func (r *run) build(edits sim.Edits) {
	r.edits = r.edits.And(edits)
	for _, p := range r.prompts {
		p.center = p.center.With(edits)
		for i, a := range p.arms {
			p.arms[i] = a.With(edits)
		}
	}
	r.findSpans()
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
		if n.Op == graph.Attention && edits[r.model.Store(n)] != nil {
			return true
		}
	}
	return false
}

// pursuit is how far the search for what explains an equation has come.
type pursuit struct {
	singles  []*hypothesis
	sites    []rowError // the screen
	start    float64    // how near the equation comes without any
	frontier []*attempt // that are built upon
	depth    int        // steps done
	accepted int        // how many hypotheses had been accepted
}

// pursue begins a search for what explains eq, or goes on with one.
func (r *run) pursue(eq *equation) (*pursuit, error) {
	if p := eq.pursuit; p != nil && p.accepted == len(r.accepted) {
		return p, nil
	}
	singles, err := r.candidates(eq)
	if err != nil {
		return nil, err
	}
	p := &pursuit{singles: singles, sites: r.screen(eq), frontier: r.likely(singles), accepted: len(r.accepted)}
	for _, base := range p.frontier {
		r.rate(eq, base, p.sites)
	}
	p.start = p.frontier[0].score
	eq.pursuit = p
	return p, nil
}

// explain finds the smallest set of hypotheses under which eq holds, nil if there is
// none of so many steps beyond what is likely from the start. An equation whose role
// was tried in vain before has to come nearer with each step.
func (r *run) explain(eq *equation, depth int, again bool) (*attempt, error) {
	if math.IsNaN(worst(eq.errors).residual) {
		return nil, nil // no cause makes what is not a number
	}
	p, err := r.pursue(eq)
	if err != nil {
		return nil, err
	}
	for p.depth < depth && len(p.frontier) > 0 {
		p.depth++
		next, err := r.step(eq, p)
		if err != nil {
			return nil, err
		}
		if p.depth == 1 { // what is likely may explain it by itself
			next = append(slices.Clone(p.frontier[1:]), next...)
		}
		if best, err := r.verify(eq, next); best != nil || err != nil {
			return best, err
		}
		if r.blackBox {
			p.frontier = nil
			return r.underClasses(eq, next)
		}
		if again {
			next = slices.DeleteFunc(next, func(a *attempt) bool { return a.score >= p.start-progress })
		}
		p.frontier = next[:min(len(next), beam)]
	}
	for _, a := range p.frontier {
		a.evals = nil // they are many, and may not be needed again
	}
	return nil, nil
}

// step is what the frontier's attempts become with one hypothesis more, the nearest first.
func (r *run) step(eq *equation, p *pursuit) ([]*attempt, error) {
	var next []*attempt
	for _, base := range p.frontier {
		few := r.few(eq, base)
		from := mean(few)
		for _, h := range p.singles {
			if err := r.ctx.Err(); err != nil {
				return nil, err
			}
			if !extends(base, h) {
				continue
			}
			if a := r.try(eq, base, h, few); a != nil {
				a.score += base.score - from
				next = append(next, a)
			}
		}
	}
	return r.rateBest(eq, next, p.sites), nil
}

// rateBest measures the attempts that came nearest at few sites at all of the screen,
// and sorts them.
func (r *run) rateBest(eq *equation, all []*attempt, sites []rowError) []*attempt {
	byScore := func(a, b *attempt) int { return cmp.Compare(a.score, b.score) }
	slices.SortStableFunc(all, byScore)
	var best []*attempt
	for i, a := range all {
		if i < 3*beam || a.ratio <= 4*excess && len(best) < 10*beam {
			if len(a.errors) < len(sites) {
				r.rate(eq, a, sites)
			}
			best = append(best, a)
		}
	}
	slices.SortStableFunc(best, byScore)
	return best
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
	skipped := map[string]bool{}
	for _, skip := range sets[len(sets)-1].hs {
		if skipped[skip.cause] || len(sets) > 2*beam {
			continue
		}
		skipped[skip.cause] = true
		with(func(h *hypothesis) *hypothesis {
			if h = r.acceptedElsewhere(h); h != nil && h.cause == skip.cause {
				return nil
			}
			return h
		})
	}
	return sets
}

// acceptedElsewhere is h, or the one of its values, that has been accepted in another layer,
// if there is one of the same shape: values may depend on it.
func (r *run) acceptedElsewhere(h *hypothesis) *hypothesis {
	var other *hypothesis
	for _, x := range r.accepted {
		if x.cause != h.cause || x.node == h.node {
			continue
		}
		y := h
		switch {
		case h.fit != nil && x.value != 0:
			if y = h.fit.make(x.value); y == nil {
				continue
			}
			y.value, y.remake = x.value, h.fit.make
		case h.fit != nil || !same(x, h):
			continue
		}
		if slices.Equal(x.node.Shape, h.node.Shape) {
			return y
		}
		other = y
	}
	return other
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

// screen is some sites of eq: the worst ones and others.
func (r *run) screen(eq *equation) []rowError {
	all := worstFirst(eq.errors)
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

// worstFirst is rows in the order of their ratios.
func worstFirst(errors []rowError) []rowError {
	return slices.SortedStableFunc(slices.Values(errors), func(a, b rowError) int { return cmp.Compare(b.ratio(), a.ratio()) })
}

// few is the sites at which attempts on top of base are compared first, the worst in
// front: those of its screen, but of an equation that takes long only those of the
// shortest prompt that is wrong under base.
func (r *run) few(eq *equation, base *attempt) []rowError {
	errors := worstFirst(base.errors)
	if len(eq.span) <= small {
		return errors
	}
	shortest := -1
	for _, x := range errors {
		if n := len(r.prompts[x.prompt].IDs); x.ratio() > excess && (shortest < 0 || n < len(r.prompts[shortest].IDs)) {
			shortest = x.prompt
		}
	}
	if shortest < 0 {
		return errors
	}
	return slices.DeleteFunc(errors, func(x rowError) bool { return x.prompt != shortest })
}

// try measures eq at some sites with h on top of base; nil where h cannot be computed.
func (r *run) try(eq *equation, base *attempt, h *hypothesis, sites []rowError) *attempt {
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
	errors, err := r.at(eq, base, h.edits, sites)
	if err != nil {
		return nil // the hypothesis does not fit the shapes
	}
	a.take(errors)
	return a
}

// at measures eq again at sites, with the floors that they have.
func (r *run) at(eq *equation, base *attempt, more sim.Edits, sites []rowError) ([]rowError, error) {
	floors, at := map[site]float64{}, make([]site, len(sites))
	for i, s := range sites {
		at[i], floors[s.site] = s.site, s.floor
	}
	return r.measure(eq, base, more, at, floors)
}

// rate measures an attempt at the sites; one that cannot be computed explains nothing.
func (r *run) rate(eq *equation, a *attempt, sites []rowError) {
	errors, err := r.at(eq, a, nil, sites)
	if err != nil {
		a.ratio, a.score = math.Inf(1), math.Inf(1)
		return
	}
	a.take(errors)
}

func (a *attempt) take(errors []rowError) {
	a.errors, a.ratio, a.score = errors, worst(errors).ratio(), mean(errors)
}

// mean is the mean base-2 logarithm of the rows' ratios to their floors.
func mean(errors []rowError) float64 {
	var sum float64
	for _, x := range errors {
		sum += math.Log2(min(max(x.ratio(), 0.1), 1e30))
	}
	return sum / float64(len(errors))
}

// verify takes the attempts under which eq seems to hold, and of those under which it
// does hold at all sites, by floors measured under them, the one that leaves the fewest
// equations flagged; of equal ones the likeliest.
func (r *run) verify(eq *equation, all []*attempt) (*attempt, error) {
	var fit []*attempt
	for _, a := range all {
		if a.ratio > 4*excess || len(fit) >= 24 || slices.ContainsFunc(fit, a.includes) {
			continue
		}
		if _, ok, err := r.holds(eq, a, nil); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		var err error
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
	return r.least(eq, best)
}

// includes reports whether a has all of b's hypotheses.
func (a *attempt) includes(b *attempt) bool {
	return !slices.ContainsFunc(b.hs, func(h *hypothesis) bool {
		return !slices.ContainsFunc(a.hs, func(x *hypothesis) bool {
			return x == h || h.value != 0 && x.node == h.node && x.cause == h.cause && x.value == h.value
		})
	})
}

// least is an attempt without the hypotheses that eq holds without.
func (r *run) least(eq *equation, a *attempt) (*attempt, error) {
	for i := 0; i < len(a.hs) && len(a.hs) > 1; {
		less := &attempt{hs: slices.Delete(slices.Clone(a.hs), i, i+1)}
		for _, h := range less.hs {
			less.edits = less.edits.And(h.edits)
		}
		_, ok, err := r.holds(eq, less, nil)
		if r.ctx.Err() != nil {
			return nil, r.ctx.Err()
		}
		if ok && err == nil {
			a = less
		} else {
			i++
		}
	}
	return a, nil
}

// left counts the equations that an attempt touches and that are flagged under it.
func (r *run) left(eq *equation, a *attempt) (int, error) {
	left := 0
	for _, other := range r.touched(a.edits) {
		if other == eq {
			continue
		}
		errors, err := r.at(other, a, nil, r.screen(other))
		if err != nil {
			return 0, err
		}
		if worst(errors).ratio() > excess {
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
