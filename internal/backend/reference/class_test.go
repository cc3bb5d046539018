package reference_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// layer is a decoder layer's attention with a window of 3 and a head.
func layer(t *testing.T) *graph.Graph {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	weight := func(name string, shape ...int) *graph.Weight {
		w := &graph.Weight{GGUF: name, HF: name, Tensor: tensor.Tensor{Name: name, DType: tensor.F32, Shape: shape}}
		for range w.Shape.Size() {
			w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(r.Float32()-0.5))
		}
		return w
	}
	g := graph.New()
	h := g.Embed(weight("embed", 10, 8), 10, 8, 1)
	b := g.Layer(0)
	x := b.RMSNorm(weight("norm", 8), h, 1e-6, 0)
	freqs := []float64{1, 0.1}
	store := &graph.KV{Heads: 1, Dim: 4, Window: 3}
	b.StoreKV(store, b.RoPE("k", b.Heads(b.Linear(weight("k", 4, 8), x, 4), 4), graph.RoPEAttr{Freqs: freqs}), b.Heads(b.Linear(weight("v", 4, 8), x, 4), 4))
	q := b.RoPE("q", b.Heads(b.Linear(weight("q", 8, 8), x, 8), 4), graph.RoPEAttr{Freqs: freqs})
	h = b.Add(h, b.Linear(weight("o", 8, 8), b.Attention(q, store, 0.5), 8))
	g.Linear(weight("head", 10, 8), g.RMSNorm(weight("last", 8), g.Outputs(h), 1e-6, 1), 10)
	made, err := g.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// logits runs six tokens in steps of four and two, and returns all that is stored behind them.
func logits(g *graph.Graph, b reference.Backend) (all []float32, stored []float64, err error) {
	plan, err := b.Compile(g, backend.Options{Rows: 4})
	if err != nil {
		return nil, nil, err
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 6, Chunk: 4})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		return nil, nil, err
	}
	q := pool.NewSequence()
	for _, tokens := range [][]int32{{1, 7, 2, 9}, {3, 3}} {
		s := &backend.Step{Tokens: tokens, Cache: cache}
		if err := q.Grow(len(tokens)); err != nil {
			return nil, nil, err
		}
		for i := range tokens {
			s.Seqs, s.Outputs, s.Pos = append(s.Seqs, q), append(s.Outputs, int32(i)), append(s.Pos, int32(q.Len()-len(tokens)+i))
		}
		y, err := plan.Run(context.Background(), s, nil)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, y...)
	}
	return all, reference.Stored(cache), nil
}

// TestClass wants all that a node gives to be a number of the class's format, and what is stored one of that of the
// keys and values.
func TestClass(t *testing.T) {
	g := layer(t)
	exact, _, err := logits(g, reference.Backend{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []round.Class{{Activations: round.F32}, {Activations: round.F32, Lanes: 8}, {Activations: round.F16, KV: round.BF16}, {Activations: round.BF16},
		{Activations: round.Q8_32}, {Activations: round.Q8_256}, {KV: round.F16}, {Activations: round.I16_32, KV: round.F16}} {
		format := c.Activations.Stored()
		got, stored, err := logits(g, reference.Backend{Class: c, See: func(n *graph.Node, y []float64) {
			for _, v := range y {
				if format.To(v) != v {
					t.Errorf("%v: %v gives %v", c, n, v)
					break
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range stored {
			if c.KV.To(v) != v {
				t.Errorf("%v: %v is stored", c, v)
			}
		}
		var worst float64
		for i, v := range got {
			worst = max(worst, math.Abs(float64(v-exact[i])))
		}
		if !(worst > 0 && worst < 0.1) {
			t.Errorf("%v: %v from float64", c, worst)
		}
	}
}

func TestClassUnknown(t *testing.T) {
	_, err := reference.Backend{Class: round.Class{KV: "q4"}}.Compile(layer(t), backend.Options{})
	if err == nil || !strings.Contains(err.Error(), `kv "q4", want`) {
		t.Error(err)
	}
}

// TestRingLost wants an error where attention looks farther back than the store's ring goes.
func TestRingLost(t *testing.T) {
	g := layer(t)
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok {
			all := *a.KV
			all.Window = 0
			n.Attr = graph.AttentionAttr{KV: &all, Scale: a.Scale}
		}
	}
	b := reference.Backend{}
	plan, err := b.Compile(g, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 300, Chunk: 1})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	q := pool.NewSequence()
	for i := range 300 {
		if err := q.Grow(1); err != nil {
			t.Fatal(err)
		}
		_, err := plan.Run(context.Background(), &backend.Step{Tokens: []int32{1}, Pos: []int32{int32(i)}, Seqs: []*kv.Sequence{q}, Cache: cache}, nil)
		if lost := i >= 128; (err != nil) != lost || lost && !strings.Contains(err.Error(), "is no longer held") {
			t.Fatalf("position %d: %v", i, err)
		}
	}
}
