package karat

import (
	"context"
	"errors"
	"slices"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
)

// Node is an operation of a model's graph.
type Node struct {
	Name  string // after GGUF's tensor names: blk.3.attn_q
	HF    string // of the PyTorch module with the same output, "" if none
	Op    string
	Layer int   // -1 outside the layers
	Shape []int // of a row's value

	// Heads is the number of heads in Shape, in sequence; 0 for a value without heads, as after attention's output
	// product.
	Heads int
	In    []string // the names of the input nodes
}

// Nodes lists the model's operations in the order of computation. Operations without a value, such as store_kv, are
// left out.
func (m *Model) Nodes() []Node {
	list, heads := []Node(nil), m.heads()
	for _, n := range m.opened.Graph.Nodes {
		if n.Op != graph.StoreKV {
			list = append(list, node(n, heads))
		}
	}
	return list
}

func node(n *graph.Node, heads map[*graph.Node]int) Node {
	x := Node{Name: n.Name, HF: n.HF, Op: n.Op.String(), Layer: n.Layer, Shape: slices.Clone(n.Shape), Heads: heads[n]}
	for _, in := range n.In {
		x.In = append(x.In, in.Name)
	}
	return x
}

// heads returns the number of heads of the graph's nodes. A value seen as heads by a view has heads, and so has a value
// made of heads element by element.
func (m *Model) heads() map[*graph.Node]int {
	m.split.once.Do(func() {
		m.split.heads = map[*graph.Node]int{}
		for _, n := range m.opened.Graph.Nodes {
			of := 0
			switch a, attention := n.Attr.(graph.AttentionAttr); {
			case attention:
				of = n.Shape.Size() / a.KV.Values()
			case len(n.Shape) == 2 && n.Op != graph.Route:
				of = n.Shape[0]
			case slices.Contains([]graph.Op{graph.Mul, graph.Scale, graph.View, graph.Act}, n.Op) &&
				n.Shape.Size() == n.In[0].Shape.Size():
				of = m.split.heads[n.In[0]]
			}
			if m.split.heads[n] = of; n.Alias() && m.split.heads[n.In[0]] == 0 {
				m.split.heads[n.In[0]] = of
			}
		}
	})
	return m.split.heads
}

// Taps computes ids, in one sequence from position 0, and calls see with the values of all nodes. For each node Taps
// calls see once or more, in order, until see had the rows of all ids; values are [rows] and Node.Shape, row-major. The
// numbers equal an untapped run's. see must not keep values.
//
// The model waits for see. Inside see, requests to the model and Close fail with ErrInTap; do not make another
// goroutine do them while see waits for it. If see panics, so does Taps; the model goes on.
//
// A request returns once its tap has returned, even if ctx has ended before: see runs on the computing goroutine. A
// slow see looks at ctx itself, and returns early.
func (m *Model) Taps(ctx context.Context, ids []int, see func(n Node, values []float32)) error {
	if m.opened.Engine.InTap() {
		return ErrInTap
	}
	if ctx == nil {
		return errNilContext
	}
	if see == nil {
		return errors.New("taps: no function that sees the values")
	}
	m.tapping.Lock()
	defer m.tapping.Unlock()
	p, err := m.hookedPlan(ctx)
	if err != nil {
		return err
	}
	tokens, err := tokensOf(m.opened.Engine, ids)
	if err != nil {
		return err
	}
	s := p.NewSequence()
	defer s.Close()
	heads := m.heads()
	if err := s.Hook(&engine.Hook{See: func(n *graph.Node, _ []int32, values []float32) {
		see(node(n, heads), values)
	}}); err != nil {
		return err
	}
	_, err = s.Feed(ctx, tokens, len(ids))
	return err
}

// Hooks see the values of nodes for the positions of a request during the computation, and may write to them.
type Hooks struct {
	Nodes func(n Node) bool // the nodes of interest; nil is all of Model.Nodes

	// See gets the values of a node for some positions, [len(positions)] and Node.Shape, row-major. Later nodes read
	// values as left by See; numbers not written keep their bits. See is called in the order of Model.Nodes for each
	// step: a prompt is one or more steps, each generated token a step. Nodes after the choice of rows for logits have
	// only the chosen rows. A node with another's value in another shape shares its numbers. Neither slice may be kept.
	//
	// The rules for Taps' see hold: requests inside See fail with ErrInTap, and the model waits for See. If keys and
	// values had to be given back meanwhile, positions are computed, and seen, again.
	See func(n Node, positions []int, values []float32)
}

// hook converts h for the engine.
func (h *Hooks) hook(heads map[*graph.Node]int) (*engine.Hook, error) {
	if h.See == nil {
		return nil, errors.New("GenerateOptions.Hooks: no function that sees the values")
	}
	var at []int
	x := &engine.Hook{Write: true, See: func(n *graph.Node, positions []int32, values []float32) {
		at = at[:0]
		for _, p := range positions {
			at = append(at, int(p))
		}
		h.See(node(n, heads), at, values)
	}}
	if h.Nodes != nil {
		wanted := map[*graph.Node]bool{} // asked once, not for each step
		x.Nodes = func(n *graph.Node) bool {
			w, ok := wanted[n]
			if !ok {
				w = h.Nodes(node(n, heads))
				wanted[n] = w
			}
			return w
		}
	}
	return x, nil
}

// hook gives the session an empty sequence seen by o's hooks, or takes such a sequence away.
func (s *Session) hook(ctx context.Context, h *Hooks) error {
	e := s.m.opened.Engine
	if h == nil {
		if s.hooked {
			s.s.Close()
			s.s, s.hooked = e.NewSequence(), false
		}
		return nil
	}
	switch {
	case s.closed:
		return ErrClosed
	case e.InTap():
		return ErrInTap
	}
	x, err := h.hook(s.m.heads())
	if err != nil {
		return err
	}
	p, err := s.m.hookedPlan(ctx)
	if err != nil {
		return err
	}
	s.s.Close()
	s.s, s.hooked = p.NewSequence(), true
	return s.s.Hook(x)
}

// hookedPlan returns the plan of Taps and of requests with hooks, made at the first use.
func (m *Model) hookedPlan(ctx context.Context) (*engine.Plan, error) {
	return m.planOf(ctx, &m.tapped, engine.Options{Hooks: true})
}
