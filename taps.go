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
}

// Nodes lists the model's operations in the order in which they are computed. Those
// that have no value, such as store_kv, are left out.
func (m *Model) Nodes() []Node {
	var list []Node
	for _, n := range m.graph.Nodes {
		if n.Op != graph.StoreKV {
			list = append(list, node(n))
		}
	}
	return list
}

func node(n *graph.Node) Node {
	return Node{n.Name, n.HF, n.Op.String(), n.Layer, slices.Clone(n.Shape)}
}

// Taps computes ids, as one sequence from position 0, and calls see with the values of
// all nodes, each node's as often as it takes until it had the values of all ids, in
// order: values are [rows] and Node.Shape, row-major. The numbers are those of an
// untapped run. see must not keep values. What waits for the model waits for see: in it
// requests to the model and Close fail with ErrInTap, and must not be left to other
// goroutines that see waits for. If see panics, so does Taps; the model goes on.
func (m *Model) Taps(ctx context.Context, ids []int, see func(n Node, values []float32)) error {
	if m.engine.InTap() {
		return ErrInTap
	}
	if see == nil {
		return errors.New("karat: taps: no function that sees the values")
	}
	m.tapping.Lock()
	defer m.tapping.Unlock()
	e, err := m.tappedEngine()
	if err != nil {
		return err
	}
	m.see = func(n *graph.Node, values []float32) { see(node(n), values) }
	_, err = feed(ctx, e, ids)
	return err
}

// tappedEngine is the engine of Taps, made when it is asked for first.
func (m *Model) tappedEngine() (*engine.Engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.tapped != nil {
		return m.tapped, nil
	}
	e, err := engine.New(m.graph, m.backend, engine.Options{Context: m.engine.Context(), Want: func(*graph.Node) bool { return true },
		Tap: func(n *graph.Node, values []float32) { m.see(n, values) }})
	if err == nil {
		m.tapped = e
	}
	return e, err
}
