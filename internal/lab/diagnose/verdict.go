package diagnose

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// conclusion is a diagnosis in the making.
type conclusion struct {
	m        *measurement // with the edits of all that was accepted
	accepted []*hypothesis
	shown    map[*hypothesis]*showing
	given    map[*equation]bool // equations that nothing explains
	closing  *closing
	inferred notes
	out      Diagnosis
}

// conclude makes the verdict of a search and a closing.
func conclude(s *search, c *closing) *Diagnosis {
	r := &conclusion{m: s.m, accepted: s.accepted, shown: s.shown, given: s.given, closing: c,
		inferred: slices.Clone(s.m.dump.inferred)}
	for _, note := range c.inferred {
		r.inferred.add("%s", note)
	}
	r.relativePositions()
	r.out = Diagnosis{Model: r.m.dump.options.Model, Dump: r.m.dump.options.Dump.Path,
		Layers: layers(r.m.dump.graph), Findings: []Finding{}, Closure: c.closure, Logits: c.shown,
		Coverage: Coverage{Unplaced: r.m.dump.unplaced, Misspelt: r.m.dump.misspelt, Blind: []string{}}}
	d := &r.out
	causes, unbuilt := r.group()
	d.Closure.Unbuilt = unbuilt
	d.Findings = append(append(append(d.Findings, r.probes()...), causes...), r.numericFindings()...)
	slices.SortStableFunc(d.Findings, func(a, b Finding) int {
		return slices.Index(order, kindOf(a)) - slices.Index(order, kindOf(b))
	})
	verdict := Clean
	consider := func(v Verdict) {
		if slices.Index(order, v) < slices.Index(order, verdict) {
			verdict = v
		}
	}
	if r.m.engine.class.isRounding() {
		consider(Numeric)
	}
	for _, f := range d.Findings {
		consider(kindOf(f))
	}
	if r.closing.disputed {
		consider(Reference)
	}
	if slices.Index(order, verdict) >= slices.Index(order, Numeric) {
		switch {
		case r.closing.isUnexplained():
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
	r.errors()
	r.next()
	d.Inferred = r.inferred
	return d
}

// order is the order of accusation.
var order = []Verdict{Instrument, Input, Weights, Structural, Reference, Unexplained, Sensitivity, Numeric, Clean}

// kind returns the verdict of a cause.
func kind(id string) Verdict {
	if c, ok := mistake.Find(id); ok {
		return Verdict(c.Kind)
	}
	return Structural
}

func kindOf(f Finding) Verdict {
	if f.Cause == "unknown" && strings.HasPrefix(f.Computed, innocent) {
		return Instrument
	}
	return kind(f.Cause)
}

// relativePositions takes back positions that are off by the same number for queries and for their keys: only
// differences of positions count.
func (r *conclusion) relativePositions() {
	shift := map[*graph.Node]float64{}
	for _, h := range r.accepted {
		if h.Cause != "rope_position" {
			continue
		}
		by, ok := h.Detail["shift"].(float64)
		if !ok || by < 0 { // the first positions cannot be off as the others are
			return
		}
		shift[h.Node] = by
	}
	met := map[*graph.Node]bool{}
	for _, n := range r.m.dump.graph.Nodes {
		if n.Op != graph.Attention && n.Op != graph.Choose || len(shift) == 0 {
			continue
		}
		store := r.m.dump.model.Store(n)
		if store == nil {
			return
		}
		q, k := turned(n.In[0]), turned(store.In[0])
		if met[q], met[k] = true, true; shift[q] != shift[k] {
			return
		}
	}
	for n := range shift {
		if !met[n] {
			return // what no attention is seen to meet may count
		}
	}
	if len(shift) > 0 {
		r.accepted = slices.DeleteFunc(r.accepted, func(h *hypothesis) bool { return h.Cause == "rope_position" })
		r.inferred.add("queries and keys are turned by positions that are off by the same number, which " +
			"changes nothing")
	}
}

// products returns the equations of a single product of a weight or an embedding.
func (r *conclusion) products() []*equation {
	var all []*equation
	for _, eq := range r.m.eqs {
		n := 0
		for _, x := range eq.span {
			switch x.Op {
			case graph.Linear, graph.Embed:
				n++
			case graph.View, graph.Rows, graph.Scale, graph.Add:
			default:
				n += 2
			}
		}
		if n == 1 {
			all = append(all, eq)
		}
	}
	return all
}

// notTheFile notes that MODEL may be another quantization of the engine's file, or another checkpoint, where no
// product of a weight holds and nothing explains any.
func (r *conclusion) notTheFile() {
	products := r.products()
	if len(products) < manyProducts || slices.ContainsFunc(products, func(eq *equation) bool { return !r.given[eq] }) {
		return
	}
	r.inferred.add("none of the %d products of a weight holds and nothing explains them: either all weights are read "+
		"wrongly, or MODEL is not the file that the engine ran, but another quantization of it or another "+
		"checkpoint", len(products))
	for i := range r.out.Findings {
		if f := &r.out.Findings[i]; f.Cause == "unknown" && (f.Op == "Linear" || f.Op == "Embed") {
			f.Fix = "Make sure that MODEL is the very file that the engine ran, not another quantization or " +
				"checkpoint: no product of a weight holds."
		}
	}
}
