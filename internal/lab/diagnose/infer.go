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

// infer finds the class whose emulation lies nearest to the engine's numbers, from a
// few rows of each equation, unless the dump says it. Where an equation spans a whole layer
// one rounding hides another, so that what each is has to be asked again, given the others.
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
		if c == was || !r.mingled(graph.Linear) && !r.mingled(graph.Attention) {
			break
		}
	}
	if err := r.inferTogether(&c); err != nil || c.activations != "f64" {
		return c, err
	}
	fine, err := r.exact(c)
	if !fine && err == nil {
		c.activations = "f32"
		if c.kv == "f64" {
			c.kv = "f32"
		}
	}
	return c, err
}

// classes are what an engine may be, from the finest on.
var classes = []string{"f64", "i16_32", "i16_32!", "f16", "bf16", "q8~", "q8", "q8_256", "q8_32"}

// finerClasses is how many of logitClasses round no more than float32 does.
const finerClasses = 3

// logitClasses are the classes tried for logits. Of the coarse classes q8 comes first: engines of quantized files have it,
// and others only come as near by chance.
var logitClasses = []class{{"f64", "f64", ""}, {"f32", "f64", ""}, {"f32", "f16", ""}, {"f32", "f64", string(round.F16Table)},
	{"i16_32", "f16", ""}, {"q8~", "f64", ""}, {"q8~", "f64", string(round.F16Table)}, {"q8", "f64", ""}, {"i16_32", "f64", ""}, {"f16", "f16", ""}, {"bf16", "bf16", ""}}

func (r classifier) inferActivations(c *class) (err error) {
	said := r.m.declared.activations
	list := classes
	switch said {
	case "":
	case "f64", "f32", "f16", "bf16":
		return nil
	default:
		list = []string{said}
		if s := said + everywhere; slices.Contains(classes, s) { // q8 has no form of its own, so that everywhere would be nowhere
			list = append(list, s)
		}
	}
	kept := func(name string) string {
		if r.m.declared.kv == "" && (store(name) != "f64" || store(c.activations) != "f64") {
			return store(name)
		}
		return c.kv
	}
	best, err := r.nearest(list, nil, r.mingled(graph.Linear), func(name string) class { return class{name, kept(name), c.gelu} })
	c.activations, c.kv = best, kept(best)
	return err
}

func (r classifier) inferKV(c *class) (err error) {
	if r.m.declared.kv == "" {
		ops := []graph.Op{graph.Attention}
		c.kv, err = r.nearest([]string{store(c.activations), "f16", "bf16"}, ops, r.mingled(ops...), func(name string) class { return class{c.activations, name, c.gelu} })
	}
	return err
}

// inferTogether finds roundings of several kinds together, where none alone brings an engine
// nearer that is not as near as float32 is. One that none brings nearer, and that keeps values
// in 16 bits, computes in these: where exactly it rounds is its own.
func (r classifier) inferTogether(c *class) error {
	if !r.mingled(graph.Linear) || c.coarse() || c.kv != "f64" || c.gelu != "" || r.m.declared != (class{}) {
		return nil
	}
	single := class{"f32", "f64", ""}
	// Values in 16 bits may be so because the engine computes so: the arms of stored values stay out.
	near, err := r.lieWithin(excess, r.products(), simulate(r.m.dump, class{}, nil, single.center(), single.arms()))
	if near || err != nil {
		return err
	}
	all := map[string]class{}
	var names []string
	for _, a := range classes {
		for _, kv := range []string{"f64", "f16", "bf16"} {
			for _, gelu := range []string{"", string(round.F16Table)} {
				if name := a + " " + kv + " " + gelu; gelu == "" || r.m.dump.hasGELU() {
					all[name] = class{a, kv, gelu}
					names = append(names, name)
				}
			}
		}
	}
	best, err := r.nearest(names, nil, true, func(name string) class { return all[name] })
	*c = all[best]
	if f := r.stored(); best == names[0] && f != "" {
		*c = class{f, f, ""}
	}
	return err
}

// stored is the form in 16 bits that the values of all prompts have, "" if there is none.
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
		ops := []graph.Op{graph.GLU, graph.Act, graph.Experts}
		c.gelu, err = r.nearest([]string{"", string(round.F16Table)}, ops, r.mingled(ops...), func(name string) class { return class{c.activations, c.kv, name} })
	}
	return err
}

// coarser returns the measurement by another class for logits by themselves: they may be of an engine that rounds more than
// the class that lies nearest, if that explains them and does not make them nearer than such an engine would come. An
// engine of a class that is not emulated to the bit is no nearer to its emulation than to float64.
func (r classifier) coarser() (*measurement, error) {
	if !r.m.dump.blackBox || r.m.declared.activations != "" || !r.m.eqs[0].flagged() {
		return r.m, nil
	}
	if subtle, err := r.subtle(); subtle || err != nil {
		return r.m, err
	}
	was := r.m.engine.class
	for i, c := range append(slices.Clone(logitClasses[finerClasses:]), was) {
		x := r.m.as(newEngine(r.m.dump, c, nil)).clone()
		if err := x.check(x.eqs); err != nil {
			return nil, err
		}
		var near []float64
		for _, e := range x.eqs[0].errors {
			near = append(near, e.ratio())
		}
		if !x.eqs[0].flagged() && median(near) > tooNear || i == len(logitClasses)-finerClasses {
			return x, nil
		}
	}
	return r.m, nil
}

// subtle reports whether another activation in all layers explains the logits to the rounding of the class that lies
// nearest. GELU with another constant, or by erf, is as far off as rounding to 16 bits, whose floor would hide it.
func (r classifier) subtle() (bool, error) {
	eq := r.m.eqs[0]
	all, err := propose(r.m, eq)
	if err != nil {
		return false, err
	}
	for _, h := range all {
		if h.cause != "activation" && h.cause != "gelu_constant" {
			continue
		}
		for _, x := range h.values() {
			if errors, err := r.m.at(eq, nil, x.edits, screen(eq)); err != nil || worst(errors).ratio() > borderline {
				continue
			}
			if _, ok, err := r.m.holds(eq, nil, x.edits); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, r.m.dump.ctx.Err()
}

// store is how a class keeps keys and values, unless it is said.
func store(activations string) string {
	if activations == "f16" || activations == "bf16" {
		return activations
	}
	return "f64"
}

// spans reports whether eq has one of some operations in it.
func spans(eq *equation, ops ...graph.Op) bool {
	return slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return slices.Contains(ops, n.Op) })
}

// mingled reports whether most equations that have one of some operations have many others,
// too, so that their roundings cannot be told one by one.
func (r classifier) mingled(ops ...graph.Op) bool {
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

// nearest is the first of the names whose class lies nearest: a later one has to be
// nearer by a sixth. Of each equation that has one of the operations, all if there are none, the
// median row counts, and of those the geometric mean by operation, so that faults in some do not decide.
func (r classifier) nearest(names []string, ops []graph.Op, long bool, make func(string) class) (string, error) {
	best, least := names[0], math.Inf(1)
	for _, name := range names {
		m := r.m.as(simulate(r.m.dump, class{}, nil, make(name).center(), nil))
		byOp := map[graph.Op][]float64{}
		for _, eq := range r.m.eqs {
			if !long && len(eq.span) > small || ops != nil && !spans(eq, ops...) || !r.judges(eq) {
				continue
			}
			sites := r.m.sites(eq)
			sites = sites[:min(len(sites), maxSites)]
			errors, err := m.measure(eq, nil, nil, sites, noFloors(sites))
			if err != nil {
				return "", err
			}
			var all []float64
			for _, x := range errors {
				if x.residual == x.residual && !x.empty {
					all = append(all, max(x.residual, 1e-9))
				}
			}
			if len(all) > 0 {
				byOp[eq.target.Op] = append(byOp[eq.target.Op], median(all))
			}
		}
		var sum float64
		for _, all := range byOp {
			sum += math.Log2(median(all))
		}
		if score := sum / float64(max(len(byOp), 1)); len(byOp) > 0 && score < least-nearer {
			best, least = name, score
		}
	}
	return best, nil
}

// judges reports whether eq is one that the class is told from: of a deep model those of
// six layers are, since all round alike.
func (r classifier) judges(eq *equation) bool {
	every := (layers(r.m.dump.graph) + maxJudged - 1) / maxJudged
	return layers(r.m.dump.graph) <= 2*maxJudged || eq.target.Layer < 0 || eq.target.Layer%every == 0
}

// exact reports whether the engine is as near as float64 values that were rounded
// once to float32 for the dump, c being what else it rounds: in the median of the equations.
// What c rounds to 16 bits hides float32's sums. So the equations without that tell, if there are any.
func (r classifier) exact(c class) (bool, error) {
	arms := c.own()
	if r.mingled(graph.Linear) { // where the roundings of a float32 engine's many operations are those of an arm
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

// hides reports whether c rounds keys and values or GELU to 16 bits in an equation.
func (c class) hides(eq *equation) bool {
	return c.gelu != "" && spans(eq, graph.GLU, graph.Act, graph.Experts) || (c.kv == "f16" || c.kv == "bf16") && spans(eq, graph.Attention)
}

// products are the equations with sums of products, which show how sums round.
func (r classifier) products() []*equation {
	return slices.DeleteFunc(slices.Clone(r.m.eqs), func(eq *equation) bool { return !spans(eq, graph.Linear) || !r.judges(eq) })
}

// lieWithin reports whether equations lie within so many times their floors, in the median of a few
// rows of each and of all.
func (r classifier) lieWithin(times float64, eqs []*equation, e *engine) (bool, error) {
	m := r.m.as(e)
	var ratios []float64
	for _, eq := range eqs {
		sites := r.m.sites(eq)
		sites = sites[:min(len(sites), maxSites)]
		errors, err := m.measure(eq, nil, nil, sites, nil)
		if err != nil {
			return false, err
		}
		var all []float64
		for _, x := range errors {
			if !x.empty {
				all = append(all, x.ratio())
			}
		}
		if len(all) > 0 {
			ratios = append(ratios, median(all))
		}
	}
	return len(ratios) == 0 || median(ratios) <= times, nil
}
