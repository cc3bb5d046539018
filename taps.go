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
	HF    string // of the PyTorch module that has the same output, "" if none has
	Op    string
	Layer int   // -1 outside the layers
	Shape []int // of a row's value

	// Heads is how many heads the elements of Shape are of, one after another; 0 where they are of none, as
	// behind attention's output product.
	Heads int
	In    []string // the names of the nodes that it reads
}

// Nodes lists the model's operations in the order in which they are computed. Operations
// without a value, such as store_kv, are left out.
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

// heads are those of the values of the graph's nodes: what a view shows as heads has them, too, and so has
// values made of heads one element at a time.
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
			case slices.Contains([]graph.Op{graph.Mul, graph.Scale, graph.View, graph.Act}, n.Op) && n.Shape.Size() == n.In[0].Shape.Size():
				of = m.split.heads[n.In[0]]
			}
			if m.split.heads[n] = of; n.Alias() && m.split.heads[n.In[0]] == 0 {
				m.split.heads[n.In[0]] = of
			}
		}
	})
	return m.split.heads
}

// Taps computes ids, as one sequence from position 0, and calls see with the values of
// all nodes. For each node it calls see one or more times, in order, until see had the
// rows of all ids; values are [rows] and Node.Shape, row-major. The numbers are those of
// an untapped run. see must not keep values.
//
// The model waits for see. Inside see, requests to the model and Close fail with ErrInTap;
// do not make another goroutine do them while see waits for it. If see panics, so does
// Taps; the model goes on.
//
// A request returns once its tap has returned, even if ctx has ended before: see runs on the
// goroutine that computes. A see that takes long looks at ctx itself, and returns early.
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
	if err := s.Hook(&engine.Hook{See: func(n *graph.Node, _ []int32, values []float32) { see(node(n, heads), values) }}); err != nil {
		return err
	}
	_, err = s.Feed(ctx, tokens, len(ids))
	return err
}

// Hooks see the values of nodes for the positions of a request while they are computed, and may write to them.
type Hooks struct {
	Nodes func(n Node) bool // which nodes; nil is all of Model.Nodes

	// See has the values of a node for some positions, [len(positions)] and Node.Shape, row-major. What it
	// leaves in values is what the nodes that come later read; numbers that it does not write keep their
	// bits. It is called in the order of Model.Nodes for each step: a prompt is one or more steps, each generated
	// token one. Nodes behind the choice of rows whose logits are wanted have only those. A node that shows
	// another's value in another shape shares its numbers. Neither slice may be kept.
	//
	// The rules for Taps' see hold: requests inside See fail with ErrInTap, and the model waits for it.
	// If keys and values had to be given back meanwhile, positions are computed, and seen, again.
	See func(n Node, positions []int, values []float32)
}

// hook is h as the engine has it.
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

// hook gives the session an empty sequence that o's hooks see, or takes such a one away.
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

// hookedPlan returns the plan of Taps and of requests with hooks, which its first use makes.
func (m *Model) hookedPlan(ctx context.Context) (*engine.Plan, error) {
	return m.planOf(ctx, &m.tapped, engine.Options{Hooks: true})
}
