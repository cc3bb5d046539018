package fault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// plan is a copy of a graph that is being rewritten, and the kernels of its nodes.
type plan struct {
	nodes   []*graph.Node
	kernels map[*graph.Node]reference.Kernel // in place of the operation
	wraps   map[*graph.Node][]wrap           // around it, in the order of the faults
	attends map[*graph.Node]*attend
	turns   map[*graph.Node]*turn
	mixes   map[*graph.Node]*mix
	layers  []*layer                        // as recorded: outside first
	freqs   map[*graph.Node][]float64       // of RoPE, as recorded
	windows map[*graph.Node]int             // of Attention, as recorded
	weights map[*graph.Node][]*graph.Weight // as recorded
	keepAll bool                            // no store may drop a position
	dry     bool                            // weights are not rewritten

	touched []*graph.Node // by the fault that is being applied
	decode  bool          // that fault shows in decode only
	beside  bool          // it is not in the node itself, but in one that was put in
}

// wrap changes how a node is computed, given how it was.
type wrap func(next reference.Kernel) reference.Kernel

// layer is the nodes of one layer, or those outside, as they were recorded.
type layer struct {
	p         *plan
	index     int
	nodes     []*graph.Node
	input     *graph.Node   // the stream that enters it
	residuals []*graph.Node // additions of a half's output to the stream
}

func newPlan(g *graph.Graph) *plan {
	p := &plan{kernels: map[*graph.Node]reference.Kernel{}, wraps: map[*graph.Node][]wrap{}, attends: map[*graph.Node]*attend{},
		turns: map[*graph.Node]*turn{}, mixes: map[*graph.Node]*mix{}, freqs: map[*graph.Node][]float64{}, windows: map[*graph.Node]int{},
		weights: map[*graph.Node][]*graph.Weight{}}
	copies := map[*graph.Node]*graph.Node{}
	for _, n := range g.Nodes {
		c := *n
		c.In, c.W, c.Shape = slices.Clone(n.In), slices.Clone(n.W), slices.Clone(n.Shape)
		for i, in := range c.In {
			c.In[i] = copies[in]
		}
		switch a := n.Attr.(type) {
		case *graph.KV: // a store and its readers have a KV each, so that one may see another window
			kv := *a
			c.Attr = &kv
		case graph.RoPEAttr:
			p.freqs[&c] = a.Freqs
		case graph.AttentionAttr:
			kv := *a.KV
			p.windows[&c] = kv.Window
			a.KV = &kv
			c.Attr = a
		}
		copies[n], p.weights[&c] = &c, n.W
		p.nodes = append(p.nodes, &c)
	}
	p.split()
	return p
}

// split sorts the nodes by layer.
func (p *plan) split() {
	p.layers = []*layer{{p: p, index: outside}}
	for _, n := range p.nodes {
		for len(p.layers) < n.Layer+2 {
			p.layers = append(p.layers, &layer{p: p, index: len(p.layers) - 1})
		}
		l := p.layers[n.Layer+1]
		l.nodes = append(l.nodes, n)
	}
	for _, l := range p.layers[1:] {
		if len(l.nodes) == 0 || len(l.nodes[0].In) == 0 {
			continue
		}
		l.input = l.nodes[0].In[0] // of the first norm
		stream := l.input
		for _, n := range l.nodes {
			if n.Op == graph.Add && len(n.In) == 2 && n.In[0] == stream {
				l.residuals, stream = append(l.residuals, n), n
			}
		}
	}
}

// local is a node's name without its layer.
func local(n *graph.Node) string {
	return strings.TrimPrefix(n.Name, fmt.Sprintf("blk.%d.", n.Layer))
}

// node finds one by its name in the layer.
func (l *layer) node(name string) *graph.Node {
	for _, n := range l.nodes {
		if local(n) == name {
			return n
		}
	}
	return nil
}

// of are the layer's nodes of an operation.
func (l *layer) of(ops ...graph.Op) (list []*graph.Node) {
	for _, n := range l.nodes {
		if slices.Contains(ops, n.Op) {
			list = append(list, n)
		}
	}
	return list
}

func (l *layer) first(op graph.Op) *graph.Node {
	if list := l.of(op); len(list) > 0 {
		return list[0]
	}
	return nil
}

func (l *layer) attention() *graph.Node { return l.first(graph.Attention) }

// readers are the nodes that read n.
func (p *plan) readers(n *graph.Node) (list []*graph.Node) {
	for _, r := range p.nodes {
		if slices.Contains(r.In, n) {
			list = append(list, r)
		}
	}
	return list
}

// reads makes nodes read to in place of from.
func reads(list []*graph.Node, from, to *graph.Node) {
	for _, n := range list {
		for i, in := range n.In {
			if in == from {
				n.In[i] = to
			}
		}
	}
}

// move places nodes, which keep their order, right behind another.
func (p *plan) move(after *graph.Node, nodes ...*graph.Node) {
	p.nodes = slices.DeleteFunc(p.nodes, func(n *graph.Node) bool { return slices.Contains(nodes, n) })
	p.nodes = slices.Insert(p.nodes, slices.Index(p.nodes, after)+1, nodes...)
}

// insert adds a node behind another whose output it changes: all that read the
// other read it. It has no name that a tap would have.
func (p *plan) insert(after *graph.Node, op graph.Op, attr any) *graph.Node {
	n := &graph.Node{Op: op, Layer: after.Layer, Shape: after.Shape, Attr: attr, Pos: after.Pos}
	n.Name = after.Name + "." + op.String()
	for i := 1; slices.ContainsFunc(p.nodes, func(o *graph.Node) bool { return o.Name == n.Name }); i++ {
		n.Name = fmt.Sprintf("%s.%v#%d", after.Name, op, i)
	}
	p.beside = true
	reads(p.readers(after), after, n)
	n.In = []*graph.Node{after}
	p.nodes = slices.Insert(p.nodes, slices.Index(p.nodes, after)+1, n)
	return n
}

// finish gives the nodes their numbers, and makes each store hold what its readers see.
func (p *plan) finish() *graph.Graph {
	for i, n := range p.nodes {
		n.ID = i
	}
	for _, s := range p.nodes {
		if s.Op != graph.StoreKV {
			continue
		}
		kv := s.Attr.(*graph.KV)
		for _, n := range p.nodes {
			if n.Op != graph.Attention || n.Attr.(graph.AttentionAttr).KV.Layer != kv.Layer {
				continue
			}
			if w := window(n); w == 0 || kv.Window == 0 || p.keepAll {
				kv.Window = 0
			} else {
				kv.Window = max(kv.Window, w)
			}
		}
	}
	return &graph.Graph{Nodes: p.nodes}
}

// touch notes nodes that the fault is in.
func (p *plan) touch(nodes ...*graph.Node) { p.touched = append(p.touched, nodes...) }

// then changes a node's output, [rows, width], in place.
func (p *plan) then(n *graph.Node, change func(c *reference.Call, y []float64, width int)) {
	p.wraps[n] = append(p.wraps[n], func(next reference.Kernel) reference.Kernel {
		return func(c *reference.Call) ([]float64, error) {
			y, err := next(c)
			if err != nil {
				return nil, err
			}
			y = slices.Clone(y)
			change(c, y, n.Shape.Size())
			return y, nil
		}
	})
}

// before changes a node's inputs, each [rows, width], in place.
func (p *plan) before(n *graph.Node, change func(c *reference.Call, in [][]float64)) {
	p.wraps[n] = append(p.wraps[n], func(next reference.Kernel) reference.Kernel {
		return func(c *reference.Call) ([]float64, error) {
			d := *c
			d.In = make([][]float64, len(c.In))
			for i, x := range c.In {
				d.In[i] = slices.Clone(x)
			}
			change(c, d.In)
			return next(&d)
		}
	})
}

// kernel is how n is computed, nil if as recorded.
func (p *plan) kernel(n *graph.Node) reference.Kernel {
	k := p.kernels[n]
	if k == nil && p.wraps[n] != nil {
		k = func(c *reference.Call) ([]float64, error) { return c.Default(c.Node) }
	}
	for _, w := range p.wraps[n] {
		k = w(k)
	}
	return k
}

// pass makes a node hand on an input as it is, so that its tap shows it.
func (p *plan) pass(n *graph.Node, input int) {
	p.kernels[n] = func(c *reference.Call) ([]float64, error) { return slices.Clone(c.In[input]), nil }
}

// window is how many positions an Attention sees, 0 for all.
func window(n *graph.Node) int { return n.Attr.(graph.AttentionAttr).KV.Window }

// shapeOf is the shape of a node's first weight, nil if it has none.
func shapeOf(n *graph.Node) tensor.Shape {
	if len(n.W) == 0 {
		return nil
	}
	return n.W[0].Shape
}
