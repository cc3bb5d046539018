package diagnose

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// actModule is PyTorch's activation beside a gate_proj.
const actModule = "act_fn.out"

// withActivations returns a graph in which each GLU beside a gate_proj is an activation and a product, if the dump
// has taps of activations: only such a graph has a node of that value.
func withActivations(g *graph.Graph, dump *lab.Record) *graph.Graph {
	if !slices.ContainsFunc(dump.Prompts, func(p *lab.Prompt) bool {
		for name := range p.Taps {
			if strings.HasSuffix(name, "mlp."+actModule) {
				return true
			}
		}
		return false
	}) {
		return g
	}
	out, copies := &graph.Graph{}, map[*graph.Node]*graph.Node{}
	add := func(n graph.Node) *graph.Node {
		n.ID = len(out.Nodes)
		out.Nodes = append(out.Nodes, &n)
		return &n
	}
	for _, n := range g.Nodes {
		x := *n
		x.In = slices.Clone(n.In)
		for i, in := range n.In {
			x.In[i] = copies[in]
		}
		if a, ok := n.Attr.(graph.ActAttr); ok && n.Op == graph.GLU && a.Plain() {
			if module, ok := strings.CutSuffix(n.In[0].HF, "gate_proj.out"); ok {
				act := x
				act.Op, act.Name, act.HF, act.In = graph.Act, n.Name+"_act", module+actModule, x.In[:1:1]
				x.Op, x.Attr, x.In = graph.Mul, nil, []*graph.Node{add(act), x.In[1]}
			}
		}
		copies[n] = add(x)
	}
	return out
}
