package diagnose

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
)

// candidates are what the engine may do instead in the nodes of eq's span. A fault
// that is on no list fits none of them, and stays unknown.
func (r *run) candidates(eq *equation) ([]*hypothesis, error) {
	var all []*hypothesis
	for _, n := range eq.span {
		switch n.Op {
		case graph.Embed:
			all = append(all, r.embedHypotheses(n)...)
		case graph.Linear:
			all = append(all, r.linearHypotheses(n)...)
		case graph.RMSNorm:
			all = append(all, r.normHypotheses(n)...)
		case graph.RoPE:
			all = append(all, r.ropeHypotheses(eq, n)...)
		case graph.Attention:
			all = append(all, r.attentionHypotheses(n)...)
		case graph.Add:
			all = append(all, r.addHypotheses(n)...)
		case graph.Mul:
			all = append(all, r.mulHypotheses(n)...)
		case graph.Scale:
			all = append(all, r.scaleHypotheses(n)...)
		case graph.GLU, graph.Act:
			all = append(all, r.gluHypotheses(n)...)
		case graph.Route:
			all = append(all, r.routeHypotheses(n)...)
		case graph.Experts:
			all = append(all, r.expertsHypotheses(n)...)
		case graph.Softcap:
			all = append(all, softcapHypotheses(n)...)
		}
		all = append(all, r.skippedNorms(n)...)
		if n.Op == graph.RMSNorm || n.Op == graph.Add || role(n) == "inp_gate" {
			for _, h := range r.placesOfPLE(n) {
				if !slices.ContainsFunc(all, func(x *hypothesis) bool { return x.node == h.node && same(x, h) }) {
					all = append(all, h)
				}
			}
		}
	}
	if eq.layers() > 1 {
		return r.systemic(all), nil
	}
	measured, err := r.measured(eq)
	return append(all, measured...), err
}

// layers is the number of layers in which eq's span lies.
func (e *equation) layers() int {
	var layers []int
	for _, n := range e.span {
		layers = union(layers, layersOf(n))
	}
	return len(layers)
}

// systemic makes of the same hypotheses in several layers one: of an equation across
// layers, and without taps between them, no more can be told.
func (r *run) systemic(all []*hypothesis) []*hypothesis {
	var out []*hypothesis
	for _, h := range all {
		at := slices.IndexFunc(out, func(x *hypothesis) bool {
			return x.node.Layer >= 0 && h.node.Layer >= 0 && x.cause == h.cause && role(x.node) == role(h.node) && (x.fit == nil) == (h.fit == nil) && (x.fit != nil || same(x, h))
		})
		if at < 0 {
			x := *h
			x.nodes = []*graph.Node{h.node}
			out = append(out, &x)
			continue
		}
		join(out[at], h)
	}
	return out
}

// join adds h's edits to x, which is the same elsewhere.
func join(x, h *hypothesis) {
	x.nodes = append(x.nodes, h.node)
	if x.fit == nil {
		edits := sim.Edits{}
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
		both.nodes, both.edits = nodes, sim.Edits{}.And(a.edits)
		for n, e := range b.edits {
			if both.edits[n] == nil {
				both.edits[n] = e
			}
		}
		return &both
	}
	x.fit = &f
}

// detail is what a finding says of a cause; numbers are float64.
type detail = map[string]any

// edit is a hypothesis of one changed node.
func edit(cause string, n *graph.Node, computed string, d detail, change sim.Edit) *hypothesis {
	return &hypothesis{cause: cause, node: n, computed: computed, detail: d, edits: sim.Edits{n: {change}}}
}

// unlikely is h with a cost: what explains as much without it comes first.
func unlikely(cost float64, h *hypothesis) *hypothesis {
	h.cost += cost
	return h
}

// fitting is a hypothesis with a number to be found.
func fitting(cause string, n *graph.Node, f fit) *hypothesis {
	return &hypothesis{cause: cause, node: n, fit: &f}
}

// passes makes a node give on its i-th input.
func passes(i int) sim.Edit {
	return func(s *sim.Spec) {
		s.Func = func(e *sim.Eval, s *sim.Spec, rows []int) ([]float64, error) { return e.Value(s.In[i], rows) }
	}
}

// reads makes a node read x as its i-th input.
func reads(i int, x *graph.Node) sim.Edit {
	return func(s *sim.Spec) {
		s.In = slices.Clone(s.In)
		s.In[i] = x
	}
}

// readers are the nodes that read n.
func (r *run) readers(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range r.g.Nodes {
		if slices.Contains(x.In, n) {
			all = append(all, x)
		}
	}
	return all
}

// role is a node's name without its layer: attn_q of blk.3.attn_q.
func role(n *graph.Node) string {
	if n.Layer < 0 {
		return n.Name
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(n.Name, "blk."), ".")
	return name
}

// siblings are the nodes of n's role in other layers.
func (r *run) siblings(n *graph.Node) []*graph.Node {
	var all []*graph.Node
	for _, x := range r.g.Nodes {
		if x != n && x.Layer >= 0 && n.Layer >= 0 && x.Op == n.Op && role(x) == role(n) {
			all = append(all, x)
		}
	}
	return all
}

// inLayer finds a node of n's layer by role, nil if there is none.
func (r *run) inLayer(n *graph.Node, name string) *graph.Node {
	for _, x := range r.g.Nodes {
		if x.Layer == n.Layer && role(x) == name {
			return x
		}
	}
	return nil
}

// behind is the node that a view shows all of, or n.
func behind(n *graph.Node) *graph.Node {
	for n.Op == graph.Rows || n.Op == graph.View && n.Shape.Size() == n.In[0].Shape.Size() {
		n = n.In[0]
	}
	return n
}
