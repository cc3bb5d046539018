package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

func (r *conclusion) floorTable() Floors {
	f := Floors{Activations: r.m.engine.class.name(), KV: cmp.Or(r.m.declared.kv, r.m.engine.class.kv),
		GELU: r.m.engine.class.gelu, Declared: r.m.declared.activations != "", Ops: map[string]lab.Number{}}
	all := map[string][]float64{}
	for _, eq := range r.m.eqs {
		all[opName(eq.target)] = append(all[opName(eq.target)], worst(eq.errors).floor)
	}
	for op, x := range all {
		f.Ops[op] = lab.Number(median(x))
	}
	if !f.Declared {
		r.inferred.add("the engine's class of rounding, by which emulation lies nearest: %v", r.m.engine.class)
	}
	return f
}

// coverage lists the checks made, and the faults that these taps and prompts cannot show.
func (r *conclusion) coverage() {
	c := &r.out.Coverage
	blind := func(format string, args ...any) { c.Blind = append(c.Blind, fmt.Sprintf(format, args...)) }
	decode := false
	for _, p := range r.m.dump.prompts {
		if p.tapped {
			c.Prompts++
			c.Positions = max(c.Positions, len(p.IDs))
			c.Taps += len(p.known)
			decode = decode || p.decoded() > 0
		}
	}
	c.Equations = len(r.m.eqs)
	for _, eq := range r.m.eqs {
		if among := operations(eq.span); r.m.dump.untold(among, eq.target) != nil {
			c.Spanning, c.Longest = c.Spanning+1, max(c.Longest, len(among))
		}
	}
	c.Nodes = float64(r.m.covered) / float64(len(r.m.dump.graph.Nodes)-len(r.m.dump.graph.KVs()))
	if r.m.dump.blackBox {
		blind("no prompt has taps: only the logits were judged, so a fault cannot be placed")
	}
	for _, n := range r.m.dump.graph.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && a.KV.Window > 0 && c.Positions <= a.KV.Window {
			blind("a prompt longer than the window of %d positions: the window was not tested", a.KV.Window)
			break
		}
	}
	if slices.ContainsFunc(r.m.dump.graph.Nodes, sectioned) && !slices.ContainsFunc(r.m.dump.prompts,
		func(p *prompt) bool { return p.tapped && p.Parts != nil }) {
		blind("a prompt with an image: the parts of a text's positions are equal, so the order of rope's " +
			"sections was not tested")
	}
	if c.Positions < 3 {
		blind("a prompt of three or more tokens: attention and rotary positions were hardly tested")
	}
	if r.storedIn16() && !r.m.engine.class.isCoarse() {
		blind("values in 32 bits: a fault that is smaller than the rounding of the 16 bits that values are stored in " +
			"does not show")
	}
	if r.m.perScan < c.Positions {
		blind("all positions: of a model so large %d of the longest prompt's %d were computed again", r.m.perScan,
			c.Positions)
	}
	if !decode {
		blind("tokens decoded one by one: the reuse of keys and values was not tested")
	}
	if r.m.dump.graph.Result().Op == graph.Softcap && !slices.ContainsFunc(r.m.eqs,
		func(eq *equation) bool { return eq.target == r.m.dump.wiring.Head() }) {
		blind("the logits before the cap: a wrong head and a wrong cap are told apart by their effect alone")
	}
}

// storedIn16 reports whether the dump has values in 16 bits.
func (r *conclusion) storedIn16() bool {
	return slices.ContainsFunc(r.m.dump.prompts, func(p *prompt) bool { return p.step > 0x1p-24 })
}

// curves copies the measured equations into the verdict.
func (r *conclusion) curves() {
	for _, eq := range r.m.eqs {
		errors := eq.before
		if errors == nil {
			errors = eq.errors
		}
		w := worst(errors)
		c := Curve{Tap: eq.tap, Node: eq.target.Name, Op: opName(eq.target), Layer: eq.target.Layer,
			Residual: lab.Number(w.residual), Floor: lab.Number(w.floor), Flagged: w.ratio() > excess}
		rows := map[int]int{}
		longest := 0
		for _, x := range errors {
			if rows[x.prompt]++; rows[x.prompt] > rows[longest] {
				longest = x.prompt
			}
		}
		for _, x := range errors {
			if x.prompt == longest {
				c.Rows, c.Positions = append(c.Rows, lab.Number(x.residual)), append(c.Positions, x.row)
			}
		}
		for _, f := range r.closing.frees {
			c.Free = max(c.Free, lab.Number(f.err[eq.target]))
			c.FreeFloor = max(c.FreeFloor, lab.Number(f.noise[eq.target]))
		}
		for _, h := range r.accepted {
			concerns := slices.Contains(r.shown[h].eqs, eq) || c.Flagged && slices.ContainsFunc(eq.span,
				func(n *graph.Node) bool { return h.Edits[n] != nil })
			if concerns && !slices.Contains(c.Causes, h.Cause) {
				c.Causes = append(c.Causes, h.Cause)
			}
		}
		r.out.Curves = append(r.out.Curves, c)
	}
}
