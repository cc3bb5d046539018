package cpu

import (
	"math"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCompileErrors: a weight that cannot be repacked is an error, a panic over it
// too, and the backend can be closed.
func TestCompileErrors(t *testing.T) {
	for _, c := range []struct {
		shape tensor.Shape
		want  string
	}{
		{tensor.Shape{1, 0}, "divide by zero"},
		{tensor.Shape{math.MaxInt / 32, 1, 32}, "more than this machine can address"},
	} {
		b := New(Options{Threads: 1})
		w := &graph.Weight{Tensor: tensor.Tensor{DType: tensor.Q4_0, Shape: c.shape, Data: make([]byte, 18)}}
		g := &graph.Graph{Nodes: []*graph.Node{{Op: graph.Linear, W: []*graph.Weight{w}}}}
		if _, err := b.Compile(g, backend.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.shape, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
