package cpu

import (
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCompilePanics: a panic while weights are repacked is an error, and the
// backend can be closed.
func TestCompilePanics(t *testing.T) {
	b := New(Options{Threads: 1})
	w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q4_0, Shape: tensor.Shape{1, 0}, Data: make([]byte, 18)}}
	g := &graph.Graph{Nodes: []*graph.Node{{Op: graph.Linear, W: []*graph.Weight{w}}}}
	if _, err := b.Compile(g, backend.Options{}); err == nil {
		t.Error("no error")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
