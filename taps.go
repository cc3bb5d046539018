package karat

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
)

// Node is an operation of a model's graph.
type Node struct {
	Name  string // after GGUF's tensor names: blk.3.attn_q
	HF    string // of the PyTorch module that has the same output, "" if none has
	Op    string
	Layer int   // -1 outside the layers
	Shape []int // of a row's value
}

// Nodes lists the model's operations in the order in which they are computed. Operations
// without a value, such as store_kv, are left out.
func (m *Model) Nodes() []Node {
	var list []Node
	for _, n := range m.opened.Graph.Nodes {
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
		return fmt.Errorf("karat: %w", errNilContext)
	}
	if see == nil {
		return errors.New("karat: taps: no function that sees the values")
	}
	m.tapping.Lock()
	defer m.tapping.Unlock()
	e, err := m.tappedEngine(ctx)
	if err != nil {
		return err
	}
	m.see = func(n *graph.Node, values []float32) { see(node(n), values) }
	_, err = feed(ctx, e, ids)
	return err
}

// tappedEngine is the engine of Taps, made when it is asked for first.
func (m *Model) tappedEngine(ctx context.Context) (*engine.Engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.tapped != nil {
		return m.tapped, nil
	}
	e, err := model.Compile(ctx, m.opened.Graph, m.opened.Backend, engine.Options{Context: m.opened.Engine.Context(), Adapters: m.opened.Blend, Want: func(*graph.Node) bool { return true },
		Tap: func(n *graph.Node, values []float32) { m.see(n, values) }})
	if err == nil {
		m.tapped = e
	}
	return e, err
}
