package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// class is an engine's way of rounding, in the words of a dump's numerics.
type class struct {
	activations string // one of round.Activations, and perhaps everywhere or halves behind it
	kv          string // f32 f16 bf16; f64 means as they come
	gelu        string // "" or f16-table
}

func (c class) String() string {
	s := fmt.Sprintf("activations %s, keys and values %s", c.words(), c.kv)
	if c.gelu != "" {
		s += ", GELU by " + c.gelu
	}
	return s
}

// name is the class's activations in a dump's words.
func (c class) name() string { return strings.TrimRight(c.activations, everywhere+halves) }

// words is the name, or what the class does that has none.
func (c class) words() string {
	if strings.HasSuffix(c.activations, halves) {
		return "16 bits where weights have 16, else f32"
	}
	return c.name()
}

// everywhere marks activations that are rounded for float weights, too; halves those that
// are for weights in 16 bits alone, by an engine that dequantizes the others.
const everywhere, halves = "!", "~"

// center is c without chance: what an engine of that class computes, but for the
// order of its sums.
func (c class) center() *sim.Numerics {
	n := &sim.Numerics{}
	switch c.activations {
	case "f64", "f32":
	case "f16", "bf16":
		n.Store = round.Format(c.activations).Round
	default:
		f := round.Format(c.name())
		n.Input = func(row []float64, w tensor.DType) {
			switch {
			case strings.HasSuffix(c.activations, everywhere):
				f.Round(row)
			case !strings.HasSuffix(c.activations, halves) || !w.Quantized():
				f.Input(w).Round(row)
			}
		}
	}
	switch c.kv {
	case "f16", "bf16":
		n.KV = round.Format(c.kv).Round
	}
	if c.gelu == string(round.F16Table) {
		n.GELU = round.F16Table.At
	}
	return n
}

// arms are rounding as it may fall otherwise in engines of that class.
func (c class) arms() []*sim.Numerics { return append(c.own(), c.others()...) }

// own are the arms that do round as the class says.
func (c class) own() []*sim.Numerics {
	var arms []*sim.Numerics
	arm := func(order sim.Order, jitter float64) {
		n := c.center()
		n.Order, n.Jitter, n.Random = order, jitter, rand.New(rand.NewPCG(uint64(len(arms)), 7))
		arms = append(arms, n)
	}
	arm(sim.Exact, 0x1p-24)
	if c.activations == "f64" {
		arm(sim.Exact, 0x1p-24)
	} else {
		arm(sim.Forward, 0x1p-23)
		arm(sim.Backward, 0x1p-24)
		arm(sim.Lanes, 0x1p-23)
	}
	return arms
}

// others are those that leave out one of its roundings: engines of a class differ in where
// exactly they round.
func (c class) others() []*sim.Numerics {
	var arms []*sim.Numerics
	if c.gelu != "" {
		arms = append(arms, class{c.activations, c.kv, ""}.center())
	}
	if c.kv == "f16" || c.kv == "bf16" {
		arms = append(arms, class{c.activations, "f64", c.gelu}.center())
	}
	if c.coarse() {
		arms = append(arms, class{activations: "f64", kv: c.kv, gelu: c.gelu}.center())
		n := c.center()
		n.Jitter, n.Random, n.Store = c.step(), rand.New(rand.NewPCG(uint64(len(c.own())+len(arms)), 7)), nil
		arms = append(arms, n)
	}
	return arms
}

// coarse reports whether the class rounds more than float32 does.
func (c class) coarse() bool { return c.activations != "f64" && c.activations != "f32" }

// step is the largest relative error of one rounding.
func (c class) step() float64 {
	switch c.name() {
	case "bf16":
		return 0x1p-8
	case "f16":
		return 0x1p-11
	}
	return 0x1p-24
}

// classes are what an engine may be, from the finest on.
var classes = []string{"f64", "i16_32", "i16_32!", "f16", "bf16", "q8~", "q8", "q8_256", "q8_32"}

// infer finds the class whose emulation lies nearest to the engine's numbers, from a
// few rows of each equation, unless the dump says it. Where an equation spans a whole layer
// one rounding hides another, so that what each is has to be asked again, given the others.
func (r *run) infer() error {
	said := r.declared
	c := class{cmp.Or(said.activations, "f64"), cmp.Or(said.kv, store(said.activations)), said.gelu}
	if c.kv == "f32" {
		c.kv = "f64" // no coarser than what is read
	}
	if c.gelu == string(round.Exact) {
		c.gelu = ""
	}
	for range maxRounds {
		was := c
		if err := r.inferActivations(&c); err != nil {
			return err
		}
		if err := r.inferKV(&c); err != nil {
			return err
		}
		if err := r.inferGELU(&c); err != nil {
			return err
		}
		if c == was || !r.mingled(graph.Linear) && !r.mingled(graph.Attention) {
			break
		}
	}
	if err := r.inferTogether(&c); err != nil {
		return err
	}
	if c.activations == "f64" {
		fine, err := r.exact(c)
		if err != nil {
			return err
		}
		if !fine {
			c.activations = "f32"
			if c.kv == "f64" {
				c.kv = "f32"
			}
		}
	}
	r.class = c
	r.setClass(c)
	return nil
}

// maxRounds is how often the parts of a class are asked for again.
const maxRounds = 4

func (r *run) inferActivations(c *class) (err error) {
	said := r.declared.activations
	list := classes
	switch said {
	case "":
	case "f64", "f32", "f16", "bf16":
		return nil
	default:
		list = []string{said, said + everywhere}
	}
	kept := func(name string) string {
		if r.declared.kv == "" && (store(name) != "f64" || store(c.activations) != "f64") {
			return store(name)
		}
		return c.kv
	}
	best, err := r.nearest(list, nil, r.mingled(graph.Linear), func(name string) class { return class{name, kept(name), c.gelu} })
	c.activations, c.kv = best, kept(best)
	return err
}

func (r *run) inferKV(c *class) (err error) {
	if r.declared.kv == "" {
		ops := []graph.Op{graph.Attention}
		c.kv, err = r.nearest([]string{store(c.activations), "f16", "bf16"}, ops, r.mingled(ops...), func(name string) class { return class{c.activations, name, c.gelu} })
	}
	return err
}

// inferTogether finds roundings of several kinds together, where none alone brings an engine
// nearer that is not as near as float32 is. One that none brings nearer, and that keeps values
// in 16 bits, computes in these: where exactly it rounds is its own.
func (r *run) inferTogether(c *class) error {
	if !r.mingled(graph.Linear) || c.coarse() || c.kv != "f64" || c.gelu != "" || r.declared != (class{}) {
		return nil
	}
	single := class{"f32", "f64", ""}
	r.setCenter(single)
	r.setArms(single.arms()) // values in 16 bits may be so because the engine computes so
	near, err := r.lieWithin(excess)
	if near || err != nil {
		return err
	}
	all := map[string]class{}
	var names []string
	for _, a := range classes {
		for _, kv := range []string{"f64", "f16", "bf16"} {
			for _, gelu := range []string{"", string(round.F16Table)} {
				if name := a + " " + kv + " " + gelu; gelu == "" || r.hasGELU() {
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
func (r *run) stored() string {
	for _, f := range []string{"f16", "bf16"} {
		step := class{activations: f}.step()
		if !slices.ContainsFunc(r.prompts, func(p *prompt) bool { return p.tapped && p.step != step }) {
			return f
		}
	}
	return ""
}

func (r *run) inferGELU(c *class) (err error) {
	if r.declared.gelu == "" && r.hasGELU() {
		ops := []graph.Op{graph.GLU, graph.Experts}
		c.gelu, err = r.nearest([]string{"", string(round.F16Table)}, ops, r.mingled(ops...), func(name string) class { return class{c.activations, c.kv, name} })
	}
	return err
}

// coarser takes logits by themselves for those of an engine that rounds more than the
// class that lies nearest, if that explains them and does not make them nearer than such an
// engine would come: one of a class that is not emulated to the bit is no nearer to its
// emulation than to float64.
func (r *run) coarser() error {
	if !r.blackBox || r.declared.activations != "" || !r.eqs[0].flagged() {
		return nil
	}
	was := r.class
	for _, c := range logitClasses[3:] {
		r.class = c
		r.setClass(c)
		if err := r.check(r.eqs); err != nil {
			return err
		}
		var near []float64
		for _, x := range r.eqs[0].errors {
			near = append(near, x.ratio())
		}
		if !r.eqs[0].flagged() && median(near) > 0.1 {
			return nil
		}
	}
	r.class = was
	r.setClass(was)
	return r.check(r.eqs)
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
func (r *run) mingled(ops ...graph.Op) bool {
	few, many := 0, 0
	for _, eq := range r.eqs {
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

func (r *run) hasGELU() bool {
	for _, n := range r.g.Nodes {
		if a, ok := n.Attr.(graph.ActAttr); ok && a.Act == graph.GELUTanh {
			return true
		}
	}
	return false
}

// nearest is the first of the names whose class lies nearest: a later one has to be
// nearer by a sixth. Of each equation that has one of the operations, all if there are none, the
// median row counts, and of those the geometric mean by operation, so that faults in some do not decide.
func (r *run) nearest(names []string, ops []graph.Op, long bool, make func(string) class) (string, error) {
	best, least := names[0], math.Inf(1)
	for _, name := range names {
		r.setCenter(make(name))
		byOp := map[graph.Op][]float64{}
		for _, eq := range r.eqs {
			if !long && len(eq.span) > small || ops != nil && !spans(eq, ops...) || !r.judges(eq) {
				continue
			}
			sites := r.sites(eq)
			sites = sites[:min(len(sites), 12)]
			errors, err := r.measure(eq, nil, nil, sites, noFloors(sites))
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

// nearer is the base-2 logarithm of how much nearer a later class has to be, the mean over operations.
const nearer = 0.25

// small is the number of nodes of an equation that tells one class from another: the
// errors of more run into each other.
const small = 12

// judges reports whether eq is one that the class is told from: of a deep model those of
// six layers are, since all round alike.
func (r *run) judges(eq *equation) bool {
	const most = 6
	every := (r.out.Layers + most - 1) / most
	return r.out.Layers <= 2*most || eq.target.Layer < 0 || eq.target.Layer%every == 0
}

func noFloors(sites []site) map[site]float64 {
	floors := map[site]float64{}
	for _, s := range sites {
		floors[s] = 1
	}
	return floors
}

// exact reports whether the engine is as near as float64 values that were rounded
// once to float32 for the dump, c being what else it rounds: in the median of the equations.
func (r *run) exact(c class) (bool, error) {
	arms := c.own()
	if r.mingled(graph.Linear) { // where the roundings of a float32 engine's many operations are those of an arm
		for _, n := range arms {
			n.Jitter, n.Given = 0, n.Jitter
		}
	}
	r.setCenter(c)
	r.setArms(arms)
	r.addStored(c)
	return r.lieWithin(1)
}

// lieWithin reports whether the equations with sums of products, which show how sums round,
// lie within so many times their floors, in the median of a few rows of each and of all.
func (r *run) lieWithin(times float64) (bool, error) {
	var ratios []float64
	for _, eq := range r.eqs {
		if !spans(eq, graph.Linear) || !r.judges(eq) {
			continue
		}
		sites := r.sites(eq)
		sites = sites[:min(len(sites), 12)]
		errors, err := r.measure(eq, nil, nil, sites, nil)
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

// setClass makes the evaluations of all prompts those of an engine of that class.
func (r *run) setClass(c class) {
	r.setCenter(c)
	r.setArms(c.arms())
	r.addStored(c)
}

func (r *run) setCenter(c class) {
	for _, p := range r.prompts {
		p.center = r.model.Eval(p.IDs, p.known, c.center()).With(r.edits)
	}
}

func (r *run) setArms(arms []*sim.Numerics) {
	for _, p := range r.prompts {
		p.arms = nil
		for _, n := range arms {
			p.arms = append(p.arms, r.model.Eval(p.IDs, p.known, n).With(r.edits))
		}
	}
}

// addStored adds the arms that values stored in 16 bits ask for, which a finer class may have.
func (r *run) addStored(c class) {
	for _, p := range r.prompts {
		if p.step <= 0x1p-24 || c.step() >= p.step {
			continue
		}
		for seed := range uint64(2) {
			n := c.center()
			n.Jitter, n.Random = p.step, rand.New(rand.NewPCG(seed, 8))
			p.arms = append(p.arms, r.model.Eval(p.IDs, p.known, n).With(r.edits))
		}
	}
}
