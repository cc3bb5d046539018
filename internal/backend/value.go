package backend

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// Value is a requested row of a node's value.
type Value struct {
	Node *graph.Node // a node of Options.Keep
	Row  int32       // row of the step; after Rows or Pool, one of Outputs
	Out  []float32   // [shape...], filled by Run
}

// Kept is the nodes of a graph in Options.Keep, and whether each is after Rows or Pool: such a node has a row for each
// output, and not for each row of a step.
type Kept map[*graph.Node]bool

// NewKept returns the nodes of g chosen by keep, or none for nil.
func NewKept(g *graph.Graph, keep func(*graph.Node) bool) Kept {
	k, after := Kept{}, g.Live().After
	for _, n := range g.Nodes {
		if keep != nil && n.Op != graph.StoreKV && keep(n) {
			k[n] = after[n]
		}
	}
	return k
}

// Named returns k's node of a name, also in a copy of the graph; nil if there is none.
func (k Kept) Named(name string) *graph.Node {
	for n := range k {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Check returns an error unless the values requested by s exist. Step.Check comes first.
func (k Kept) Check(s *Step) error {
	for _, v := range s.Values {
		after, ok := k[v.Node]
		switch {
		case !ok:
			return fmt.Errorf("the value of node %v, which the plan does not keep", v.Node)
		case v.Row < 0 || int(v.Row) >= len(s.Tokens) || after && !slices.Contains(s.Outputs, v.Row):
			return fmt.Errorf("the value of node %v at row %d, of %d rows and the outputs %v", v.Node, v.Row,
				len(s.Tokens), s.Outputs)
		case len(v.Out) != v.Node.Shape.Size():
			return fmt.Errorf("room for %d elements of a value of node %v, which has %d", len(v.Out), v.Node,
				v.Node.Shape.Size())
		}
	}
	return nil
}

// Range returns the place of v among the elements of its node's value in s.
func (k Kept) Range(s *Step, v Value) (from, to int) {
	row, n := int(v.Row), v.Node.Shape.Size()
	if k[v.Node] {
		row, _ = slices.BinarySearch(s.Outputs, v.Row)
	}
	return row * n, (row + 1) * n
}
