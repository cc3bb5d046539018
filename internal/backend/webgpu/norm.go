package webgpu

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// The Params of norms.
type (
	normParams struct {
		size, vectors, zero                int
		eps, offset, next_eps, next_offset float32
	}
	headParams struct {
		size, heads, pairs     int
		eps, offset, value_eps float32
	}
)

// order is that of a norm's sum of squares (rms.wgsl).
type order struct {
	Of      string // what is read at once
	Quads   int    // how many of these a vector has
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

// normVariant is a form of norm.wgsl.
type normVariant struct {
	order
	Weight           bool
	Add, Scale, Next bool // what follows
}

// Binding is the number of a binding that not all forms have.
func (v normVariant) Binding(name string) int {
	n := 4
	for _, b := range []struct {
		name string
		has  bool
	}{{"w", v.Weight}, {"more", v.Add}, {"scale", v.Scale}, {"out2", v.Next}, {"w2", v.Next}} {
		if b.name == name {
			break
		}
		if b.has {
			n++
		}
	}
	return n
}

// Others are the bindings that are read as x is.
func (v normVariant) Others() (names []string) {
	for _, b := range []struct {
		name string
		has  bool
	}{{"w", v.Weight}, {"more", v.Add}, {"w2", v.Next}} {
		if b.has {
			names = append(names, b.name)
		}
	}
	return names
}

// headVariant is a form of head.wgsl.
type headVariant struct {
	order
	Dim    int
	Weight bool
	Store  bool // keys, and with values
	Values bool // that are divided, too
	F16    bool
}

// weighted appends the weight of the norm n to in, if it has one, and tells what is added to it.
func (p *planner) weighted(n *graph.Node, in []gpu.Range) ([]gpu.Range, float32, error) {
	if len(n.W) == 0 {
		return in, 0, nil
	}
	w, err := p.e.b.vector(n.W[0])
	return append(in, gpu.Range{Buffer: w}), n.Attr.(graph.NormAttr).Offset, err
}

// norm lowers n, and what else its dispatch computes.
func (p *planner) norm(l *lowered) (err error) {
	n := l.node
	if turned := p.turnedHead(n); turned != nil {
		return p.head(l, turned)
	}
	v, size := normVariant{order: orderOf(n.Shape.Last()), Weight: len(n.W) > 0}, n.Shape.Last()
	params := normParams{size: size, vectors: n.Shape.Size() / size, eps: n.Attr.(graph.NormAttr).Eps}
	in := []gpu.Range{{Buffer: p.values[n.In[0]]}}
	if in, params.offset, err = p.weighted(n, in); err != nil {
		return err
	}
	to := n
	if sum, other := p.added(n); sum != nil && p.fuses("norm") {
		v.Add, to, in = true, sum, append(in, gpu.Range{Buffer: p.values[other]})
		if m := p.only(sum); m != nil && m.Op == graph.Mul && len(m.W) == 1 && m.W[0].Shape.Size() == 1 {
			scale, err := p.e.b.vector(m.W[0])
			if err != nil {
				return err
			}
			v.Scale, to, in = true, m, append(in, gpu.Range{Buffer: scale})
			p.hidden[sum] = true
		}
	}
	out, err := p.value(to)
	if err != nil {
		return err
	}
	if next := p.next(to, params); v.Add && next != nil {
		second, err := p.value(next)
		if err != nil {
			return err
		}
		v.Next, in, params.next_eps = true, append(in, gpu.Range{Buffer: second}), next.Attr.(graph.NormAttr).Eps
		if in, params.next_offset, err = p.weighted(next, in); err != nil {
			return err
		}
		delete(p.folded, next)
	}
	if err := p.add(l, "norm", v, params, groups(params.vectors), out, in...); err != nil || !p.folded[n] {
		return err
	}
	l.dispatches[len(l.dispatches)-1].from = 2 // for one row the products that read it compute it
	return nil
}

// next is the norm of whole rows, with a weight, that reads n, if there is one.
func (p *planner) next(n *graph.Node, params normParams) *graph.Node {
	i := slices.IndexFunc(p.users[n], func(u *graph.Node) bool {
		return u.Op == graph.RMSNorm && len(u.W) > 0 && u.Shape.Last() == params.size && u.Shape.Size() == params.size*params.vectors
	})
	if i < 0 {
		return nil
	}
	return p.users[n][i]
}

// turnedHead is the RoPE node that alone reads the norm n of heads; else nil.
func (p *planner) turnedHead(n *graph.Node) *graph.Node {
	if u := p.only(n); n.Op == graph.RMSNorm && p.fuses("head") && u != nil && u.Op == graph.RoPE && len(u.Attr.(graph.RoPEAttr).Freqs) > 0 && u.Shape.Last() == n.Shape.Last() {
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
	return p.add(l, "head", v, params, groups(params.heads), out, in...)
}

// headOf is the form of head.wgsl for the norm n, and what it reads for that: heads, turns
// and the weight, if there is one.
func (p *planner) headOf(n, turned *graph.Node) (v headVariant, params headParams, in []gpu.Range, err error) {
	size := n.Shape.Last()
	t, err := p.turns(turned.Attr.(graph.RoPEAttr).Freqs)
	if err != nil {
		return v, params, nil, err
	}
	v = headVariant{order: orderOf(size), Dim: size, Weight: len(n.W) > 0}
	params = headParams{size: size, heads: n.Shape.Size() / size, pairs: t.pairs, eps: n.Attr.(graph.NormAttr).Eps}
	in, params.offset, err = p.weighted(n, []gpu.Range{{Buffer: p.values[n.In[0]]}, {Buffer: t.buffer}})
	return v, params, in, err
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
		all := append(d.head, gpu.Range{Buffer: s.keys}, gpu.Range{Buffer: s.values}, in[0], in[1], gpu.Range{Buffer: value}, gpu.Range{Buffer: c.tables[s.class]})
		return append(all, in[2:]...)
	}
	return nil
}

// foldNorms finds the norms that the products behind them compute for steps of one row:
// each workgroup that of the whole row, which takes less than a dispatch.
func (p *planner) foldNorms(g *graph.Graph) {
	for _, n := range g.Nodes {
		size := n.Shape.Last()
		if n.Op != graph.RMSNorm || len(n.W) == 0 || n.Shape.Size() != size || size%32 != 0 || size < 1024 || size > foldMost ||
			!p.fuses("fold") || p.e.b.o.Software || p.want != nil && p.want(n) {
			continue
		}
		last := n.ID
		if slices.ContainsFunc(p.users[n], func(u *graph.Node) bool {
			last = max(last, u.ID)
			return u.Op != graph.Linear || p.columns(p.stacks[u]) > foldColumns
		}) {
			continue
		}
		later := func(u *graph.Node) bool { return u.ID > last } // so that what n reads is there until then
		if slices.ContainsFunc(p.users[n.In[0]], later) {
			p.folded[n] = true
		}
	}
}

// foldMost are the elements of a row that fit a workgroup's memory beside its sums, and
// foldColumns how many columns of a product at most are worth it.
const foldMost, foldColumns = 3072, 1 << 15

// columns of a stack's results.
func (p *planner) columns(s *stack) (n int) {
	for _, m := range s.nodes {
		n += m.Shape.Size()
	}
	return n
}
