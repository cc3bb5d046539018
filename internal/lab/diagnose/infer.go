package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
)

// classifier finds how the engine rounds.
type classifier struct{ m *measurement }

// infer finds the class whose emulation lies nearest to the engine's numbers, from a few rows of each equation,
// unless the dump says its class. Where an equation spans a whole layer, roundings hide each other, so infer asks
// for each part again, given the other parts.
func (r classifier) infer() (class, error) {
	said := r.m.declared
	c := class{cmp.Or(said.activations, "f64"), cmp.Or(said.kv, store(said.activations)), said.gelu}
	if c.kv == "f32" {
		c.kv = "f64" // no coarser than the values read
	}
	if c.gelu == string(round.Exact) {
		c.gelu = ""
	}
	for range maxRounds {
		was := c
		for _, infer := range []func(*class) error{r.inferActivations, r.inferKV, r.inferGELU} {
			if err := infer(&c); err != nil {
				return c, err
			}
		}
		if c == was || !r.areMingled(graph.Linear) && !r.areMingled(graph.Attention) {
			break
		}
	}
	if err := r.inferTogether(&c); err != nil || c.activations != "f64" {
		return c, err
	}
	fine, err := r.isExact(c)
	if fine && err == nil {
		fine, err = r.areExact(c)
	}
	if !fine && err == nil {
		c.activations = "f32"
		if c.kv == "f64" {
			c.kv = "f32"
		}
	}
	return c, err
}

// classes lists an engine's possible classes, the finest first.
var classes = []string{"f64", "i16_32", "i16_32!", "f16", "bf16", "q8~", "q8", "q8_256", "q8_32"}

// finerClasses is the number of logitClasses with no more rounding than float32's.
const finerClasses = 3

// logitClasses are the classes tried for logits. Of the coarse classes q8 comes first: engines of quantized files
// have it, and others only come as near by chance.
var logitClasses = []class{{"f64", "f64", ""}, {"f32", "f64", ""}, {"f32", "f16", ""},
	{"f32", "f64", string(round.F16Table)},
	{"i16_32", "f16", ""}, {"q8~", "f64", ""}, {"q8~", "f64", string(round.F16Table)}, {"q8", "f64", ""},
	{"i16_32", "f64", ""}, {"f16", "f16", ""}, {"bf16", "bf16", ""}}

func (r classifier) inferActivations(c *class) (err error) {
	said := r.m.declared.activations
	list := classes
	switch said {
	case "":
	case "f64", "f32", "f16", "bf16":
		return nil
	default:
		list = []string{said}
		// q8 has no form of its own, so that everywhere would be nowhere
		if s := said + everywhere; slices.Contains(classes, s) {
			list = append(list, s)
		}
	}
	kept := func(name string) string {
		if r.m.declared.kv == "" && (store(name) != "f64" || store(c.activations) != "f64") {
			return store(name)
		}
		return c.kv
	}
	var all []class
	for _, name := range list {
		all = append(all, class{name, kept(name), c.gelu})
	}
	*c, err = r.nearest(all, nil)
	return err
}

func (r classifier) inferKV(c *class) (err error) {
	if r.m.declared.kv == "" {
		a, gelu := c.activations, c.gelu
		all := []class{{a, store(a), gelu}, {a, "f16", gelu}, {a, "bf16", gelu}}
		if *c, err = r.nearest(all, keepers); err != nil {
			return err
		}
		// Fewer bits are so coarse that a fault may look like them: they have to be much nearer.
		all = []class{*c}
		for _, f := range round.KV[4:] {
			all = append(all, class{a, string(f), gelu})
		}
		*c, err = r.nearestBy(muchNearer, all, keepers)
	}
	return err
}

// inferTogether finds roundings of several kinds together, where no single kind brings an engine nearer that is not
// as near as float32 would be. An engine no class brings nearer, and that keeps values in 16 bits, computes in
// 16 bits: where exactly it rounds is unknown.
func (r classifier) inferTogether(c *class) error {
	if !r.areMingled(graph.Linear) || c.isCoarse() || c.kv != "f64" || c.gelu != "" || r.m.declared != (class{}) {
		return nil
	}
	single := class{"f32", "f64", ""}
	// Values in 16 bits may be so because the engine computes so: the arms of stored values stay out.
	near, err := r.lieWithin(excess, r.products(), simulate(r.m.dump, class{}, nil, single.center(), single.arms()))
	if near || err != nil {
		return err
	}
	var all []class
	for _, a := range classes {
		for _, kv := range []string{"f64", "f16", "bf16"} {
			for _, gelu := range []string{"", string(round.F16Table)} {
				if gelu == "" || r.m.dump.hasGELU() {
					all = append(all, class{a, kv, gelu})
				}
			}
		}
	}
	*c, err = r.nearest(all, nil)
	if f := r.stored(); *c == all[0] && f != "" {
		*c = class{f, f, ""}
	}
	return err
}

// stored returns the form in 16 bits the values of all prompts have, "" if they have none.
func (r classifier) stored() string {
	for _, f := range []string{"f16", "bf16"} {
		step := class{activations: f}.step()
		if !slices.ContainsFunc(r.m.dump.prompts, func(p *prompt) bool { return p.tapped && p.step != step }) {
			return f
		}
	}
	return ""
}

func (r classifier) inferGELU(c *class) (err error) {
	if r.m.declared.gelu == "" && r.m.dump.hasGELU() {
		*c, err = r.nearest([]class{{c.activations, c.kv, ""}, {c.activations, c.kv, string(round.F16Table)}},
			activators)
	}
	return err
}

// coarser returns the measurement by another class where there are only logits. The engine may round more than the
// class that lies nearest, if that explains the logits and does not bring the logits nearer than such an engine
// would come. An engine of a class that is not emulated to the bit is no nearer to its emulation than to float64.
func (r classifier) coarser() (*measurement, error) {
	if !r.m.dump.blackBox || r.m.declared.activations != "" || !r.m.eqs[0].isFlagged() {
		return r.m, nil
	}
	if subtle, err := r.isSubtle(); subtle || err != nil {
		return r.m, err
	}
	was := r.m.engine.class
	for i, c := range append(slices.Clone(logitClasses[finerClasses:]), was) {
		x := r.m.withEngine(newEngine(r.m.dump, c, nil)).clone()
		if err := x.check(x.eqs); err != nil {
			return nil, err
		}
		var near []float64
		for _, e := range x.eqs[0].errors {
			near = append(near, e.ratio())
		}
		if !x.eqs[0].isFlagged() && median(near) > tooNear || i == len(logitClasses)-finerClasses {
			return x, nil
		}
	}
	return r.m, nil
}

// isSubtle reports whether another activation in all layers explains the logits to the rounding of the class that
// lies nearest. GELU with another constant, or by erf, is as far off as rounding to 16 bits, whose floor would hide
// the activation.
func (r classifier) isSubtle() (bool, error) {
	eq := r.m.eqs[0]
	all, err := propose(r.m, eq)
	if err != nil {
		return false, err
	}
	for _, h := range all {
		if h.Cause != "activation" && h.Cause != "gelu_constant" {
			continue
		}
		for _, x := range h.Guesses() {
			if errors, err := r.m.remeasure(eq, nil, x.Edits, screen(eq)); err != nil ||
				worst(errors).ratio() > borderline {
				continue
			}
			if _, ok, err := r.m.holds(eq, nil, x.Edits); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, r.m.dump.ctx.Err()
}

// store returns the form in which a class keeps keys and values, if the dump does not say the form.
func store(activations string) string {
	if activations == "f16" || activations == "bf16" {
		return activations
	}
	return "f64"
}

// keepers are the operations that read keys and values, and activators the operations that compute GELU.
var (
	keepers    = []graph.Op{graph.Attention}
	activators = []graph.Op{graph.GLU, graph.Act, graph.Experts}
)

// spans reports whether eq has one of some operations in it.
func spans(eq *equation, ops ...graph.Op) bool {
	return slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return slices.Contains(ops, n.Op) })
}

// areMingled reports whether most equations with some of the operations have many other operations as well. Then
// roundings cannot be told apart.
func (r classifier) areMingled(ops ...graph.Op) bool {
	few, many := 0, 0
	for _, eq := range r.m.eqs {
		switch {
		case !spans(eq, ops...):
		case len(eq.span) <= small:
			few++
		default:
			many++
		}
	}
	return many > few
}

// nearest returns the first of the classes that lie nearest: a later one has to be nearer by a sixth. Of each
// equation that has one of the operations, any if there are none, the median row counts, and of these rows the
// geometric mean by operation, so that faults in some do not decide.
func (r classifier) nearest(all []class, ops []graph.Op) (class, error) {
	return r.nearestBy(nearer, all, ops)
}

// nearestBy is nearest where the first of the classes is taken unless a later one is nearer by a base-2 logarithm, and
// of the later ones the nearest.
func (r classifier) nearestBy(by float64, all []class, ops []graph.Op) (class, error) {
	long := r.areMingled(graph.Linear)
	if ops != nil {
		long = r.areMingled(ops...)
	}
	first, best, least, lies := by, all[0], math.Inf(1), map[*equation]float64{}
	for _, c := range all {
		m := r.m.withEngine(simulate(r.m.dump, class{}, nil, c.center(), nil))
		mids, byOp := map[*equation]float64{}, map[graph.Op][]float64{}
		for _, eq := range r.m.eqs {
			if !long && len(eq.span) > small || ops != nil && !spans(eq, ops...) || !r.judges(eq) {
				continue
			}
			err := m.middle(eq, noFloors, func(x rowError) float64 { return max(x.residual, 1e-9) }, func(mid float64) {
				mids[eq] = math.Log2(mid)
				byOp[eq.target.Op] = append(byOp[eq.target.Op], mids[eq])
			})
			if err != nil {
				return best, err
			}
		}
		var sum float64
		for _, all := range byOp {
			sum += median(all)
		}
		score := sum / float64(max(len(byOp), 1))
		if len(byOp) > 0 && (score < least-by || score <= least && areFinerHere(mids, lies)) {
			best, least, lies, by = c, score, mids, nearer
			if c == all[0] {
				by = first
			}
		}
	}
	return best, nil
}

// areFinerHere reports whether the few equations that two classes tell apart lie much nearer by the first. The router
// of a quantized model is such an equation: its weights are not quantized, so that an engine may round its activations
// or not.
func areFinerHere(first, second map[*equation]float64) bool {
	var apart []float64
	for eq, lie := range first {
		if d := lie - second[eq]; math.Abs(d) > nearer {
			apart = append(apart, d)
		}
	}
	return len(apart) > 0 && median(apart) < -muchNearer
}

// judges reports whether the class is inferred from eq. Of a deep model six layers are enough, since all layers
// round alike.
func (r classifier) judges(eq *equation) bool {
	every := (layers(r.m.dump.graph) + maxJudged - 1) / maxJudged
	return layers(r.m.dump.graph) <= 2*maxJudged || eq.target.Layer < 0 || eq.target.Layer%every == 0
}

// isExact reports whether the engine is as near as float64 values that were rounded once to float32 for the dump,
// in the median of the equations. c names what else the engine rounds. Since c's rounding to 16 bits hides
// float32's sums, equations without rounding decide, if there are any.
func (r classifier) isExact(c class) (bool, error) {
	arms := c.sumArms()
	if r.areMingled(graph.Linear) { // an arm rounds as the many operations of a float32 engine do
		for _, n := range arms {
			n.Jitter, n.Given = 0, n.Jitter
		}
	}
	all := r.products()
	if clear := slices.DeleteFunc(slices.Clone(all), c.hides); len(clear) > 0 {
		all = clear
	}
	return r.lieWithin(1, all, simulate(r.m.dump, class{}, nil, c.center(), arms).addStored(c))
}

// areExact reports whether no product has float32's rounding, among others of float64's: NumPy mixes both.
func (r classifier) areExact(c class) (bool, error) {
	as := func(c class) *measurement {
		return r.m.withEngine(simulate(r.m.dump, c, nil, c.center(), c.arms()).addStored(c))
	}
	exact, single := as(c), as(class{"f32", c.kv, c.gelu})
	for _, eq := range r.products() {
		errors, err := exact.measure(eq, nil, nil, r.m.sites(eq), nil)
		if err == nil && worst(errors).ratio() > excess {
			errors, err = single.measure(eq, nil, nil, sitesOf(errors), nil)
			if err == nil && worst(errors).ratio() <= excess {
				return false, nil
			}
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// hides reports whether c rounds keys and values or GELU to 16 bits in an equation.
func (c class) hides(eq *equation) bool {
	return c.gelu != "" && spans(eq, activators...) || c.roundsKV() && spans(eq, keepers...)
}

// products returns the equations with sums of products, which show how sums round.
func (r classifier) products() []*equation {
	return slices.DeleteFunc(slices.Clone(r.m.eqs), func(eq *equation) bool {
		return !spans(eq, graph.Linear) || !r.judges(eq)
	})
}

// lieWithin reports whether equations lie within so many times their floors, in the median of a few rows of each
// equation and of all equations.
func (r classifier) lieWithin(times float64, eqs []*equation, e *engine) (bool, error) {
	m := r.m.withEngine(e)
	var ratios []float64
	for _, eq := range eqs {
		measured := func([]site) map[site]float64 { return nil }
		err := m.middle(eq, measured, rowError.ratio, func(mid float64) { ratios = append(ratios, mid) })
		if err != nil {
			return false, err
		}
	}
	return len(ratios) == 0 || median(ratios) <= times, nil
}

// middle calls use with the median that few rows of eq have, unless none tells. Rows of NaN tell nothing.
func (m *measurement) middle(eq *equation, floors func([]site) map[site]float64, of func(rowError) float64,
	use func(mid float64)) error {
	sites := m.sites(eq)
	sites = sites[:min(len(sites), maxSites)]
	errors, err := m.measure(eq, nil, nil, sites, floors(sites))
	if err != nil {
		return err
	}
	var all []float64
	for _, x := range errors {
		if v := of(x); !x.empty && v == v {
			all = append(all, v)
		}
	}
	if len(all) > 0 {
		use(median(all))
	}
	return nil
}
