package diagnose

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/floats"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/cause"
	"github.com/karat-run/karat/internal/lab/sim"
)

// opNames are the operations as findings name them.
var opNames = map[graph.Op]string{graph.Embed: "Embed", graph.Linear: "Linear", graph.RMSNorm: "RMSNorm", graph.RoPE: "RoPE", graph.StoreKV: "StoreKV",
	graph.Attention: "Attention", graph.Add: "Add", graph.Mul: "Mul", graph.Scale: "Scale", graph.GLU: "GLU", graph.Act: "Act", graph.Softcap: "Softcap",
	graph.Rows: "Rows", graph.View: "View", graph.Route: "Route", graph.Experts: "Experts"}

func opName(n *graph.Node) string { return opNames[n.Op] }

// op is the operation that a hypothesis is about.
func (h *hypothesis) op() string {
	switch c, _ := cause.Find(h.cause); {
	case c.Op == "" || c.Kind == cause.Weights || slices.Contains([]string{"activation", "gate_up_swapped", "ple_scale"}, h.cause):
		return opName(h.node)
	default:
		return c.Op
	}
}

func layersOf(n *graph.Node) []int {
	if n.Layer < 0 {
		return []int{}
	}
	return []int{n.Layer}
}

func (r *run) names(nodes []*graph.Node) []string {
	names := []string{}
	for _, n := range nodes {
		names = append(names, r.tapName(n))
	}
	return names
}

// unknown says of an equation that it does not hold, and nothing explains why.
func (r *run) unknown(eq *equation) {
	eq.given = true
	n := r.suspect(eq)
	d := detail{"op": opName(n), "role": role(n)}
	if heads := r.wrongHeads(eq); n == eq.target && heads != "" {
		d["heads"] = heads
	}
	h := &hypothesis{cause: "unknown", node: n, detail: d, computed: "computes something that is on no list" + r.where(eq), eqs: []*equation{eq}, edits: sim.Edits{}}
	for _, x := range r.accepted {
		if x.cause == "unknown" && x.node == n {
			x.eqs = append(x.eqs, eq)
			return
		}
	}
	r.accepted = append(r.accepted, h)
}

// where is the rows and features at which an equation fails, if not at all.
func (r *run) where(eq *equation) string {
	var first, last, bad int
	for i, x := range eq.errors {
		if x.ratio() > excess {
			if bad == 0 {
				first = x.row
			}
			bad, last = bad+1, eq.errors[i].row
		}
	}
	s := fmt.Sprintf(" at %d of %d positions", bad, len(eq.errors))
	if bad < len(eq.errors) {
		s += fmt.Sprintf(", from %d to %d", first, last)
	}
	if slices.ContainsFunc(eq.errors, func(x rowError) bool { return math.IsNaN(x.residual - x.residual) }) {
		s += ", with NaN or infinities"
	}
	return s + r.features(eq)
}

// wrongHeads lists the heads of attention that are wrong at any row, "" if all are: what is wrong
// in other heads is another fault.
func (r *run) wrongHeads(eq *equation) string {
	if eq.target.Op != graph.Attention {
		return ""
	}
	count := eq.target.In[0].Shape[0]
	dim := eq.target.Shape.Size() / count
	wrong := make([]bool, count)
	for _, x := range eq.errors {
		p := r.prompts[x.prompt]
		want, err := p.center.Compute(eq.target, []int{x.row})
		if err != nil || x.ratio() <= excess {
			continue
		}
		limit, got := excess*x.floor*floats.Norm(want, 2), p.read(eq.target, []int{x.row})
		for h := range wrong {
			wrong[h] = wrong[h] || !(floats.Distance(got[h*dim:(h+1)*dim], want[h*dim:(h+1)*dim], 2) <= limit)
		}
	}
	var heads []string
	for h, bad := range wrong {
		if bad {
			heads = append(heads, fmt.Sprint(h))
		}
	}
	if len(heads) == count {
		return ""
	}
	return strings.Join(heads, ", ")
}

// features is which features of an equation's target are wrong, if few are.
func (r *run) features(eq *equation) string {
	w := worst(eq.errors)
	p, n := r.prompts[w.prompt], eq.target
	want, err := p.center.Compute(n, []int{w.row})
	if err != nil {
		return ""
	}
	got := p.read(n, []int{w.row})
	var norm float64
	for _, v := range want {
		norm += v * v
	}
	limit := excess * w.floor * math.Sqrt(norm)
	var bad []int
	for i := range got {
		if math.Abs(got[i]-want[i]) > limit {
			bad = append(bad, i)
		}
	}
	if len(bad) == 0 || len(bad) > len(got)/2 {
		return ""
	}
	if len(bad) == 1 {
		return fmt.Sprintf(", in feature %d alone", bad[0])
	}
	return fmt.Sprintf(", in %d of %d features (%d to %d)", len(bad), len(got), bad[0], bad[len(bad)-1])
}

// group makes findings of the accepted hypotheses: one for all layers that have it.
func (r *run) group() []Finding {
	var findings []Finding
	var firsts []*hypothesis
	for _, h := range r.accepted {
		at := slices.IndexFunc(firsts, func(x *hypothesis) bool {
			return x.cause == h.cause && x.op() == h.op() && (h.cause != "unknown" || same(x, h))
		})
		if at < 0 {
			firsts = append(firsts, h)
			findings = append(findings, r.finding(h))
			continue
		}
		f := &findings[at]
		f.Layers = union(f.Layers, r.hypothesisLayers(h))
		if !same(firsts[at], h) {
			f.Detail = maps.Clone(f.Detail)
			f.Detail[h.node.Name] = h.computed
		}
		f.Nodes = append(f.Nodes, h.node.Name)
	}
	return findings
}

func (r *run) hypothesisLayers(h *hypothesis) []int {
	if h.nodes == nil {
		return layersOf(h.node)
	}
	layers := []int{}
	for _, n := range h.nodes {
		layers = union(layers, layersOf(n))
	}
	return layers
}

func union(a, b []int) []int {
	a = append(slices.Clone(a), b...)
	slices.Sort(a)
	return slices.Compact(a)
}

func (r *run) finding(h *hypothesis) Finding {
	eq := h.eqs[0]
	before := eq.before
	if before == nil {
		before = eq.errors
	}
	w := worst(before)
	f := Finding{Cause: h.cause, Op: h.op(), Layers: r.hypothesisLayers(h), Tap: eq.tap, From: r.names(eq.sources), Detail: h.detail, Nodes: []string{h.node.Name},
		Residual: lab.Number(w.residual), Floor: lab.Number(w.floor), Computed: h.computed}
	if c, ok := cause.Find(h.cause); ok {
		f.Fix = c.Fix
	}
	for _, x := range h.also {
		if !slices.Contains(f.Also, x.cause) && x.cause != h.cause {
			f.Also = append(f.Also, x.cause)
		}
	}
	f.Evidence = fmt.Sprintf("%s lies %s from what the engine's own values before it give, %s times the floor; ", eq.tap, lab.Digits(w.residual), lab.Digits(w.ratio()))
	if h.cause == "unknown" {
		f.Evidence += "no cause of the catalogue explains it"
		f.Fix = "Compare this operation alone, on the same inputs, with the model's definition."
	} else {
		f.Evidence += "with this cause it lies " + lab.Digits(worst(eq.errors).residual)
	}
	return f
}

// numericFindings are the classes of rounding that the dump did not declare.
func (r *run) numericFindings() []Finding {
	var all []Finding
	add := func(id, op, what string, d detail) {
		f := Finding{Cause: id, Op: op, Layers: []int{}, From: []string{}, Nodes: []string{}, Detail: d, Computed: what}
		for i := range r.out.Layers {
			f.Layers = append(f.Layers, i)
		}
		for _, eq := range r.eqs {
			if eq.target.Layer >= 0 && (opName(eq.target) == op || slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return opName(n) == op })) {
				w := worst(eq.errors)
				f.Tap, f.From, f.Residual, f.Floor = eq.tap, r.names(eq.sources), lab.Number(w.residual), lab.Number(w.floor)
				break
			}
		}
		f.Evidence = "all equations hold within the floors of this class, and not within those of a finer one"
		if c, ok := cause.Find(id); ok {
			f.Fix = c.Fix
		}
		all = append(all, f)
	}
	c, said := r.class, r.declared
	if c.coarse() && said.activations == "" {
		add("numeric_activations", "Linear", "rounds what products read, or all it keeps, to "+c.words(), detail{"activations": c.words()})
	}
	if c.activations == "f32" && said.activations == "" {
		add("numeric_accumulation", "Linear", "computes in float32", detail{"activations": "f32"})
	}
	if said.kv == "" && (c.kv == "f16" || c.kv == "bf16") && c.kv != c.activations {
		add("numeric_kv", "StoreKV", "keeps keys and values in "+c.kv, detail{"kv": c.kv})
	}
	if said.gelu == "" && c.gelu != "" {
		add("numeric_gelu", "GLU", "looks GELU up in a table of half precision", detail{"gelu": c.gelu})
	}
	return all
}

// kind is the verdict that a cause leads to.
func kind(id string) Verdict {
	c, ok := cause.Find(id)
	if !ok {
		return Structural
	}
	switch c.Kind {
	case cause.Input:
		return Input
	case cause.Weights:
		return Weights
	case cause.Instrument:
		return Instrument
	case cause.Numeric:
		return Numeric
	}
	return Structural
}

// order is the order of accusation.
var order = []Verdict{Instrument, Input, Weights, Structural, Reference, Unexplained, Sensitivity, Numeric, Clean}

// conclude makes the verdict of all that was found.
func (r *run) conclude() {
	d := &r.out
	r.relativePositions()
	d.Findings = append(append(append(d.Findings, r.findings...), r.group()...), r.numericFindings()...)
	slices.SortStableFunc(d.Findings, func(a, b Finding) int {
		return slices.Index(order, r.kindOf(a)) - slices.Index(order, r.kindOf(b))
	})
	verdict := Clean
	consider := func(v Verdict) {
		if slices.Index(order, v) < slices.Index(order, verdict) {
			verdict = v
		}
	}
	if r.class.coarse() || r.class.gelu != "" || r.class.kv == "f16" || r.class.kv == "bf16" {
		consider(Numeric)
	}
	for _, f := range d.Findings {
		consider(r.kindOf(f))
	}
	if r.disputed {
		consider(Reference)
	}
	if slices.Index(order, verdict) >= slices.Index(order, Numeric) {
		switch {
		case r.unexplained():
			consider(Unexplained)
		case float64(d.Closure.Before) > sensitive:
			consider(Sensitivity)
		}
	}
	d.Verdict = verdict
	d.Floors = r.floorTable()
	r.coverage()
	r.curves()
	r.notTheFile()
}

// relativePositions takes back positions that are off by the same number for queries and
// for the keys that they meet: only differences of positions count.
func (r *run) relativePositions() {
	shift := map[*graph.Node]float64{}
	for _, h := range r.accepted {
		if h.cause == "rope_position" {
			shift[h.node], _ = h.detail["shift"].(float64)
		}
	}
	for _, n := range r.g.Nodes {
		if n.Op != graph.Attention || len(shift) == 0 {
			continue
		}
		if store := r.model.Store(n); store == nil || shift[n.In[0]] != shift[store.In[0]] {
			return
		}
	}
	if len(shift) > 0 {
		r.accepted = slices.DeleteFunc(r.accepted, func(h *hypothesis) bool { return h.cause == "rope_position" })
		r.infers("queries and keys are turned by positions that are off by the same number, which changes nothing")
	}
}

// sensitive is the KL divergence in nats from which on right but rounded logits are
// called sensitive: one token in a hundred or so is another.
const sensitive = 5e-3

func (r *run) kindOf(f Finding) Verdict {
	if f.Cause == "unknown" && strings.HasPrefix(f.Computed, "does nothing wrong") {
		return Instrument
	}
	return kind(f.Cause)
}
