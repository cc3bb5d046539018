package mistake

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// values computes a prompt whose last row's logits alone are wanted, and returns all values
// by node.
func values(t *testing.T, g *graph.Graph, edits reference.Edits, prompt []int32) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	e, err := engine.New(g, reference.Backend{Edits: edits}, engine.Options{Context: len(prompt), Want: func(*graph.Node) bool { return true },
		Tap: func(n *graph.Node, out []float32) { all[n.Name] = append(all[n.Name], out...) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Feed(context.Background(), prompt, 1); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPooled injects the faults of pooling, and of parts that have one size.
func TestPooled(t *testing.T) {
	b, d := graph.New(), 6
	w := func(name string) *graph.Weight {
		w := &graph.Weight{GGUF: name, HF: name, Tensor: tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{16, d}}}
		for i := range 16 * d {
			w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(float32(i*i%23)/7-1.3))
		}
		return w
	}
	x := b.Embed(w("token_embd"), 16, d, 1)
	both := b.Concat(b.Slice(x, 3, 3), b.Slice(x, 0, 3))
	b.Linear(w("output"), b.Pool(graph.Mean, b.L2Norm(b.Slice(both, 0, d), 1e-6)), 16)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{3, 1, 4, 1, 5}
	want := values(t, g, nil, ids)
	for fault, node := range map[Fault]string{{ID: "pooling"}: "pool", {ID: "parts_swapped", Layers: "outside"}: "concat", {ID: "slice_part", Where: "slice", Layers: "outside"}: "slice", {ID: "norm_length", Layers: "outside"}: "l2_norm"} {
		h, edits, _, err := Inject(g, []Fault{fault})
		if err != nil {
			t.Fatalf("%v: %v", fault, err)
		}
		got := values(t, h, edits, ids)
		if !(distance(want[node], got[node]) > 0.1) || !(distance(want["output"], got["output"]) > 1e-3) {
			t.Errorf("%v: %s is %g away, logits %g", fault, node, distance(want[node], got[node]), distance(want["output"], got["output"]))
		}
	}
}
