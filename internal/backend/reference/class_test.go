package reference_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/round"
)

// TestClass wants all that a node gives to be a number of the class's format, a
// kernel's output too, and what is stored one of that of the keys and values.
func TestClass(t *testing.T) {
	g := layer(t)
	exact, err := logits(g, reference.Backend{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []round.Class{{Activations: round.F32}, {Activations: round.F32, Lanes: 8}, {Activations: round.F16, KV: round.BF16}, {Activations: round.BF16},
		{Activations: round.Q8_32}, {Activations: round.Q8_256}, {KV: round.F16}, {Activations: round.I16_32, KV: round.F16}} {
		stored := c.Activations.Stored()
		b := reference.Backend{Class: c, Kernel: func(n *graph.Node) reference.Kernel {
			switch n.Op {
			case graph.Attention:
				return func(k *reference.Call) ([]float64, error) {
					store := n.Attr.(graph.AttentionAttr).KV
					for i, p := range k.Step.Pos {
						for _, v := range slices.Concat(k.Keys(store, i, int(p)), k.Values(store, i, int(p))) {
							if c.KV.To(v) != v {
								t.Errorf("%v: %v is stored", c, v)
							}
						}
					}
					return k.Default(n)
				}
			case graph.Add:
				return func(k *reference.Call) ([]float64, error) {
					y, err := k.Default(n)
					for i := range y {
						y[i] += 1e-9
					}
					return y, err
				}
			case graph.Linear, graph.RMSNorm, graph.RoPE, graph.Rows:
				return func(k *reference.Call) ([]float64, error) {
					for _, v := range k.In[0] {
						if stored.To(v) != v {
							t.Errorf("%v: %v reads %v", c, n, v)
							break
						}
					}
					return k.Default(n)
				}
			}
			return nil
		}}
		got, err := logits(g, b)
		if err != nil {
			t.Fatal(err)
		}
		var worst float64
		for i, v := range got {
			if stored.To(float64(v)) != float64(v) {
				t.Errorf("%v: logit %v", c, v)
			}
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

// TestRingLost wants an error where a kernel looks farther back than the store's
// ring goes.
func TestRingLost(t *testing.T) {
	g := layer(t)
	b := op(graph.Attention, func(c *reference.Call) ([]float64, error) {
		n := *c.Node
		a := n.Attr.(graph.AttentionAttr)
		all := *a.KV
		all.Window = 0
		n.Attr = graph.AttentionAttr{KV: &all, Scale: a.Scale}
		return c.Default(&n)
	})
	plan, err := b.Compile(g, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g), Context: 300, Chunk: 1})
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
