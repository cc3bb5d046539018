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

// TestCompileWithoutMemory: what has no room is an error that tells how much it is, also behind a product that shares a loop.
func TestCompileWithoutMemory(t *testing.T) {
	const k, many = 32, 1 << 19 // of as many rows as below, more than an address space
	weight := func(rows int) *graph.Weight {
		return &graph.Weight{GGUF: "w", Tensor: tensor.Tensor{Name: "w", DType: tensor.Q4_0, Shape: tensor.Shape{rows, k}, Data: make([]byte, 18*rows)}}
	}
	r := graph.New()
	x := r.Embed(weight(4), 4, k, 1)
	y := r.Linear(weight(k), x, k)
	r.Outputs(r.Linear(weight(k), r.Add(y, r.Slice(r.Linear(weight(many), x, many), 0, k)), k))
	g, err := r.Graph()
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{Threads: 1})
	defer b.Close()
	if _, err := b.Compile(g, backend.Options{Rows: 1 << 26, Outputs: 1}); err == nil || !strings.Contains(err.Error(), "bytes of memory") {
		t.Error(err)
	}
}
