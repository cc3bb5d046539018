package backend

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// Value is a row of a node's value, which a step asks for.
type Value struct {
	Node *graph.Node // one that Options.Keep has
	Row  int32       // of the step; where the node is behind Rows or Pool, one of Outputs
	Out  []float32   // [shape...], to which Run copies it
}

// Kept is the nodes of a graph that Options.Keep has, and whether they are behind Rows or
// Pool: then they have a row for each output, and not for each row of a step.
type Kept map[*graph.Node]bool

// NewKept is those of g that keep has, which may be nil.
func NewKept(g *graph.Graph, keep func(*graph.Node) bool) Kept {
	k, after := Kept{}, g.Live().After
	for _, n := range g.Nodes {
		if keep != nil && n.Op != graph.StoreKV && keep(n) {
			k[n] = after[n]
		}
	}
	return k
}

// Named is k's node of a name, which a copy of the graph has, too; nil if it has none.
func (k Kept) Named(name string) *graph.Node {
	for n := range k {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Check tells whether the values that s asks for are there. Step.Check comes first.
func (k Kept) Check(s *Step) error {
	for _, v := range s.Values {
		after, ok := k[v.Node]
		switch {
		case !ok:
			return fmt.Errorf("the value of node %v, which the plan does not keep", v.Node)
		case v.Row < 0 || int(v.Row) >= len(s.Tokens) || after && !slices.Contains(s.Outputs, v.Row):
			return fmt.Errorf("the value of node %v at row %d, of %d rows and the outputs %v", v.Node, v.Row, len(s.Tokens),
				s.Outputs)
		case len(v.Out) != v.Node.Shape.Size():
			return fmt.Errorf("room for %d elements of a value of node %v, which has %d", len(v.Out), v.Node,
				v.Node.Shape.Size())
		}
	}
	return nil
}

// Range is where v lies among the elements of its node's value in s.
func (k Kept) Range(s *Step, v Value) (from, to int) {
	row, n := int(v.Row), v.Node.Shape.Size()
	if k[v.Node] {
		row, _ = slices.BinarySearch(s.Outputs, v.Row)
	}
	return row * n, (row + 1) * n
}
