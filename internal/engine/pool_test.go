package engine_test

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPool: a model that pools rows computes all rows of a prompt, also where another
// sequence has left the same one, and refuses a prompt that takes two steps.
func TestPool(t *testing.T) {
	weight := func(name string, rows, cols int) *graph.Weight {
		w := &graph.Weight{GGUF: name, HF: name, Tensor: tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{rows, cols}}}
		for i := range rows * cols {
			w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(float32(i*i%23)/7-1.3))
		}
		return w
	}
	b := graph.New()
	x := b.Embed(weight("token_embd", 50, 8), 50, 8, 1)
	kv := &graph.KV{Heads: 2, Dim: 4}
	b.StoreKV(kv, b.Heads(x, 4), b.Heads(x, 4))
	b.Linear(weight("output", 5, 8), b.Pool(graph.Mean, b.Attention(b.Heads(x, 4), kv, 0.5)), 5)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	back := cpu.New(cpu.Options{Threads: 1})
	defer back.Close()
	e, err := engine.New(g, back, engine.Options{Context: 256, Chunk: 150})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	prompt := ids(50, 140, 0)
	var first []float32
	for range 2 {
		s := e.NewSequence()
		if n := s.Prefix(prompt, ""); n != 0 {
			t.Errorf("%d rows of another sequence's prompt are taken", n)
		}
		out, err := s.Feed(context.Background(), prompt, 1)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !slices.Equal(first, out[0]) {
			t.Error("the same prompt has other bits")
		}
		first = slices.Clone(out[0])
		s.Close()
	}
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Feed(context.Background(), ids(50, 151, 0), 1); err == nil || !strings.Contains(err.Error(), "one step of at most 150 tokens") {
		t.Errorf("a prompt of two steps is pooled: %v", err)
	}
	feed(t, s, prompt, 1)
	if _, err := s.Feed(context.Background(), prompt[:1], 1); err == nil {
		t.Error("a prompt that was pooled goes on")
	}
	if n := s.Rewind(prompt); n != 0 {
		t.Errorf("%d rows of the sequence's own prompt are taken", n)
	}
	// Prompts that do not fit one step together are computed one behind the other.
	release := e.Hold()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if !slices.Equal(scratch(t, e, prompt, 1)[0], first) {
				t.Error("beside others: other bits")
			}
		})
		e.WaitQueued(i + 1)
	}
	release()
	wg.Wait()
}
