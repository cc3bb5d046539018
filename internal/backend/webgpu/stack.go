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
	return rows*l.bytes(w.Shape.Last()) <= b.memory.limit
}

// columns counts the columns of a stack's results.
func (s *stack) columns() (n int) {
	for _, m := range s.nodes {
		n += m.Shape.Size()
	}
	return n
}
