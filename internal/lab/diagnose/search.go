package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// search is the stage that names causes: sets of hypotheses under which equations hold.
type search struct {
	m        *measurement // of the engine with the accepted hypotheses
	accepted []*hypothesis
	given    map[*equation]bool     // equations that nothing explains, and are left as they are
	pursuits map[*equation]*pursuit // searches for what explains an equation
	speeds   [][]float64            // of rope, that were found where none on the list fit
	vain     int                    // equations in which none were
}

// newSearch names the causes of a measurement, which stays as it is.
func newSearch(m *measurement) (*search, error) {
	s := &search{m: m.clone(), given: map[*equation]bool{}, pursuits: map[*equation]*pursuit{}}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"naming causes", s.causes}, {"comparing layers", s.unify}, {"comparing kinds of layers", s.kinds},
		{"looking in other layers", s.extend}, {"looking below the floors", func() error { return s.below(1) }},
		{"looking for epsilons", s.epsilons},
	} {
		m.dump.progress(step.name, 0, 0)
		if err := step.do(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// causes names what each flagged equation's engine computes instead. What a single
// cause explains comes first, in all layers: with it known, equations in which several
// faults meet need fewer steps.
func (r *search) causes() error {
	for deep := false; ; {
		found, err := r.pass(deep)
		switch {
		case err != nil:
			return err
		case found:
			deep = false
		case deep:
			for _, eq := range r.m.eqs {
				if eq.flagged() && !r.given[eq] && !r.m.isShadowed(eq) {
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
// after the first that it could explain, and takes a step less for each of a kind that it could not.
func (r *search) pass(deep bool) (found bool, err error) {
	vain := map[any]int{}
	for i, eq := range r.m.eqs {
		if !eq.flagged() || r.given[eq] || r.m.isShadowed(eq) {
			continue
		}
		r.m.dump.progress("naming causes", i, len(r.m.eqs))
		kind, depth := r.kind(eq), 1
		if deep {
			depth = max(1, maxDepth-vain[kind])
		}
		best, err := r.explain(eq, depth, vain[kind] > 0)
		if err != nil {
			return found, err
		}
		if best == nil {
			vain[kind]++
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

// kind is the same of equations in which the same faults are likely: of one role, with one window, whose layers make their own
// keys or read others.
func (r *search) kind(eq *equation) any {
	k := struct {
		role   string
		window int
		others bool
	}{role: role(eq.target)}
	for _, n := range eq.span {
		if a, ok := n.Attr.(graph.AttentionAttr); ok {
			store := r.m.dump.model.Store(n)
			k.window, k.others = a.KV.Window, store != nil && store.Layer != n.Layer
		}
	}
	return k
}

// accept builds an attempt's hypotheses into the reference.
func (r *search) accept(eq *equation, a *attempt) error {
	r.m.build(a.edits)
	touched := []*equation{eq}
	for _, h := range a.hs {
		h.eqs = append(h.eqs, eq)
		r.accepted = append(r.accepted, h)
		touched = append(touched, r.m.touched(h.edits)...)
		for _, eq := range r.m.eqs {
			if eq.behind[h.node] {
				touched = append(touched, eq)
			}
		}
	}
	slices.SortFunc(touched, func(a, b *equation) int { return a.target.ID - b.target.ID })
	return r.m.check(slices.Compact(touched))
}

// leftOver describes an equation that no hypothesis explains: that its queries and
// keys turn at speeds that are on no list, if there are such, or nothing but where it is.
func (r *search) leftOver(eq *equation) error {
	if h := r.measuredTurns(eq); h != nil {
		return r.accept(eq, &attempt{hs: []*hypothesis{h}, edits: h.edits})
	}
	if best, err := r.turnedAlone(eq); err != nil {
		return err
	} else if best != nil {
		return r.accept(eq, best)
	}
	r.unknown(eq)
	return nil
}

// turnedAlone is an attempt by which rope does something to queries or keys alone, if eq holds under it. Long equations are not asked
// before, since it doubles their hypotheses of rope.
func (r *search) turnedAlone(eq *equation) (*attempt, error) {
	if len(eq.span) <= small || eq.layers() > 1 {
		return nil, nil
	}
	p, base := r.m.proposer(eq, nil, nil), &attempt{}
	of := &pursuit{sites: screen(eq), frontier: []*attempt{base}}
	for _, n := range eq.span {
		if n.Op == graph.RoPE {
			of.singles = append(of.singles, tried(p.of.OneSide(n))...)
		}
	}
	r.rate(eq, base, of.sites)
	next, err := r.step(eq, of)
	if err != nil {
		return nil, err
	}
	return r.verify(eq, next)
}

// unknown says of an equation that it does not hold, and nothing explains why.
func (r *search) unknown(eq *equation) {
	r.given[eq] = true
	l := locator{r.m}
	n, among := l.suspect(eq)
	d := detail{"op": opName(n), "role": role(n)}
	if heads := l.wrongHeads(eq); n == eq.target && heads != "" {
		d["heads"] = heads
	}
	h := &hypothesis{cause: "unknown", node: n, detail: d, computed: "computes something that is on no list" + l.where(eq), eqs: []*equation{eq}, edits: reference.Edits{}}
	if l.m.dump.untold(among, eq.target) != nil {
		h.among = among
	}
	for _, x := range r.accepted {
		if x.cause == "unknown" && x.node == n {
			x.eqs = append(x.eqs, eq)
			return
		}
	}
	r.accepted = append(r.accepted, h)
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
func (r *search) pursue(eq *equation) (*pursuit, error) {
	if p := r.pursuits[eq]; p != nil && p.accepted == len(r.accepted) {
		return p, nil
	}
	singles, err := propose(r.m, eq)
	if err != nil {
		return nil, err
	}
	p := &pursuit{singles: singles, sites: screen(eq), frontier: r.likely(singles), accepted: len(r.accepted)}
	for _, base := range p.frontier {
		r.rate(eq, base, p.sites)
	}
	p.start = p.frontier[0].score
	r.pursuits[eq] = p
	return p, nil
}

// explain finds the smallest set of hypotheses under which eq holds, nil if there is
// none of so many steps beyond the likely ones from the start. An equation of a kind that
// was tried in vain before has to come nearer with each step.
func (r *search) explain(eq *equation, depth int, again bool) (*attempt, error) {
	if math.IsNaN(worst(eq.errors).residual) {
		return nil, nil // no cause makes NaNs
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
		if p.depth == 1 { // a likely cause may explain it alone
			next = append(slices.Clone(p.frontier[1:]), next...)
		}
		if best, err := r.verify(eq, next); best != nil || err != nil {
			return best, err
		}
		if r.m.dump.blackBox {
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
func (r *search) step(eq *equation, p *pursuit) ([]*attempt, error) {
	var next []*attempt
	for _, base := range p.frontier {
		few := r.few(eq, base)
		from := mean(few)
		singles, err := r.besides(eq, base, p.singles)
		if err != nil {
			return nil, err
		}
		for _, h := range singles {
			if err := r.m.dump.ctx.Err(); err != nil {
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

// besides is singles as they may join base: values from errors or taps are read off
// what base leaves of them, too.
func (r *search) besides(eq *equation, base *attempt, singles []*hypothesis) ([]*hypothesis, error) {
	if len(base.hs) == 0 {
		return singles, nil
	}
	more, err := proposeUnder(r.m, eq, base)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(singles), func(h *hypothesis) bool {
		return slices.ContainsFunc(more, func(x *hypothesis) bool {
			return x.node == h.node && x.cause == h.cause && (x.fit != nil) == (h.fit != nil) && (x.fit != nil || same(x, h))
		})
	})
	return append(kept, more...), nil
}

// rateBest measures the attempts that came nearest at few sites at all of the screen,
// and sorts them.
func (r *search) rateBest(eq *equation, all []*attempt, sites []rowError) []*attempt {
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
	for i, a := range best[:min(len(best), beam)] {
		if len(a.hs) > 1 {
			best[i] = r.refitted(eq, a)
		}
	}
	slices.SortStableFunc(best, byScore)
	return best
}

// likely are sets of hypotheses to begin with: none, norms whose taps the dump lacks
// though it has others of that layer, and what has been accepted in other layers.
func (r *search) likely(singles []*hypothesis) []*attempt {
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
		if h.node.Op == graph.RMSNorm && h.node.HF != "" && h.cause == r.m.dump.wiring.MissingNorm(h.node) && len(h.detail) == 0 && r.m.dump.taps[h.node] == "" && len(r.m.dump.taps) > layers(r.m.dump.graph)+2 {
			return h
		}
		return nil
	})
	with(func(h *hypothesis) *hypothesis {
		if h.cause == "bias_missing" && h.node.Op == graph.Add && r.m.dump.taps[h.node] == "" && len(r.m.dump.taps) > layers(r.m.dump.graph)+2 {
			return h
		}
		return nil
	})
	if biases := slices.DeleteFunc(slices.Clone(singles), func(h *hypothesis) bool { return h.cause != "bias_missing" || h.node.Op != graph.Add }); len(biases) <= maxBiases {
		for _, b := range biases { // without which the weight beside it can be looked into
			with(func(h *hypothesis) *hypothesis {
				if h == b {
					return h
				}
				return nil
			})
		}
	}
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
// if there is one of the same shape: values may depend on it. A number of keys alone is none of queries and keys. Where an
// equation holds that has the node, too, such as that of the layer which makes the keys of others, it is not there.
func (r *search) acceptedElsewhere(h *hypothesis) *hypothesis {
	if slices.ContainsFunc(r.m.byNode[h.node], func(eq *equation) bool { return !eq.flagged() }) {
		return nil
	}
	var other *hypothesis
	for _, x := range r.accepted {
		if x.cause != h.cause || x.node == h.node {
			continue
		}
		y := h
		switch {
		case h.fit != nil && x.value != 0:
			if y = h.of(x.value); y == nil || y.detail["side"] != x.detail["side"] || h.fit.isRight(x.value) {
				continue
			}
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

// known reports whether the same hypotheses have been accepted in other layers.
func (r *search) known(a *attempt) bool {
	for _, h := range a.hs {
		if !slices.ContainsFunc(r.accepted, func(x *hypothesis) bool { return same(x, h) }) {
			return false
		}
	}
	return true
}

// few is the sites at which attempts on top of base are compared first, the worst in
// front: those of its screen, but of an equation that takes long only those of the
// shortest prompt that is wrong under base.
func (r *search) few(eq *equation, base *attempt) []rowError {
	errors := worstFirst(base.errors)
	if len(eq.span) <= small {
		return errors
	}
	shortest := -1
	for _, x := range errors {
		if n := len(r.m.dump.prompts[x.prompt].IDs); x.ratio() > excess && (shortest < 0 || n < len(r.m.dump.prompts[shortest].IDs)) {
			shortest = x.prompt
		}
	}
	if shortest < 0 {
		return errors
	}
	return slices.DeleteFunc(errors, func(x rowError) bool { return x.prompt != shortest })
}
