package diagnose

import (
	"cmp"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// search is the stage that names causes: sets of hypotheses under which equations hold.
type search struct {
	m        *measurement // of the engine with the accepted hypotheses
	accepted []*hypothesis
	shown    map[*hypothesis]*showing
	given    map[*equation]bool     // equations without an explanation
	pursuits map[*equation]*pursuit // searches for what explains an equation
	speeds   [][]float64            // of rope, found where no listed speeds fit
	vain     int                    // equations without such speeds
	beam     int                    // attempts that are built upon
}

// showing is the evidence of an accepted hypothesis.
type showing struct {
	eqs   []*equation   // equations that the hypothesis explains
	seen  string        // evidence where no equation shows the hypothesis
	also  []*hypothesis // other hypotheses that explain as much
	among []*graph.Node // nodes that no tap separates, of an unknown cause
}

// show returns the evidence of h.
func (r *search) show(h *hypothesis) *showing {
	if r.shown[h] == nil {
		r.shown[h] = &showing{}
	}
	return r.shown[h]
}

// newSearch names the causes of a measurement, and leaves the measurement as before.
func newSearch(m *measurement) (*search, error) {
	s := &search{m: m.clone(), given: map[*equation]bool{}, pursuits: map[*equation]*pursuit{},
		shown: map[*hypothesis]*showing{}, beam: beam}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"naming causes", s.causes}, {"comparing layers", s.unify}, {"comparing kinds of layers", s.kinds},
		{"looking in other layers", s.extend}, {"looking below the floors", func() error { return s.searchBelow(1) }},
		{"looking for epsilons", s.epsilons},
	} {
		m.dump.progress(step.name, 0, 0)
		if err := step.do(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// causes names what each flagged equation's engine computes instead. Single causes come first, in all layers: with
// them known, equations in which several faults meet need fewer steps.
func (r *search) causes() error {
	for deep := false; ; {
		found, err := r.pass(deep)
		switch {
		case err != nil:
			return err
		case found:
			deep = false
		case deep && r.beam == beam:
			r.beam = wide * beam
			clear(r.pursuits)
		case deep:
			for _, eq := range r.m.eqs {
				if eq.isFlagged() && !r.given[eq] && !eq.isShadowed(r.m.eqs) {
					if err := leftOver(r, eq); err != nil {
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

// pass tries to explain the open equations, in the graph's order. A deep pass returns after the first explained
// equation, and takes a step less for each unexplained equation of the same kind.
func (r *search) pass(deep bool) (found bool, err error) {
	vain := map[any]int{}
	for i, eq := range r.m.eqs {
		if !eq.isFlagged() || r.given[eq] || eq.isShadowed(r.m.eqs) {
			continue
		}
		r.m.dump.progress("naming causes", i, len(r.m.eqs))
		kind, depth := likeness(r, eq), 1
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

// likeness returns a value that is equal for equations with the same likely faults: of one role, with one window, whose
// layers make their own keys or read the keys of others.
func likeness(r *search, eq *equation) any {
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
		r.show(h).eqs = append(r.show(h).eqs, eq)
		r.accepted = append(r.accepted, h)
		touched = append(touched, r.m.touched(h.Edits)...)
		for _, eq := range r.m.eqs {
			if eq.behind[h.Node] {
				touched = append(touched, eq)
			}
		}
	}
	slices.SortFunc(touched, func(a, b *equation) int { return a.target.ID - b.target.ID })
	return r.m.check(slices.Compact(touched))
}

// leftOver describes an equation no hypothesis explains: by the speeds at which queries and keys turn, if
// these are on no list, or by its place alone.
func leftOver(r *search, eq *equation) error {
	if h := measuredTurns(r, eq); h != nil {
		return r.accept(eq, alone(h))
	}
	if best, err := turnedAlone(r, eq); err != nil {
		return err
	} else if best != nil {
		return r.accept(eq, best)
	}
	noteUnknown(r, eq)
	return nil
}

// turnedAlone returns an attempt by which rope changes queries or keys alone, if eq holds under the attempt. Long
// equations are not asked, since turnedAlone doubles their hypotheses of rope.
func turnedAlone(r *search, eq *equation) (*attempt, error) {
	if len(eq.span) <= small || eq.layers() > 1 {
		return nil, nil
	}
	p, base := r.m.proposer(eq, nil, nil), &attempt{}
	of := &pursuit{sites: screen(eq), frontier: []*attempt{base}}
	p.of.Alone = true
	for _, n := range eq.span {
		if n.Op == graph.RoPE {
			of.singles = append(of.singles, p.of.Of(n)...)
		}
	}
	r.rate(eq, base, of.sites)
	next, err := r.step(eq, of)
	if err != nil {
		return nil, err
	}
	return r.verify(eq, next)
}

// noteUnknown records that an equation does not hold, and that nothing explains the error.
func noteUnknown(r *search, eq *equation) {
	r.given[eq] = true
	l := locator{r.m}
	n, among := l.suspect(eq)
	d := detail{"op": opName(n), "role": role(n)}
	if heads := l.wrongHeads(eq); n == eq.target && heads != "" {
		d["heads"] = heads
	}
	h := &hypothesis{Cause: "unknown", Node: n, Detail: d, Computed: "computes something that is on no list" +
		l.describePlace(eq) + l.describeValues(eq), Edits: reference.Edits{}}
	for _, x := range r.accepted {
		if x.Cause == "unknown" && x.Node == n {
			r.show(x).eqs = append(r.show(x).eqs, eq)
			return
		}
	}
	r.show(h).eqs = []*equation{eq}
	if l.m.dump.untold(among, eq.target) != nil {
		r.show(h).among = among
	}
	r.accepted = append(r.accepted, h)
}

// pursuit holds the state of the search for the cause behind an equation.
type pursuit struct {
	singles  []*hypothesis
	sites    []rowError // the screen
	start    float64    // how near the equation comes without any
	frontier []*attempt // that are built upon
	depth    int        // steps done
	accepted int        // how many hypotheses had been accepted
}

// pursue begins a search for an explanation of eq, or continues a search.
func (r *search) pursue(eq *equation) (*pursuit, error) {
	if p := r.pursuits[eq]; p != nil && p.accepted == len(r.accepted) {
		return p, nil
	}
	singles, err := propose(r.m, eq)
	if err != nil {
		return nil, err
	}
	p := &pursuit{singles: singles, sites: screen(eq), frontier: likelySets(r, singles), accepted: len(r.accepted)}
	for _, base := range p.frontier {
		r.rate(eq, base, p.sites)
	}
	p.start = p.frontier[0].score
	r.pursuits[eq] = p
	return p, nil
}

// explain finds the smallest set of hypotheses under which eq holds. The result is nil if no set of so many steps
// beyond the likely sets from the start is found. An equation of a kind that was tried in vain before has to come
// nearer with each step.
func (r *search) explain(eq *equation, depth int, again bool) (*attempt, error) {
	if !isTold(eq, r.m.dump.prompts) {
		return nil, nil // any cause that overflows would do
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
		if p.depth == 1 { // a likely cause may be enough
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
		p.frontier = next[:min(len(next), r.beam)]
	}
	for _, a := range p.frontier {
		a.evals = nil // many evaluations, and perhaps no use
	}
	return nil, nil
}

// step extends each attempt of the frontier by a hypothesis, and returns the results, the nearest first.
func (r *search) step(eq *equation, p *pursuit) ([]*attempt, error) {
	var next []*attempt
	for _, base := range p.frontier {
		few := fewSites(r, eq, base)
		from := mean(few)
		singles, err := joinable(r, eq, base, p.singles)
		if err != nil {
			return nil, err
		}
		for _, h := range singles {
			if err := r.m.dump.ctx.Err(); err != nil {
				return nil, err
			}
			if !isJoinable(base, h) {
				continue
			}
			if a := r.try(eq, base, h, few); a != nil {
				a.score += base.score - from
				next = append(next, a)
			}
		}
	}
	return rateBest(r, eq, next, p.sites), nil
}

// joinable returns the singles that may join base. Values read off errors or taps are read again off the errors
// that base leaves.
func joinable(r *search, eq *equation, base *attempt, singles []*hypothesis) ([]*hypothesis, error) {
	if len(base.hs) == 0 {
		return singles, nil
	}
	more, err := proposeUnder(r.m, eq, base)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(singles), func(h *hypothesis) bool {
		return slices.ContainsFunc(more, func(x *hypothesis) bool {
			return x.Node == h.Node && x.Cause == h.Cause && (x.Fit != nil) == (h.Fit != nil) &&
				(x.Fit != nil || same(x, h))
		})
	})
	return append(kept, more...), nil
}

// rateBest measures the attempts that came nearest at few sites at the whole screen, and sorts the attempts.
func rateBest(r *search, eq *equation, all []*attempt, sites []rowError) []*attempt {
	byScore := func(a, b *attempt) int { return cmp.Compare(a.score, b.score) }
	slices.SortStableFunc(all, byScore)
	var best []*attempt
	for i, a := range all {
		if i < 3*r.beam || a.ratio <= 4*excess && len(best) < 10*r.beam {
			if len(a.errors) < len(sites) {
				r.rate(eq, a, sites)
			}
			best = append(best, a)
		}
	}
	slices.SortStableFunc(best, byScore)
	for i, a := range best[:min(len(best), r.beam)] {
		if len(a.hs) > 1 {
			best[i] = refitted(r, eq, a)
		}
	}
	slices.SortStableFunc(best, byScore)
	return best
}

// likelySets returns sets of hypotheses to begin with: the empty set, norms whose taps the dump lacks though it has
// others of that layer, and hypotheses that were accepted in other layers.
func likelySets(r *search, singles []*hypothesis) []*attempt {
	sets := []*attempt{{}}
	with := func(of func(h *hypothesis) *hypothesis) {
		a := &attempt{}
		for _, h := range singles {
			if h = of(h); h != nil && isJoinable(a, h) {
				a.hs, a.edits, a.cost = append(a.hs, h), a.edits.And(h.Edits), a.cost+h.Cost
			}
		}
		if len(a.hs) > 0 {
			sets = append(sets, a)
		}
	}
	only := func(takes func(h *hypothesis) bool) {
		with(func(h *hypothesis) *hypothesis {
			if takes(h) {
				return h
			}
			return nil
		})
	}
	dump := r.m.dump
	lacks := func(n *graph.Node) bool { return dump.taps[n] == "" && len(dump.taps) > layers(dump.graph)+2 }
	isBias := func(h *hypothesis) bool { return h.Cause == "bias_missing" && h.Node.Op == graph.Add }
	only(func(h *hypothesis) bool {
		n := h.Node
		return n.Op == graph.RMSNorm && n.HF != "" && h.Cause == dump.wiring.MissingNorm(n) &&
			len(h.Detail) == 0 && lacks(n)
	})
	only(func(h *hypothesis) bool { return isBias(h) && lacks(h.Node) })
	biases := slices.DeleteFunc(slices.Clone(singles), func(h *hypothesis) bool { return !isBias(h) })
	if len(biases) <= maxBiases {
		for _, b := range biases { // a weight is measured without its bias
			only(func(h *hypothesis) bool { return h == b })
		}
	}
	with(r.acceptedElsewhere)
	skipped := map[string]bool{}
	for _, skip := range sets[len(sets)-1].hs {
		if skipped[skip.Cause] || len(sets) > 2*beam {
			continue
		}
		skipped[skip.Cause] = true
		with(func(h *hypothesis) *hypothesis {
			if h = r.acceptedElsewhere(h); h != nil && h.Cause == skip.Cause {
				return nil
			}
			return h
		})
	}
	return sets
}

// acceptedElsewhere returns h, or h with a value, as it has been accepted in another layer, if possible in a layer
// of the same shape, since values may depend on the shape. A number of keys alone does not count for queries and
// keys. A cause is not at a node of an equation that holds, such as the equation of the layer that makes the keys
// of others.
func (r *search) acceptedElsewhere(h *hypothesis) *hypothesis {
	if slices.ContainsFunc(r.m.byNode[h.Node], func(eq *equation) bool { return !eq.isFlagged() }) {
		return nil
	}
	var other *hypothesis
	for _, x := range r.accepted {
		if x.Cause != h.Cause || x.Node == h.Node {
			continue
		}
		y := h
		switch {
		case h.Fit != nil && x.Value != 0:
			if y = h.With(x.Value); y == nil || y.Detail["side"] != x.Detail["side"] || h.Fit.IsRight(x.Value) {
				continue
			}
		case h.Fit != nil || !same(x, h):
			continue
		}
		if slices.Equal(x.Node.Shape, h.Node.Shape) {
			return y
		}
		other = y
	}
	return other
}

// unknown returns the number of an attempt's hypotheses that no other layer has been found to have.
func unknown(r *search, a *attempt) (n int) {
	for _, h := range a.hs {
		if !slices.ContainsFunc(r.accepted, func(x *hypothesis) bool { return same(x, h) }) {
			n++
		}
	}
	return n
}

// fewSites returns the sites at which attempts on top of base are compared first, the worst in front: the sites of
// base's screen. An equation that takes long has only the sites of the shortest prompt that is wrong under base.
func fewSites(r *search, eq *equation, base *attempt) []rowError {
	errors := worstFirst(base.errors)
	if len(eq.span) <= small {
		return errors
	}
	shortest := -1
	for _, x := range errors {
		if n := len(r.m.dump.prompts[x.prompt].IDs); x.ratio() > excess &&
			(shortest < 0 || n < len(r.m.dump.prompts[shortest].IDs)) {
			shortest = x.prompt
		}
	}
	if shortest < 0 {
		return errors
	}
	return slices.DeleteFunc(errors, func(x rowError) bool { return x.prompt != shortest })
}
