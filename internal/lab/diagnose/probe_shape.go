package diagnose

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// judgeModel refuses the dump of another model, of which no product of a weight holds: it has more layers, or several
// kinds of values have another width, not one or a share that a probe which stops early would give to all.
func (r probing) judgeModel() error {
	if slices.ContainsFunc(r.eqs, productHolds) {
		return nil
	}
	// A dump may have the last norm's, too, and one of few taps cannot tell weights from layers.
	if has, want := r.hiddenStates(), len(lab.HiddenStates(r.g)); has > want+1 && len(r.eqs) > fewMisfits {
		return fmt.Errorf("%w: %s: MODEL is not what the engine ran: the dump has the hidden states of %d layers, MODEL has %d layers, and no product of a weight holds",
			ErrUnusable, r.Dump.Path, has-1, want-1)
	}
	kinds, widths, shares := map[string]bool{}, map[int]bool{}, map[float64]bool{}
	var of lab.Unplaced
	for _, u := range r.misfit {
		if of.Node == nil || u.Node.ID < of.Node.ID {
			of = u
		}
		kinds[role(u.Node)], widths[u.Width], shares[float64(u.Width)/float64(u.Node.Shape.Size())] = true, true, true
	}
	if len(kinds) < fewMisfits || len(widths) < 2 || len(shares) < 2 {
		return nil
	}
	return fmt.Errorf("%w: %s: MODEL is not what the engine ran: %d kinds of taps have another width (%s has %d values, not %d), and no product of a weight holds",
		ErrUnusable, r.Dump.Path, len(kinds), of.Name, of.Width, of.Node.Shape.Size())
}

// hiddenStates is how many the dump has.
func (r probing) hiddenStates() (n int) {
	for _, p := range r.prompts {
		if p.Hidden != nil {
			n = max(n, p.Hidden.Shape[0])
		}
	}
	return n
}

// fewMisfits is how many kinds of values have another width where a probe is broken or
// values are joined (queries with keys and values, gate with up), rather than all of another model.
const fewMisfits = 3

// productHolds reports whether eq has a product of a weight in it, and holds.
func productHolds(eq *equation) bool {
	return !eq.flagged() && slices.ContainsFunc(eq.span, func(n *graph.Node) bool { return n.Op == graph.Linear })
}

// misshapen are taps that found their node, but not its width: a probe of a part.
func (r probing) misshapen() {
	for _, u := range r.misfit {
		if u.Width > u.Node.Shape.Size() || r.reported(u.Node) {
			continue
		}
		if u.Placed.Rows == u.Node.Shape.Size() {
			r.infers("%s is left out: its rows are features and its columns positions; write it the other way", u.Name)
			continue
		}
		r.findings = append(r.findings, Finding{Cause: "probe_prefix", Op: opName(u.Node), Layers: layersOf(u.Node), Tap: u.Name, From: []string{}, Nodes: []string{u.Node.Name},
			Detail:   detail{"values": float64(u.Width), "of": "row"},
			Computed: fmt.Sprintf("does nothing wrong: the probe reads %d of %d values", u.Width, u.Node.Shape.Size()), Evidence: u.Why})
	}
}

func (r probing) reported(n *graph.Node) bool {
	return slices.ContainsFunc(r.findings, func(f Finding) bool { return slices.Contains(f.Nodes, n.Name) })
}
