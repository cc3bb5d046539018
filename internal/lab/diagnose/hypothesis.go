package diagnose

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
)

// hypothesis is something that an engine may do instead of what the graph says.
type hypothesis struct {
	cause    string         // an ID of package mistake
	node     *graph.Node    // where
	nodes    []*graph.Node  // where, if in several layers at once
	detail   map[string]any // what, the same in all layers
	computed string         // a sentence without subject: "scales the scores by 0.125"
	cost     float64        // how much less likely than others that explain as much; 0 to 3
	edits    reference.Edits

	// If fit is set, the hypothesis has a parameter: edits makes the one of a value.
	fit   *fit
	value float64     // that was found
	free  *hypothesis // as it was before

	eqs  []*equation // that it explains
	seen string      // what shows it, if no equation does
	fix  string      // how it is mended, if that is more than the catalogue says
	also []*hypothesis

	among []*graph.Node // of an unknown one: the nodes that no tap separates, if there are several
}

// op returns the operation that a hypothesis is about.
func (h *hypothesis) op() string {
	switch c, _ := mistake.Find(h.cause); {
	case c.Op == "" || c.Kind == mistake.Weights || slices.Contains([]string{"activation", "gelu_constant",
		"gate_up_swapped", "ple_scale", "activation_limit", "scan_decay", "state_lost"}, h.cause):
		return opName(h.node)
	case slices.Contains([]string{"bias_missing", "norm_missing", "norm_eps", "norm_order", "final_norm_missing"},
		h.cause) && slices.Contains([]graph.Op{graph.LayerNorm, graph.L2Norm, graph.Conv, graph.Experts}, h.node.Op):
		return opName(h.node)
	default:
		return c.Op
	}
}

// layers returns the sorted layers of a hypothesis.
func (h *hypothesis) layers() []int {
	if h.nodes == nil {
		return layersOf(h.node)
	}
	layers := []int{}
	for _, n := range h.nodes {
		layers = union(layers, layersOf(n))
	}
	return layers
}

// same reports whether two hypotheses are the same in two layers.
func same(a, b *hypothesis) bool {
	if a.cause != b.cause || len(a.detail) != len(b.detail) {
		return false
	}
	for k, v := range a.detail {
		x, ok := v.(float64)
		y, isFloat := b.detail[k].(float64)
		switch {
		case ok && isFloat && math.Abs(x-y) <= 1e-3*max(math.Abs(x), math.Abs(y)):
		case ok != isFloat || ok || b.detail[k] != v:
			return false
		}
	}
	return true
}

// isJoinable reports whether h may join base: base has no other value for the same thing.
func isJoinable(base *attempt, h *hypothesis) bool {
	return !slices.ContainsFunc(base.hs, func(b *hypothesis) bool {
		return b == h || b.cause == h.cause && b.node == h.node
	})
}

// fit is a parameter to be found, from least to most.
type fit struct {
	least, most float64
	guesses     []float64 // tried first; 3 % within one of them it is that one
	integer     bool
	right       float64 // what it should be; 0 if nothing
	make        func(v float64) *hypothesis
}

// withValue returns h with a value for its parameter, nil if the parameter cannot have that value.
func (h *hypothesis) withValue(v float64) *hypothesis {
	x := h.fit.make(v)
	if x != nil {
		x.value, x.free, x.cost = v, h, x.cost+h.cost
	}
	return x
}

// isRight reports whether v is what the parameter should be.
func (f *fit) isRight(v float64) bool {
	return f.right != 0 && math.Abs(v/f.right-1) < 1e-3 && !slices.Contains(f.rounded(), v)
}

// rounded returns the right parameter in 16 bits, for each form that rounds the parameter to another number.
func (f *fit) rounded() []float64 {
	var all []float64
	for _, format := range []round.Format{round.BF16, round.F16} {
		v := []float64{f.right}
		if format.Round(v); math.Abs(v[0]/f.right-1) > 1e-6 && !infinite(v[0]) && v[0] != 0 && !f.integer {
			all = append(all, v[0])
		}
	}
	return all
}

// detail is what a finding says of a cause; numbers are float64.
type detail = map[string]any

// tried returns hypotheses of the table as a search tries them.
func tried(all []*mistake.Hypothesis) []*hypothesis {
	var list []*hypothesis
	for _, h := range all {
		list = append(list, try(h))
	}
	return list
}

func try(h *mistake.Hypothesis) *hypothesis {
	x := &hypothesis{cause: h.Cause, node: h.Node, nodes: h.Nodes, detail: h.Detail, computed: h.Computed, cost: h.Cost,
		edits: h.Edits, fix: h.Fix}
	if f := h.Fit; f != nil {
		x.fit = &fit{least: f.Least, most: f.Most, guesses: f.Guesses, integer: f.Integer, right: f.Right,
			make: func(v float64) *hypothesis {
				if y := f.Make(v); y != nil {
					return try(y)
				}
				return nil
			}}
	}
	return x
}

// join adds h's edits to x, which is the same elsewhere.
func join(x, h *hypothesis) {
	x.nodes = append(x.nodes, h.node)
	if x.fit == nil {
		edits := reference.Edits{}
		for n, e := range x.edits {
			edits[n] = e
		}
		for n, e := range h.edits {
			if edits[n] == nil { // a rope node is named by queries and by keys
				edits[n] = e
			}
		}
		x.edits = edits
		return
	}
	first, second, nodes := x.fit.make, h.fit.make, x.nodes
	f := *x.fit
	f.make = func(v float64) *hypothesis {
		a, b := first(v), second(v)
		if a == nil || b == nil {
			return nil
		}
		both := *a
		both.nodes, both.edits = nodes, reference.Edits{}.And(a.edits)
		for n, e := range b.edits {
			if both.edits[n] == nil {
				both.edits[n] = e
			}
		}
		return &both
	}
	x.fit = &f
}

// made returns a hypothesis of a changed node, whose numbers come from the dump.
func made(cause string, n *graph.Node, computed string, d detail, change reference.Edit) *hypothesis {
	return &hypothesis{cause: cause, node: n, computed: computed, detail: d, edits: reference.Edits{n: {change}}}
}
