package graph

import (
	"math"
	"slices"
)

// Live knows the lifetimes of a graph's values, for backends that reuse buffers.
type Live struct {
	After map[*Node]bool    // nodes after Rows or Pool, with a row for each output
	root  map[*Node]*Node   // of a view: the node of its buffer
	last  map[*Node]int     // by root: the ID of the last reader
	kept  map[*Node][]*Node // by node: the inputs left by Keep
}

// Live finds each value's last reader.
func (g *Graph) Live() *Live {
	l := &Live{After: map[*Node]bool{}, root: map[*Node]*Node{}, last: map[*Node]int{}, kept: map[*Node][]*Node{}}
	for _, n := range g.Nodes {
		l.root[n] = n
		if n.Alias() {
			l.root[n] = l.root[n.In[0]]
		}
		l.After[n] = n.Op == Rows || n.Op == Pool
		for _, in := range n.In {
			l.last[l.root[in]] = n.ID
			l.After[n] = l.After[n] || l.After[in]
		}
	}
	l.last[l.root[g.Result()]] = len(g.Nodes)
	return l
}

// Alias reports whether n only shows its input's value in another shape.
func (n *Node) Alias() bool {
	return n.Op == View && n.Shape.Size() == n.In[0].Shape.Size()
}

// Skip notes that n's value is never stored, and so never freed.
func (l *Live) Skip(n *Node) { delete(l.last, n) }

// Keep notes that n's inputs are needed until a later node, perhaps reading in n's place.
func (l *Live) Keep(n, later *Node) {
	for _, in := range n.In {
		if root := l.root[in]; l.last[root] < later.ID {
			l.last[root], l.kept[later] = later.ID, append(l.kept[later], root)
		}
	}
}

// Hold notes that n's value is needed until the end.
func (l *Live) Hold(n *Node) { l.last[l.root[n]] = math.MaxInt }

// Freed lists the nodes with values not needed after n.
func (l *Live) Freed(n *Node) (freed []*Node) {
	for _, in := range slices.Concat(l.kept[n], n.In) {
		if root := l.root[in]; l.last[root] == n.ID && !slices.Contains(freed, root) {
			freed = append(freed, root)
		}
	}
	return freed
}

// Needed returns g with another result, and without the nodes that neither it nor a store or a state needs. Nodes after
// Rows are the last.
func (g *Graph) Needed(result *Node) *Graph {
	needed, kept, after := map[*Node]bool{result: true}, &Graph{}, g.Live().After
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		needed[n] = needed[n] || n.Op == StoreKV || n.State != nil
		for _, in := range n.In {
			needed[in] = needed[in] || needed[n]
		}
	}
	for _, last := range []bool{false, true} {
		for _, n := range g.Nodes {
			if needed[n] && after[n] == last {
				n.ID = len(kept.Nodes)
				kept.Nodes = append(kept.Nodes, n)
			}
		}
	}
	return kept
}
