package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// group makes findings of the accepted hypotheses: a finding for all layers with the same cause. The second result
// counts hypotheses without edits, whose fault nobody knows.
func (r *conclusion) group() (findings []Finding, unbuilt int) {
	var firsts []*hypothesis
	for _, h := range r.accepted {
		at := slices.IndexFunc(firsts, func(x *hypothesis) bool {
			return x.Cause == h.Cause && x.Op() == h.Op() && (h.Cause != "unknown" || same(x, h))
		})
		if at < 0 {
			firsts = append(firsts, h)
			if len(h.Edits) == 0 {
				unbuilt++
			}
			findings = append(findings, r.finding(h))
			continue
		}
		f := &findings[at]
		f.Layers = union(f.Layers, h.Layers())
		if !same(firsts[at], h) {
			f.Detail = maps.Clone(f.Detail)
			f.Detail[h.Node.Name] = h.Computed
		}
		f.Nodes = append(f.Nodes, h.Node.Name)
	}
	return r.joinUnknown(findings), unbuilt
}

// probes returns the findings of the dump itself: a finding for all taps that are broken in the same way.
func (r *conclusion) probes() []Finding {
	var all []Finding
	for _, f := range r.m.dump.findings {
		at := slices.IndexFunc(all, func(x Finding) bool {
			return kindOf(f) == Instrument && x.Cause == f.Cause && len(x.Nodes) > 0 && len(f.Nodes) > 0 &&
				(f.Cause != "unknown" || x.Computed == f.Computed)
		})
		if at < 0 {
			all = append(all, f)
			continue
		}
		x := &all[at]
		x.Layers, x.Nodes = union(x.Layers, f.Layers), append(slices.Clone(x.Nodes), f.Nodes...)
		x.Detail = maps.Clone(x.Detail)
		if x.Detail == nil {
			x.Detail = detail{}
		}
		if x.Computed != f.Computed {
			for _, n := range f.Nodes {
				x.Detail[n] = f.Computed
			}
		}
		x.Detail["taps"] = float64(len(x.Nodes))
	}
	return all
}

func (r *conclusion) finding(h *hypothesis) Finding {
	by := r.shown[h]
	eq := by.eqs[0]
	before := eq.before
	if before == nil {
		before = eq.errors
	}
	w := worst(before)
	f := Finding{Cause: h.Cause, Op: h.Op(), Layers: h.Layers(), Tap: eq.tap, From: r.m.dump.tapNames(eq.sources),
		Span: spanned(eq), Detail: h.Detail, Nodes: []string{h.Node.Name},
		Residual: lab.Number(w.residual), Floor: lab.Number(w.floor), Computed: h.Computed}
	if c, ok := mistake.Find(h.Cause); ok {
		f.Fix = cmp.Or(h.Fix, c.Fix)
	}
	for _, x := range by.also {
		if !slices.Contains(f.Also, x.Cause) && x.Cause != h.Cause {
			f.Also = append(f.Also, x.Cause)
		}
	}
	f.Evidence = fmt.Sprintf("%s lies %s from what the engine's own values before it give, %s times the floor; ",
		eq.tap, lab.Digits(w.residual), lab.Digits(w.ratio()))
	if by.seen != "" {
		f.Residual, f.Floor, f.Evidence = 0, 0, by.seen
	} else if h.Cause == "unknown" {
		f.Evidence += "no cause of the catalogue explains it"
		f.Fix = "Compare this operation alone, on the engine's own inputs: " + expecting + eq.tap + "."
		r.narrow(&f, by.among, eq)
	} else {
		f.Evidence += "with this cause it lies " + lab.Digits(worst(eq.errors).residual)
	}
	return f
}

// expecting begins the command that shows a tap's expected values.
const expecting = "karat lab expect MODEL DUMP --tap "

// spanned returns the operations of an equation, each once.
func spanned(eq *equation) []string {
	ops := []string{}
	for _, n := range eq.span {
		if name := opName(n); n.Op != graph.View && n.Op != graph.Rows && !slices.Contains(ops, name) {
			ops = append(ops, name)
		}
	}
	return ops
}

// isBroken reports whether an equation did not hold before anything was built in.
func isBroken(eq *equation) bool {
	return len(eq.before) > 0 && worst(eq.before).ratio() > excess || eq.isFlagged()
}

// numericFindings returns the classes of rounding the dump did not declare.
func (r *conclusion) numericFindings() []Finding {
	var all []Finding
	add := func(id, op, what string, d detail) {
		f := Finding{Cause: id, Op: op, Layers: []int{}, From: []string{}, Span: []string{},
			Nodes: []string{}, Detail: d, Computed: what}
		for i := range layers(r.m.dump.graph) {
			f.Layers = append(f.Layers, i)
		}
		for _, eq := range r.m.eqs {
			if eq.target.Layer >= 0 && (opName(eq.target) == op || slices.ContainsFunc(eq.span,
				func(n *graph.Node) bool { return opName(n) == op })) {
				w := worst(eq.errors)
				f.Tap, f.From, f.Residual, f.Floor = eq.tap, r.m.dump.tapNames(eq.sources), lab.Number(w.residual),
					lab.Number(w.floor)
				break
			}
		}
		f.Evidence = "all equations hold within the floors of this class, and not within those of a finer one"
		if slices.ContainsFunc(r.m.eqs, isBroken) {
			f.Evidence = "the equations that hold do so within the floors of this class, and not within those of " +
				"a finer one"
		}
		if c, ok := mistake.Find(id); ok {
			f.Fix = c.Fix
		}
		all = append(all, f)
	}
	c, said := r.m.engine.class, r.m.declared
	if c.isCoarse() && said.activations == "" {
		add("numeric_activations", "Linear", "rounds what products read, or all it keeps, to "+c.words(),
			detail{"activations": c.words()})
	}
	if c.activations == "f32" && said.activations == "" {
		add("numeric_accumulation", "Linear", "computes in float32", detail{"activations": "f32"})
	}
	if said.kv == "" && c.roundsKV() && c.kv != c.activations {
		add("numeric_kv", "StoreKV", "keeps keys and values in "+c.kv, detail{"kv": c.kv})
	}
	if said.gelu == "" && c.gelu != "" {
		add("numeric_gelu", "GLU", "looks GELU up in a table of half precision", detail{"gelu": c.gelu})
	}
	return all
}

// operations returns the nodes that compute something.
func operations(span []*graph.Node) []*graph.Node {
	return slices.DeleteFunc(slices.Clone(span), func(n *graph.Node) bool {
		return n.Op == graph.View || n.Op == graph.Rows || n.Op == graph.StoreKV
	})
}

// narrow lists the operations a finding may be about, and taps that would decide.
func (r *conclusion) narrow(f *Finding, among []*graph.Node, eq *equation) {
	const most = 8
	values := r.m.dump.untold(among, eq.target)
	if len(values) == 0 {
		return
	}
	for _, n := range among {
		f.Among = append(f.Among, opName(n)+" "+role(n))
	}
	var gguf []string
	for i := range min(len(values), most) {
		n := values[i*len(values)/min(len(values), most)]
		f.AddTaps = append(f.AddTaps, r.m.dump.names.Torch[n])
		if name := r.m.dump.names.LlamaCpp[n]; name != "" {
			gguf = append(gguf, name)
		}
	}
	where := ""
	if len(f.AddTaps) < len(values) {
		where = fmt.Sprintf(", some of %d between which it may lie", len(values))
	}
	f.Fix = "Add taps that tell which operation it is, and diagnose again: " + strings.Join(f.AddTaps, ", ")
	if len(gguf) > 0 {
		f.Fix += " (llama.cpp: " + strings.Join(gguf, ", ") + ")"
	}
	f.Fix += where + "; in other layers likewise. " + expecting + eq.tap + " shows what is expected there, " +
		"and so it does for taps that the dump lacks."
}
