package webgpu

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// stack is Linear nodes of one input whose weights, of one type, lie as one on the GPU:
// one dispatch computes them all.
type stack struct {
	nodes []*graph.Node
	key   weights
}

// weights lie as one; the last ones may be nil.
type weights [3]*graph.Weight

// list returns the weights that are there.
func (w weights) list() []*graph.Weight {
	n := slices.Index(append(w[:], nil), nil)
	return w[:n]
}

// bytes of them in the file.
func (w weights) bytes() (n int64) {
	for _, x := range w.list() {
		n += int64(x.Size())
	}
	return n
}

// stacks deals g's Linear nodes to stacks, which fit a binding if there is more than one
// node in them.
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

// stackable reports whether w fits behind what s has.
func (b *Backend) stackable(s *stack, w *graph.Weight) bool {
	if !b.fuses("stack") {
		return false
	}
	first := s.key[0]
	l, err := layoutOf(w.DType, w.Shape.Last())
	if err != nil || len(s.nodes) == len(s.key) || first.DType != w.DType || first.Shape.Last() != w.Shape.Last() {
		return false
	}
	rows := w.Shape[0]
	for _, n := range s.nodes {
		rows += n.W[0].Shape[0]
	}
	return rows*l.bytes(w.Shape.Last()) <= b.limit
}

// users are the nodes that read each node.
func users(g *graph.Graph) map[*graph.Node][]*graph.Node {
	of := map[*graph.Node][]*graph.Node{}
	for _, n := range g.Nodes {
		for _, in := range n.In {
			of[in] = append(of[in], n)
		}
	}
	return of
}

// only is the node that alone reads n, if n need not be seen; else nil.
func (p *planner) only(n *graph.Node) *graph.Node {
	if u := p.users[n]; len(u) == 1 && (p.want == nil || !p.want(n)) {
		return u[0]
	}
	return nil
}

// gated is the GLU that alone reads s's nodes, its gate and up; else nil.
func (p *planner) gated(s *stack) *graph.Node {
	if len(s.nodes) != 2 || !p.fuses("glu") {
		return nil
	}
	u := p.only(s.nodes[0])
	if u == nil || u != p.only(s.nodes[1]) || u.Op != graph.GLU || u.In[0] != s.nodes[0] || s.nodes[0].Shape.Size() != s.nodes[1].Shape.Size() {
		return nil
	}
	return u
}

// gating is the GLU that alone reads n, its gate, and of whose other input everything is
// known: what shows it, from which element on; else nil.
func (p *planner) gating(n *graph.Node) (glu, shown *graph.Node, at int) {
	u := p.only(n)
	if u == nil || u.Op != graph.GLU || u.In[0] != n || u.In[1] == n || !p.fuses("gate") {
		return nil, nil, 0
	}
	shown = u.In[1]
	if v := shown; v.Op == graph.View && p.values[v] == nil && p.only(v) == u {
		shown, at = v.In[0], v.Attr.(graph.ViewAttr).Offset
	}
	if p.values[shown] == nil || p.live.After[shown] != p.live.After[n] {
		return nil, nil, 0
	}
	if u.In[1] != shown {
		p.hidden[u.In[1]] = true
	}
	return u, shown, at
}

// added is the sum of n and an earlier value, if nothing else reads n; else nil.
func (p *planner) added(n *graph.Node) (sum, other *graph.Node) {
	u := p.only(n)
	if u == nil || u.Op != graph.Add || len(u.In) != 2 {
		return nil, nil
	}
	other = u.In[0]
	if other == n {
		other = u.In[1]
	}
	if other.ID > n.ID || p.values[other] == nil {
		return nil, nil
	}
	return u, other
}
