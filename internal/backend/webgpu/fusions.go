package webgpu

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// Fusions names the further work that a dispatch may do besides one node.
var Fusions = []string{
	"stack", // products of a single input
	"glu",   // gate, up and their GLU
	"gate",  // a product, and a GLU of the product and a known value
	"add",   // a product and a sum
	"norm",  // a norm, a sum, a scale and the next norm
	"fold",  // a norm and, in steps of one row, the products reading the norm
	"turn",  // RoPE of queries and of keys, and StoreKV
	"own",   // a StoreKV and, in steps of one row, attention
	"head",  // norms of heads, RoPE and StoreKV
}

// fuses reports whether a fusion is to be used.
func (b *Backend) fuses(name string) bool { return !slices.Contains(b.o.NoFuse, name) }

// fusions finds the nodes of a graph computed by one dispatch, and remembers its decisions.
type fusions struct {
	b       *Backend
	adapted bool // adapters are added to products
	live    *graph.Live
	values  map[*graph.Node]gpu.Buffer // of the lowered nodes
	stacks  map[*graph.Node]*stack
	users   map[*graph.Node][]*graph.Node
	want    func(*graph.Node) bool

	turned  map[*graph.Node]*graph.Node // RoPE nodes, and norms, done by a StoreKV
	queries map[*graph.Node]*graph.Node // norms of heads of queries computed by an Attention, in steps of one row
	// by an Attention and by the StoreKV: a StoreKV done by the Attention, in steps of one row
	stores map[*graph.Node]*graph.Node
	folded map[*graph.Node]*normChain // rows computed by products
	hidden map[*graph.Node]bool       // nodes skipped by their readers
}

// fuses reports whether a fusion is to be used in this plan.
func (f *fusions) fuses(name string) bool {
	return f.b.fuses(name) && !(f.adapted && slices.Contains(unadaptable, name))
}

// extent returns the rows of n's value.
func (f *fusions) extent(n *graph.Node) extent {
	if f.live.After[n] {
		return wanted
	}
	return every
}

// users returns the readers of each node.
func users(g *graph.Graph) map[*graph.Node][]*graph.Node {
	of := map[*graph.Node][]*graph.Node{}
	for _, n := range g.Nodes {
		for _, in := range n.In {
			of[in] = append(of[in], n)
		}
	}
	return of
}

// onlyReader returns the only reader of n, if n need not be seen; else nil.
func (f *fusions) onlyReader(n *graph.Node) *graph.Node {
	if u := f.users[n]; len(u) == 1 && (f.want == nil || !f.want(n)) {
		return u[0]
	}
	return nil
}

// gated returns the GLU that is the only reader of s's nodes, its gate and up; else nil.
func (f *fusions) gated(s *stack) *graph.Node {
	if len(s.nodes) != 2 || !f.fuses("glu") {
		return nil
	}
	u := f.onlyReader(s.nodes[0])
	if u == nil || u != f.onlyReader(s.nodes[1]) || u.Op != graph.GLU || u.In[0] != s.nodes[0] ||
		s.nodes[0].Shape.Size() != s.nodes[1].Shape.Size() {
		return nil
	}
	return u
}

// gating returns the GLU that is the only reader of n, its gate, if all of the other input is known: the node showing
// this input, from element at on; else nil.
func (f *fusions) gating(n *graph.Node) (glu, shown *graph.Node, at int) {
	u := f.onlyReader(n)
	if u == nil || u.Op != graph.GLU || u.In[0] != n || u.In[1] == n || !f.fuses("gate") {
		return nil, nil, 0
	}
	shown = u.In[1]
	if v := shown; v.Op == graph.View && f.values[v] == nil && f.onlyReader(v) == u {
		shown, at = v.In[0], v.Attr.(graph.ViewAttr).Offset
	}
	if f.values[shown] == nil || f.live.After[shown] != f.live.After[n] {
		return nil, nil, 0
	}
	if u.In[1] != shown {
		f.hidden[u.In[1]] = true
	}
	return u, shown, at
}

// added returns the sum of n and an earlier value, if nothing else reads n; else nil.
func (f *fusions) added(n *graph.Node) (sum, other *graph.Node) {
	u := f.onlyReader(n)
	if u == nil || u.Op != graph.Add || len(u.In) != 2 {
		return nil, nil
	}
	other = u.In[0]
	if other == n {
		other = u.In[1]
	}
	if other.ID > n.ID || f.values[other] == nil {
		return nil, nil
	}
	return u, other
}

// findPairs finds the RoPE nodes of g done by the StoreKV after them.
func (f *fusions) findPairs(g *graph.Graph) {
	for _, s := range g.Nodes {
		if s.Op != graph.StoreKV || !hasEvenValues(s.Attr.(*graph.KV)) || f.headed(s) {
			continue
		}
		k := s.In[0]
		if !f.fuses("turn") || k.Op != graph.RoPE || f.onlyReader(k) != s || len(k.Attr.(graph.RoPEAttr).Freqs) == 0 ||
			f.turnedHead(k.In[0]) == k {
			continue
		}
		i := slices.IndexFunc(g.Nodes[s.ID:], func(a *graph.Node) bool {
			return a.Op == graph.Attention && a.Attr.(graph.AttentionAttr).KV == s.Attr.(*graph.KV)
		})
		if i < 0 {
			continue
		}
		a := g.Nodes[s.ID+i]
		if q := a.In[0]; q.Op == graph.RoPE && q.ID < s.ID && f.extent(q) == f.extent(s) && f.onlyReader(q) == a &&
			sameTurns(q, k) &&
			q.In[0] != k.In[0] && f.turnedHead(q.In[0]) != q {
			f.turned[q], f.turned[k] = s, s
			f.takeStore(a, s)
		}
	}
	for _, n := range g.Nodes {
		if s := f.turned[n]; s != nil {
			f.live.Keep(n, s)
		}
	}
}

// takeStore notes that in steps of one row the Attention a does the work of the StoreKV s, RoPE included, if possible:
// a reads the row's own key and value at their source.
func (f *fusions) takeStore(a, s *graph.Node) {
	if !f.fuses("own") || !isPlain(a) || f.b.o.Software || s.Attr.(*graph.KV).Dim%8 != 0 || f.extent(a) != f.extent(s) {
		return
	}
	f.stores[a], f.stores[s] = s, s
	for _, n := range []*graph.Node{a.In[0], s.In[0], s} {
		f.live.Keep(n, a)
	}
}

// turning returns the RoPE of the queries attending to n's store, if fit to join the RoPE of the keys; else nil.
func (f *fusions) turning(n *graph.Node) *graph.Node {
	for q, s := range f.turned {
		if s == n && q != n.In[0] {
			return q
		}
	}
	return nil
}

// turnedHead returns the RoPE node that is the only reader of n, a norm of heads; else nil.
func (f *fusions) turnedHead(n *graph.Node) *graph.Node {
	if u := f.onlyReader(n); n.Op == graph.RMSNorm && f.fuses("head") && u != nil && u.Op == graph.RoPE &&
		len(u.Attr.(graph.RoPEAttr).Freqs) > 0 && halves(u.Attr.(graph.RoPEAttr)) && u.Shape.Last() == n.Shape.Last() {
		return u
	}
	return nil
}

// headed notes the nodes that the StoreKV s computes by head.wgsl: the norm and the RoPE of its keys, and the norm of
// its values, if any. It reports whether there are such nodes.
func (f *fusions) headed(s *graph.Node) bool {
	kv, k, v := s.Attr.(*graph.KV), s.In[0], s.In[1]
	if k.Op != graph.RoPE || f.onlyReader(k) != s || kv.Dim%2 != 0 {
		return false
	}
	n := k.In[0]
	if f.turnedHead(n) != k {
		return false
	}
	f.turned[n], f.turned[k] = s, s
	if v.Op == graph.RMSNorm && len(v.W) == 0 && v.Shape.Last() == kv.Dim && f.onlyReader(v) == s {
		f.turned[v] = s
	}
	return true
}

// chain returns the norm n and the nodes after it.
func (f *fusions) chain(n *graph.Node) *normChain {
	attr := n.Attr.(graph.NormAttr)
	c := &normChain{chainVariant: chainVariant{order: orderOf(n.Shape.Last()), Weight: len(n.W) > 0},
		nodes: []*graph.Node{n}, x: n.In[0], sum: n}
	c.params = params{"zero": 0, "eps": attr.Eps, "offset": attr.Offset,
		"next_eps": float32(0), "next_offset": float32(0)}
	list := slices.Clone(n.W)
	var scale *graph.Weight
	if sum, other := f.added(n); sum != nil && f.fuses("norm") {
		c.Add, c.sum, c.other, c.nodes = true, sum, other, append(c.nodes, sum)
		if m := f.onlyReader(sum); m != nil && m.Op == graph.Mul && len(m.W) == 1 && m.W[0].Shape.Size() == 1 {
			f.hidden[sum] = true
			c.Scale, c.sum, c.nodes, scale = true, m, append(c.nodes, m), m.W[0]
		}
		// The next norm with a weight, of equal vectors.
		i := slices.IndexFunc(f.users[c.sum], func(u *graph.Node) bool {
			equal := u.Shape.Last() == n.Shape.Last() && u.Shape.Size() == n.Shape.Size()
			return u.Op == graph.RMSNorm && len(u.W) > 0 && equal
		})
		if i >= 0 {
			next := f.users[c.sum][i]
			c.Next, c.next, c.nodes, list = true, next, append(c.nodes, next), append(list, next.W[0])
			attr := next.Attr.(graph.NormAttr)
			c.params["next_eps"], c.params["next_offset"] = attr.Eps, attr.Offset
		}
	}
	if scale != nil {
		list = append(list, scale)
	}
	copy(c.weights[:], list)
	return c
}

// foldMost is the maximum of elements in a row beside the sums in a workgroup's memory, foldColumns the maximum of
// columns in a product worth folding, and foldAdded the same with a sum.
const foldMost, foldColumns, foldAdded = 3072, 1 << 15, 1 << 13

// fold reports whether for steps of one row the products after c compute c: each workgroup the whole row, in less time
// than a dispatch. If c has a sum, with other readers, one product computes and writes the sum.
func (f *fusions) fold(c *normChain) bool {
	row := c.row()
	if !f.fuses("fold") || f.b.o.Software || !c.Weight || row.Shape.Size() != c.Size() || c.Size()%32 != 0 ||
		c.Size() < 1024 ||
		c.Size() > foldMost || f.want != nil && slices.ContainsFunc(c.nodes, f.want) {
		return false
	}
	readers := f.users[row]
	if c.Add && !c.Next && len(readers) > 0 && readers[0].Op == graph.Linear {
		readers = f.stacks[readers[0]].nodes // the first; later ones find the sum
	}
	last, most := row, foldColumns
	if c.Add {
		most = foldAdded
	}
	for _, u := range readers {
		if u.Op != graph.Linear || f.stacks[u].columns() > most || columnsOf(u.W[0]) != nil {
			return false
		}
		last = u
	}
	if last == row || c.Add && !f.isOnlyProduct(readers[0], c) {
		return false
	}
	if f.folded[row] = c; c.Add {
		c.by = f.stacks[readers[0]]
	}
	for _, n := range c.nodes {
		f.live.Keep(n, last)
	}
	return true
}

// isOnlyProduct reports whether the dispatch of n's product is the only reader of c's row, and follows at once: a
// reader of the sum may be computed with an earlier node, but not before the sum.
func (f *fusions) isOnlyProduct(n *graph.Node, c *normChain) bool {
	s := f.stacks[n]
	other := func(u *graph.Node) bool { return !slices.Contains(s.nodes, u) }
	if c.Next && (c.next.ID != c.sum.ID+1 || slices.ContainsFunc(f.users[c.next], other)) {
		return false
	}
	return s.nodes[0] == n && n.ID == c.row().ID+1 && len(f.b.weights[s.key].shards) == 1
}

// stack is Linear nodes of one input with weights of one type, joined on the GPU: one dispatch computes all.
type stack struct {
	nodes []*graph.Node
	key   weights
}

// stacks deals g's Linear nodes to stacks; stacks of several nodes fit a binding.
func (b *Backend) stacks(g *graph.Graph) map[*graph.Node]*stack {
	of := map[*graph.Node]*stack{}
	open := map[*graph.Node][]*stack{} // by input
	for _, n := range g.Nodes {
		if n.Op != graph.Linear {
			continue
		}
		in := n.In[0]
		i := slices.IndexFunc(open[in], func(s *stack) bool { return b.stackable(s, n.W[0]) })
		if i < 0 {
			open[in], i = append(open[in], &stack{}), len(open[in])
		}
		s := open[in][i]
		s.key[len(s.nodes)] = n.W[0]
		s.nodes, of[n] = append(s.nodes, n), s
	}
	return of
}

// stackable reports whether w fits after the weights of s.
func (b *Backend) stackable(s *stack, w *graph.Weight) bool {
	if !b.fuses("stack") {
		return false
	}
	first := s.key[0]
	l, err := layoutOf(w.DType, w.Shape.Last())
	if err != nil || len(s.nodes) == len(s.key) || first.DType != w.DType || first.Shape.Last() != w.Shape.Last() ||
		!slices.Equal(columnsOf(first), columnsOf(w)) {
		return false
	}
	rows := w.Shape[0]
	for _, n := range s.nodes {
		rows += n.W[0].Shape[0]
	}
	return rows*l.bytes(w.Shape.Last()) <= b.memory.limit
}

// columns counts the columns of a stack's results.
func (s *stack) columns() (n int) {
	for _, m := range s.nodes {
		n += m.Shape.Size()
	}
	return n
}

// hasEvenValues reports whether values are as large as keys, and stored next to keys.
func hasEvenValues(kv *graph.KV) bool { return kv.Values() == kv.Dim && !kv.Latent }

// isPlain reports whether a has no attributes unknown to the other kernels.
func isPlain(a *graph.Node) bool {
	attr := a.Attr.(graph.AttentionAttr)
	return len(a.W) == 0 && a.Chosen() == nil && attr.Cap == 0 && !attr.Bidirectional && hasEvenValues(attr.KV)
}

// sameTurns reports whether two RoPE nodes turn heads of one size equally.
func sameTurns(a, b *graph.Node) bool {
	f, g := a.Attr.(graph.RoPEAttr), b.Attr.(graph.RoPEAttr)
	return a.Shape.Last() == b.Shape.Last() && len(f.Freqs) == len(g.Freqs) && &f.Freqs[0] == &g.Freqs[0] &&
		f.Magnitude == g.Magnitude && halves(f) && halves(g)
}

// halves reports whether a turns the halves of whole heads, as rope.wgsl and its fusions do.
func halves(a graph.RoPEAttr) bool { return a.Dim == 0 && !a.Interleaved }
