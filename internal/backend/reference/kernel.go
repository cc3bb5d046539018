package reference

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// Kernel computes a node in the interpreter's place. It returns the node's
// output [rows, shape...], nothing for a StoreKV. The output is then rounded as the
// backend's class rounds the stored values.
type Kernel func(c *Call) ([]float64, error)

// Call is one node to compute in one step.
type Call struct {
	Node *graph.Node
	In   [][]float64   // [rows, shape...] of each of Node.In; not to be changed
	Step *backend.Step // its tokens, positions, sequences and outputs

	e   *executable
	out [][]float64
}

// Default is what the interpreter computes for n: for Node, for a copy of it
// with another operation, other attributes or weights, or for any other node.
// The inputs are in, or those of the call if there are none.
//
// A StoreKV or an Attention means the store of its KV's layer; a copy of the KV
// with another window is still that store.
func (c *Call) Default(n *graph.Node, in ...[]float64) ([]float64, error) {
	if len(in) == 0 {
		in = c.In
	}
	return c.e.node(n, in, c.Step)
}

// Value is the output of a node that was computed before in this step, not to
// be changed; nil for another one.
func (c *Call) Value(n *graph.Node) []float64 { return c.out[n.ID] }

// Keys are the stored keys of a position of row's sequence, [heads·dim],
// not to be changed; nil if the store does not hold the position. What was never
// stored is 0, or what another sequence left there.
func (c *Call) Keys(k *graph.KV, row, pos int) []float64 {
	s, at, err := c.place(k, row, pos)
	if err != nil {
		return nil
	}
	return s.k[at*s.width:][:s.width]
}

// Values is Keys for the values.
func (c *Call) Values(k *graph.KV, row, pos int) []float64 {
	s, at, err := c.place(k, row, pos)
	if err != nil {
		return nil
	}
	return s.v[at*s.wide:][:s.wide]
}

// Store sets the keys and values, [heads·dim] each, of a position of row's
// sequence. There is room for all positions up to the step's last.
func (c *Call) Store(k *graph.KV, row, pos int, key, val []float64) error {
	s, at, err := c.place(k, row, pos)
	if err != nil {
		return err
	}
	if len(key) != s.width || len(val) != s.wide {
		return fmt.Errorf("%d keys and %d values, the store has %d and %d", len(key), len(val), s.width, s.wide)
	}
	s.put(at, key, val)
	return nil
}

// State is what row's sequence keeps for the node, before the row and after the call:
// a kernel may change it. It is nil for a node without one.
func (c *Call) State(row int) []float64 {
	if c.Node.State == nil {
		return nil
	}
	return c.Step.Cache.(*cache).state(c.Node.State, c.Step.Seqs[row])
}

// place is the slot of a position of row's sequence.
func (c *Call) place(k *graph.KV, row, pos int) (*store, int, error) {
	cache := c.Step.Cache.(*cache)
	s, err := cache.find(k)
	if err != nil {
		return nil, 0, err
	}
	q := c.Step.Seqs[row]
	if !q.Holds(s.class, pos) {
		return nil, 0, fmt.Errorf("position %d of row %d's sequence is not held", pos, row)
	}
	at := s.slot(q, pos)
	s.reach(at)
	return s, at, nil
}

// call runs a kernel and checks what it returns.
func (e *executable) call(k Kernel, n *graph.Node, in [][]float64, s *backend.Step, out [][]float64) ([]float64, error) {
	y, err := k(&Call{n, in, s, e, out})
	if err != nil || n.Op == graph.StoreKV {
		return nil, err
	}
	rows := len(s.Tokens)
	switch {
	case n.Op == graph.Rows, n.Op == graph.Pool:
		rows = len(s.Outputs)
	case len(in) > 0:
		rows = len(in[0]) / n.In[0].Shape.Size()
	}
	if want := rows * n.Shape.Size(); len(y) != want {
		return nil, fmt.Errorf("the kernel returned %d values, want %d", len(y), want)
	}
	if n.Op == graph.Route { // experts' indices are among them
		return y, nil
	}
	return e.arith.storeAll(slices.Clone(y)), nil
}
