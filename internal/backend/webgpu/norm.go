package webgpu

import (
	"cmp"
	"slices"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// The Params of norms.
type (
	chainParams struct {
		zero                               int
		eps, offset, next_eps, next_offset float32
	}
	normParams struct {
		vectors int
		chainParams
	}
	headParams struct {
		size, heads, pairs     int
		eps, offset, value_eps float32
	}
)

// order is that of a norm's sum of squares (rms.wgsl).
type order struct {
	Of      string // the type of one read
	Quads   int    // how many of them a vector has
	Threads int    // that sum
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

// Per is how many of a vector's quads an invocation sums.
func (o order) Per() int { return (o.Quads + o.Threads - 1) / o.Threads }

// Size is the elements of a vector.
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
	Add, Scale, Next bool // what follows
}

// Weights reports whether there are any.
func (v chainVariant) Weights() bool { return v.Weight || v.Scale || v.Next }

// Second is where the next norm's weight begins behind the first one's, and Third where the
// scale lies.
func (v chainVariant) Second() int {
	if v.Weight {
		return v.Quads
	}
	return 0
}

func (v chainVariant) Third() int {
	if v.Next {
		return v.Second() + v.Quads
	}
	return v.Second()
}

// normChain is a norm and what follows it: a sum, a scale and the next norm, as far as there are
// any of them. One dispatch computes it, or in steps of one row the product behind it.
type normChain struct {
	chainVariant
	params    chainParams
	nodes     []*graph.Node
	x, other  *graph.Node // the norm's input, and the addend
	sum, next *graph.Node // the results: next is nil if there is none
	weights   weights
	by        *stack // whose product alone computes it in steps of one row; nil if all do
}

// row is its output, which the next nodes read.
func (c *normChain) row() *graph.Node { return cmp.Or(c.next, c.sum) }

// headVariant is a form of head.wgsl.
type headVariant struct {
	order
	Dim    int
	Weight bool
	Store  bool // keys, and with values
	Values bool // that are divided, too
	F16    bool
}

// norm lowers n, and what else its dispatch computes.
func (p *planner) norm(l *lowered) error {
	if turned := p.turnedHead(l.node); turned != nil {
		return p.head(l, turned)
	}
	c := p.chain(l.node)
	out, err := p.value(c.sum)
	if err != nil {
		return err
	}
	in, err := p.chained(c, []gpu.Range{{Buffer: p.values[c.x]}})
	if err != nil {
		return err
	}
	if c.Next {
		second, err := p.value(c.next)
		if err != nil {
			return err
		}
		in = append(in, gpu.Range{Buffer: second})
	}
	vectors := l.node.Shape.Size() / c.Size()
	if err := p.add(l, "norm", c.chainVariant, normParams{vectors, c.params}, groups(vectors), out, in...); err != nil {
		return err
	}
	if p.fold(c) {
		l.dispatches[len(l.dispatches)-1].from = 2 // for one row the products that read it compute it
	}
	return nil
}

// chain is the norm n and what follows it.
func (p *planner) chain(n *graph.Node) *normChain {
	c := &normChain{chainVariant: chainVariant{order: orderOf(n.Shape.Last()), Weight: len(n.W) > 0}, nodes: []*graph.Node{n}, x: n.In[0], sum: n}
	c.params.eps, c.params.offset = n.Attr.(graph.NormAttr).Eps, n.Attr.(graph.NormAttr).Offset
	list := slices.Clone(n.W)
	var scale *graph.Weight
	if sum, other := p.added(n); sum != nil && p.fuses("norm") {
		c.Add, c.sum, c.other, c.nodes = true, sum, other, append(c.nodes, sum)
		if m := p.only(sum); m != nil && m.Op == graph.Mul && len(m.W) == 1 && m.W[0].Shape.Size() == 1 {
			p.hidden[sum] = true
			c.Scale, c.sum, c.nodes, scale = true, m, append(c.nodes, m), m.W[0]
		}
		if next := p.next(c.sum, n); next != nil {
			c.Next, c.next, c.nodes, list = true, next, append(c.nodes, next), append(list, next.W[0])
			c.params.next_eps, c.params.next_offset = next.Attr.(graph.NormAttr).Eps, next.Attr.(graph.NormAttr).Offset
		}
	}
	if scale != nil {
		list = append(list, scale)
	}
	copy(c.weights[:], list)
	return c
}

// chained appends the inputs of c besides x: its weights and the addend.
func (p *planner) chained(c *normChain, in []gpu.Range) ([]gpu.Range, error) {
	if c.Weights() {
		w, err := p.e.b.vector(c.weights)
		if err != nil {
			return nil, err
		}
		in = append(in, gpu.Range{Buffer: w})
	}
	if c.Add {
		in = append(in, gpu.Range{Buffer: p.values[c.other]})
	}
	return in, nil
}

// next is the norm with a weight that reads n, as norm has normed vectors, if there is one.
func (p *planner) next(n, norm *graph.Node) *graph.Node {
	i := slices.IndexFunc(p.users[n], func(u *graph.Node) bool {
		return u.Op == graph.RMSNorm && len(u.W) > 0 && u.Shape.Last() == norm.Shape.Last() && u.Shape.Size() == norm.Shape.Size()
	})
	if i < 0 {
		return nil
	}
	return p.users[n][i]
}

// turnedHead is the RoPE node that alone reads the norm n of heads; else nil.
func (p *planner) turnedHead(n *graph.Node) *graph.Node {
	if u := p.only(n); n.Op == graph.RMSNorm && p.fuses("head") && u != nil && u.Op == graph.RoPE && len(u.Attr.(graph.RoPEAttr).Freqs) > 0 && halves(u.Attr.(graph.RoPEAttr)) && u.Shape.Last() == n.Shape.Last() {
		return u
	}
	return nil
}

// head lowers the norm of heads and the RoPE behind it.
func (p *planner) head(l *lowered, turned *graph.Node) error {
	n := l.node
	v, params, in, err := p.headOf(n, turned)
	if err != nil {
		return err
	}
	out, err := p.value(turned)
	if err != nil {
		return err
	}
	if err := p.add(l, "head", v, params, groups(params.heads), out, in...); err != nil {
		return err
	}
	if a := p.only(turned); a != nil && a.Op == graph.Attention && plain(a) && v.Weight && v.Of == "vec4f" && v.Threads == 64 && !p.e.b.o.Software {
		p.queries[a] = n
		p.live.Keep(n, a)
		l.dispatches[len(l.dispatches)-1].from = 2 // for one row attention computes it
	}
	return nil
}

// headOf is the form of head.wgsl for the norm n, and what it reads for that: heads, turns
// and the weight, if there is one.
func (p *planner) headOf(n, turned *graph.Node) (v headVariant, params headParams, in []gpu.Range, err error) {
	size := n.Shape.Last()
	t, err := p.turns(turned)
	if err != nil {
		return v, params, nil, err
	}
	attr := n.Attr.(graph.NormAttr)
	v = headVariant{order: orderOf(size), Dim: size, Weight: len(n.W) > 0}
	params = headParams{size: size, heads: n.Shape.Size() / size, pairs: t.pairs, eps: attr.Eps, offset: attr.Offset}
	if in = []gpu.Range{{Buffer: p.values[n.In[0]]}, {Buffer: t.buffer}}; v.Weight {
		w, err := p.e.b.vector(weights{n.W[0]})
		return v, params, append(in, gpu.Range{Buffer: w}), err
	}
	return v, params, in, nil
}

// headed notes the nodes that the StoreKV s computes by head.wgsl: the norm and the RoPE of
// its keys, and the norm of its values, if there is one. It reports whether there are any.
func (p *planner) headed(s *graph.Node) bool {
	kv, k, v := s.Attr.(*graph.KV), s.In[0], s.In[1]
	if k.Op != graph.RoPE || p.only(k) != s || kv.Dim%2 != 0 {
		return false
	}
	n := k.In[0]
	if p.turnedHead(n) != k {
		return false
	}
	p.turned[n], p.turned[k] = s, s
	if v.Op == graph.RMSNorm && len(v.W) == 0 && v.Shape.Last() == kv.Dim && p.only(v) == s {
		p.turned[v] = s
	}
	return true
}

// storeHeads lowers the StoreKV of keys whose norm and RoPE are left to it.
func (p *planner) storeHeads(l *lowered, kv *graph.KV) error {
	k, x := l.node.In[0], l.node.In[1]
	v, params, in, err := p.headOf(k.In[0], k)
	if err != nil {
		return err
	}
	v.Store, v.F16 = true, !p.e.b.o.F32KV
	if p.turned[x] != nil {
		v.Values, params.value_eps, x = true, x.Attr.(graph.NormAttr).Eps, x.In[0]
	}
	d, err := p.dispatch(l.node, "head", v, params, groups(params.heads))
	if err != nil {
		return err
	}
	l.dispatches = append(l.dispatches, d.dispatch)
	value := p.values[x]
	d.kv, d.ranges = kv, func(c *cache) []gpu.Range {
		s := c.stores[kv]
		all := append(d.head, gpu.Range{Buffer: s.keys}, gpu.Range{Buffer: s.values}, in[0], in[1], gpu.Range{Buffer: value}, gpu.Range{Buffer: c.tables[every][s.class]})
		return append(all, in[2:]...)
	}
	return nil
}

// fold reports whether for steps of one row the products behind c compute it: each workgroup
// the whole row, which takes less than a dispatch. Where c has a sum, which something else
// reads, too, one product does that, and writes it.
func (p *planner) fold(c *normChain) bool {
	row := c.row()
	if !p.fuses("fold") || p.e.b.o.Software || !c.Weight || row.Shape.Size() != c.Size() || c.Size()%32 != 0 || c.Size() < 1024 || c.Size() > foldMost ||
		p.want != nil && slices.ContainsFunc(c.nodes, p.want) {
		return false
	}
	readers := p.users[row]
	if c.Add && !c.Next && len(readers) > 0 && readers[0].Op == graph.Linear {
		readers = p.stacks[readers[0]].nodes // the first; later ones find the sum
	}
	last, most := row, foldColumns
	if c.Add {
		most = foldAdded
	}
	for _, u := range readers {
		if u.Op != graph.Linear || p.columns(p.stacks[u]) > most {
			return false
		}
		last = u
	}
	if last == row || c.Add && !p.alone(readers[0], c) {
		return false
	}
	if p.folded[row] = c; c.Add {
		c.by = p.stacks[readers[0]]
	}
	for _, n := range c.nodes {
		p.live.Keep(n, last)
	}
	return true
}

// alone reports whether the dispatch of n's product is the only one that reads the row of c,
// and follows at once: what reads the sum may be computed with an earlier node, but not before
// the sum is there.
func (p *planner) alone(n *graph.Node, c *normChain) bool {
	s := p.stacks[n]
	other := func(u *graph.Node) bool { return !slices.Contains(s.nodes, u) }
	if c.Next && (c.next.ID != c.sum.ID+1 || slices.ContainsFunc(p.users[c.next], other)) {
		return false
	}
	return s.nodes[0] == n && n.ID == c.row().ID+1 && len(p.e.b.weights[s.key].shards) == 1
}

// foldMost are the elements of a row that fit a workgroup's memory beside its sums, and
// foldColumns how many columns of a product at most are worth it; foldAdded with a sum.
const foldMost, foldColumns, foldAdded = 3072, 1 << 15, 1 << 13

// columns of a stack's results.
func (p *planner) columns(s *stack) (n int) {
	for _, m := range s.nodes {
		n += m.Shape.Size()
	}
	return n
}
