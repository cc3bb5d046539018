package webgpu

import (
	"cmp"

	"github.com/karat-run/karat/internal/graph"
)

// order is the order of a norm's sum of squares (rms.wgsl).
type order struct {
	Of      string // the type of one read
	Quads   int    // reads in a vector
	Threads int    // invocations of the sum
}

func orderOf(size int) order {
	o := order{"f32", size, 64}
	if size%4 == 0 {
		o.Of, o.Quads = "vec4f", size/4
	}
	if size >= 1024 {
		o.Threads = 256
	}
	return o
}

// Size returns the elements of a vector.
func (o order) Size() int {
	if o.Of == "f32" {
		return o.Quads
	}
	return 4 * o.Quads
}

// chainVariant is a form of chain.wgsl: the steps computed of a vector at once.
type chainVariant struct {
	order
	Weight           bool
	Add, Scale, Next bool // nodes after the norm
}

// Weights reports whether there are any.
func (v chainVariant) Weights() bool { return v.Weight || v.Scale || v.Next }

// normChain is a norm and the nodes after it: a sum, a scale and the next norm, as far as present. One dispatch
// computes the chain, or in steps of one row the product after it.
type normChain struct {
	chainVariant
	params    params
	nodes     []*graph.Node
	x, other  *graph.Node // the norm's input, and the addend
	sum, next *graph.Node // the results: next is nil if there is none
	weights   weights
	by        *stack // the only product computing the chain in steps of one row; nil if all do
}

// row returns the chain's output, read by the next nodes.
func (c *normChain) row() *graph.Node { return cmp.Or(c.next, c.sum) }

// headVariant is a form of head.wgsl.
type headVariant struct {
	order
	Dim    int
	Weight bool
	Store  bool // keys, and with values
	Values bool // values are also divided
	F16    bool
}

// lowerNorm lowers an RMSNorm, and the other nodes of its dispatch.
func lowerNorm(p *planner, l *lowered) {
	n := l.node
	if turned := p.f.turnedHead(n); turned != nil {
		lowerHead(p, l, turned)
		return
	}
	c := p.f.chain(n)
	bindings := append([]binding{p.value(c.sum), p.values[c.x]}, p.chained(c)...)
	if c.Next {
		bindings = append(bindings, p.value(c.next))
	}
	vectors := n.Shape.Size() / c.Size()
	d := p.add(l, "norm", c.chainVariant, c.params.with(params{"vectors": vectors}), groups(vectors), bindings...)
	if p.f.fold(c) {
		d.from = 2 // for one row the products compute the chain
	}
}

// chained returns the inputs of c besides x: its weights and the addend.
func (p *planner) chained(c *normChain) (in []binding) {
	if c.Weights() {
		in = append(in, p.vector(c.weights.list()...))
	}
	if c.Add {
		in = append(in, p.values[c.other])
	}
	return in
}

// lowerHead lowers the norm of heads and the RoPE after it.
func lowerHead(p *planner, l *lowered, turned *graph.Node) {
	v, numbers, in := p.headOf(l.node, turned)
	d := p.add(l, "head", v, numbers, groups(numbers["heads"].(int)), append([]binding{p.value(turned)}, in...)...)
	if a := p.f.onlyReader(turned); a != nil && a.Op == graph.Attention && isPlain(a) && v.Weight && v.Of == "vec4f" &&
		v.Threads == 64 && !p.b.o.Software {
		p.f.queries[a] = l.node
		p.f.live.Keep(l.node, a)
		d.from = 2 // for one row attention computes the norm
	}
}

// headOf returns the form of head.wgsl for the norm n, and its inputs: heads, turns and the weight, if there is one.
func (p *planner) headOf(n, turned *graph.Node) (v headVariant, numbers params, in []binding) {
	size, t, attr := n.Shape.Last(), p.turns(turned), n.Attr.(graph.NormAttr)
	v = headVariant{order: orderOf(size), Dim: size, Weight: len(n.W) > 0}
	numbers = params{"size": size, "heads": n.Shape.Size() / size, "pairs": t.pairs, "eps": attr.Eps,
		"offset": attr.Offset, "value_eps": float32(0)}
	in = []binding{p.values[n.In[0]], t.buffer}
	if v.Weight {
		in = append(in, p.vector(n.W[0]))
	}
	return v, numbers, in
}

// storeHeads lowers the StoreKV of keys with the norm and RoPE left to the StoreKV.
func (p *planner) storeHeads(l *lowered, kv *graph.KV) {
	k, x := l.node.In[0], l.node.In[1]
	v, numbers, in := p.headOf(k.In[0], k)
	v.Store, v.F16 = true, !p.b.o.F32KV
	if p.f.turned[x] != nil {
		v.Values, numbers["value_eps"], x = true, x.Attr.(graph.NormAttr).Eps, x.In[0]
	}
	bindings := []binding{keysOf(kv), valuesOf(kv), in[0], in[1], p.values[x], tableOf(kv, every)}
	p.add(l, "head", v, numbers, groups(numbers["heads"].(int)), append(bindings, in[2:]...)...)
}
