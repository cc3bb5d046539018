package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// measurement is the equations of a dump: how far the engine's values lie from the values that follow from its own
// values before them, and from which distance on a difference is no rounding. Its stage hands it on finished; the
// search works on a copy.
type measurement struct {
	dump     *dump
	engine   *engine
	eqs      []*equation                 // in the graph's order
	byNode   map[*graph.Node][]*equation // equations whose span has the node
	covered  int                         // nodes an equation spans
	perScan  int                         // rows of a prompt that scan may look at
	declared class                       // the dump's words on how the engine rounds; "" for none
}

// measure finds the equations of a dump and the class by which its engine rounds, and checks the equations.
func measure(d *dump) (*measurement, error) {
	said := d.options.Dump.Declared
	m := &measurement{dump: d, declared: class{string(said.Activations), string(said.KV), string(said.GELU)},
		engine: simulate(d, class{}, nil, class{activations: "f64"}.center(), nil)}
	m.findEquations()
	m.limitScan()
	d.progress("finding the class of rounding", 0, 0)
	c, err := classifier{m}.infer()
	if err != nil {
		return nil, err
	}
	m.engine = newEngine(d, c, nil)
	d.progress("checking equations", 0, 0)
	if err := m.check(m.eqs); err != nil {
		return nil, err
	}
	d.progress("trying coarser classes", 0, 0)
	return classifier{m}.coarser()
}

// measureAgain returns the measurement of another dump with some of m's values.
func (m *measurement) measureAgain(d *dump) (*measurement, error) {
	x := &measurement{dump: d, engine: newEngine(d, m.engine.class, nil), declared: m.declared, perScan: m.perScan}
	x.findEquations()
	return x, x.check(x.eqs)
}

// withEngine returns the same equations for another engine. The equations keep their errors until they are checked.
func (m *measurement) withEngine(e *engine) *measurement {
	x := *m
	x.engine = e
	return &x
}

// clone returns a copy of m whose equations may be checked again. They remember their errors as before.
func (m *measurement) clone() *measurement {
	x := *m
	x.eqs = nil
	for _, eq := range m.eqs {
		c := *eq
		c.before = eq.errors
		x.eqs = append(x.eqs, &c)
	}
	x.findSpans()
	return &x
}

// findEquations lists the equations the taps make checkable.
func (m *measurement) findEquations() {
	for _, n := range m.dump.graph.Nodes {
		if eq := m.equation(n); eq != nil {
			m.eqs = append(m.eqs, eq)
		}
	}
	m.findSpans()
	m.covered = len(m.byNode)
}

// equation returns the equation of n's value, nil if no tapped prompt has the value. Where prompts differ in their
// taps, the taps count from which the value follows by the fewest nodes.
func (m *measurement) equation(n *graph.Node) *equation {
	var eq *equation
	for _, p := range m.dump.prompts {
		if _, ok := p.known[n]; !ok || !p.tapped {
			continue
		}
		span, sources := m.engine.center[p].Span(n)
		switch {
		case eq == nil || len(span) < len(eq.span):
			eq = &equation{target: n, tap: m.dump.tapName(n), span: span, sources: sources, prompts: []*prompt{p}}
		case slices.Equal(sources, eq.sources):
			eq.prompts = append(eq.prompts, p)
		}
	}
	return eq
}

// findSpans finds the nodes of each equation: accepted hypotheses may read other nodes than the graph says.
func (m *measurement) findSpans() {
	m.byNode = map[*graph.Node][]*equation{}
	for _, eq := range m.eqs {
		center := m.engine.center[eq.prompts[0]]
		eq.span, _ = center.Span(eq.target)
		eq.behind = center.Behind(eq.span)
		for _, x := range eq.span {
			m.byNode[x] = append(m.byNode[x], eq)
		}
	}
}

// build makes edits part of the simulated engine.
func (m *measurement) build(edits reference.Edits) {
	m.engine = m.engine.with(edits)
	m.findSpans()
}

// sites returns the rows at which eq is checked.
func (m *measurement) sites(eq *equation) []site {
	var all []site
	for i, p := range m.dump.prompts {
		if !slices.Contains(eq.prompts, p) {
			continue
		}
		first, n := eq.checked(p)
		rows := sample(first, n, maxRows)
		for _, s := range eq.off {
			if s.prompt == i {
				rows = append(rows, s.row)
			}
		}
		slices.Sort(rows)
		for _, row := range rows {
			all = append(all, site{i, row})
		}
	}
	return all
}

// sample returns at most limit of n rows from first on, limit being more than 5: the first rows, the last row and a
// spread of the rest.
func sample(first, n, limit int) []int {
	var rows []int
	for i := range min(n, limit) {
		at := i
		if n > limit && i >= 4 {
			at = 4 + (i-4)*(n-5)/(limit-5)
		}
		rows = append(rows, first+at)
	}
	return slices.Compact(rows)
}

// check measures equations under the accepted edits.
func (m *measurement) check(eqs []*equation) error {
	for i, eq := range eqs {
		if err := m.dump.ctx.Err(); err != nil {
			return err
		}
		m.dump.progress("checking equations", i, len(eqs))
		m.engine.forget(eq.target.Layer - 1)
		var err error
		if eq.errors, err = m.measure(eq, nil, nil, m.sites(eq), nil); err != nil {
			return err
		}
		if !eq.scanned {
			if err := m.scan(eq); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowsAt calls do for each prompt that has rows among sites.
func (m *measurement) rowsAt(sites []site, do func(p *prompt, i int, rows []int) error) error {
	for i, p := range m.dump.prompts {
		var rows []int
		for _, s := range sites {
			if s.prompt == i {
				rows = append(rows, s.row)
			}
		}
		if len(rows) > 0 {
			if err := do(p, i, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure returns how far the engine's values lie from eq at the sites, under the accepted edits, the edits of
// base, which may be nil, and more. Floors are given by site; without given floors measure finds them.
func (m *measurement) measure(eq *equation, base *attempt, more reference.Edits, sites []site,
	floors map[site]float64) (all []rowError, err error) {
	n, w := eq.target, eq.target.Shape.Size()
	err = m.rowsAt(sites, func(p *prompt, i int, rows []int) error {
		e := base.on(m.engine.center[p])
		if len(more) > 0 {
			e = e.With(more)
		}
		want, err := e.Compute(n, rows)
		if err != nil {
			return err
		}
		var noise []float64
		got := p.read(n, rows)
		if floors == nil {
			if noise, err = m.noise(p, n, base.with(more), rows, want, got); err != nil {
				return err
			}
		}
		for k, row := range rows {
			y, right := got[k*w:(k+1)*w], want[k*w:(k+1)*w]
			x := rowError{site: site{i, row}, empty: slices.ContainsFunc(right, infinite)}
			if x.residual = m.distance(n, y, right); x.residual > nearEnough && isGone(y) && isVast(eq, p, row) {
				x.residual, x.empty = 0, true
			}
			if x.floor = floors[x.site]; floors == nil {
				x.floor = noise[k]
			}
			all = append(all, x)
		}
		return nil
	})
	return all, err
}

// remeasure measures eq again at sites, with the floors of the sites.
func (m *measurement) remeasure(eq *equation, base *attempt, more reference.Edits, sites []rowError) ([]rowError,
	error) {
	floors := map[site]float64{}
	for _, s := range sites {
		floors[s.site] = s.floor
	}
	return m.measure(eq, base, more, sitesOf(sites), floors)
}

func sitesOf(errors []rowError) []site {
	at := make([]site, len(errors))
	for i, x := range errors {
		at[i] = x.site
	}
	return at
}

func noFloors(sites []site) map[site]float64 {
	floors := map[site]float64{}
	for _, s := range sites {
		floors[s] = 1
	}
	return floors
}

// holds measures eq at all sites, and reports whether eq holds. If eq does not hold, the errors cover some sites
// only.
func (m *measurement) holds(eq *equation, base *attempt, more reference.Edits) (errors []rowError, ok bool, err error) {
	sites := m.sites(eq)
	for i := range m.dump.prompts { // a single prompt may refute eq
		some := slices.DeleteFunc(slices.Clone(sites), func(s site) bool { return s.prompt != i })
		if len(some) == 0 {
			continue
		}
		if err := m.dump.ctx.Err(); err != nil {
			return nil, false, err
		}
		x, err := m.measure(eq, base, more, some, nil)
		if errors = append(errors, x...); err != nil || worst(errors).ratio() > excess {
			return errors, false, err
		}
	}
	return errors, true, nil
}

// distance returns how far a row of n's values lies from another. Logits are the same if they differ by a constant,
// unless a cap comes between. Where neither row has a number nothing is compared: a NaN makes more NaNs, which is
// no fault of the nodes that read it.
func (m *measurement) distance(n *graph.Node, got, want []float64) float64 {
	if slices.ContainsFunc(want, infinite) {
		got, want = slices.Clone(got), slices.Clone(want)
		for i, v := range want {
			if infinite(v) && infinite(got[i]) {
				got[i], want[i] = 0, 0
			}
		}
	}
	if isLogits(m.dump.graph, n) {
		got, want = centered(got), centered(want)
	}
	return lab.RelativeL2(want, got)
}

// isGone reports whether a row has no number but 0.
func isGone(row []float64) bool {
	return !slices.ContainsFunc(row, func(v float64) bool { return v != 0 && !infinite(v) })
}

// isLogits reports whether n is the logits of g, or the logits before a factor: a constant that is added to all of them
// changes no probability, but before a cap it does.
func isLogits(g *graph.Graph, n *graph.Node) bool {
	x := g.Result()
	for x != n && x.Op == graph.Scale {
		x = x.In[0]
	}
	return x == n && n.Op != graph.Softcap
}

// infinite reports whether x is an infinity, or no number at all, in float32, in which dumps are.
func infinite(x float64) bool { return !(math.Abs(x) <= math.MaxFloat32) }

// centered returns x less its mean.
func centered(x []float64) []float64 {
	var mean float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	y := slices.Clone(x)
	for i := range y {
		y[i] -= mean
	}
	return y
}

// isShadowed reports whether eq rests on earlier positions the dump lacks and that nothing replaces, since an
// equation on the way to them does not hold.
func (eq *equation) isShadowed(eqs []*equation) bool {
	return slices.ContainsFunc(eqs, func(x *equation) bool { return x != eq && eq.behind[x.target] && x.isFlagged() })
}

// touched returns the equations whose value the edits may change.
func (m *measurement) touched(edits reference.Edits) []*equation {
	return slices.DeleteFunc(slices.Clone(m.eqs), func(eq *equation) bool {
		return !slices.ContainsFunc(eq.span, func(n *graph.Node) bool {
			return edits[n] != nil || n.Op == graph.Attention && edits[m.dump.model.Store(n)] != nil
		})
	})
}

// limitScan finds how many rows of a prompt can be scanned.
func (m *measurement) limitScan() {
	weights, prompts := 0, 0
	for _, n := range m.dump.graph.Nodes {
		if n.Op != graph.Embed && m.byNode[n] != nil {
			for _, w := range n.W {
				weights += w.Shape.Size()
			}
		}
	}
	for _, p := range m.dump.prompts {
		if p.tapped {
			prompts++
		}
	}
	m.perScan = max(maxRows, scanWork/max(weights*prompts, 1))
}

// scan looks at the rows of eq outside the sample, by the sample's floors, and makes sites of rows that are off. A
// fault at a single position must not pass; else later positions that read the position would be accused.
func (m *measurement) scan(eq *equation) error {
	eq.scanned = true
	for i, p := range m.dump.prompts {
		if !slices.Contains(eq.prompts, p) {
			continue
		}
		seen, floors, floor := map[site]bool{}, map[site]float64{}, 0.0
		for _, x := range eq.errors {
			if seen[x.site] = true; x.prompt == i {
				floor = max(floor, x.floor)
			}
		}
		var others []site
		first, n := eq.checked(p)
		for _, row := range sample(first, n, m.perScan) {
			if s := (site{i, row}); !seen[s] {
				others, floors[s] = append(others, s), floor
			}
		}
		errors, err := m.measure(eq, nil, nil, others, floors)
		if err != nil {
			return err
		}
		errors = worstFirst(slices.DeleteFunc(errors, func(x rowError) bool { return x.ratio() <= excess }))
		eq.off = append(eq.off, sitesOf(errors[:min(len(errors), maxOff)])...)
	}
	if len(eq.off) == 0 {
		return nil
	}
	more, err := m.measure(eq, nil, nil, eq.off, nil)
	if err != nil {
		return err
	}
	eq.errors = append(eq.errors, more...)
	slices.SortFunc(eq.errors, func(a, b rowError) int { return cmp.Or(a.prompt-b.prompt, a.row-b.row) })
	return nil
}
