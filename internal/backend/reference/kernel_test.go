package reference_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
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
	b.StoreKV(store, b.RoPE("k", b.Heads(b.Linear(weight("k", 4, 8), x, 4), 4), freqs), b.Heads(b.Linear(weight("v", 4, 8), x, 4), 4))
	q := b.RoPE("q", b.Heads(b.Linear(weight("q", 8, 8), x, 8), 4), freqs)
	h = b.Add(h, b.Linear(weight("o", 8, 8), b.Attention(q, store, 0.5), 8))
	g.Linear(weight("head", 10, 8), g.RMSNorm(weight("last", 8), g.Outputs(h), 1e-6, 1), 10)
	made, err := g.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// logits runs six tokens in steps of four and two.
func logits(g *graph.Graph, b reference.Backend) ([]float32, error) {
	plan, err := b.Compile(g, backend.Options{Rows: 4})
	if err != nil {
		return nil, err
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g), Context: 6, Chunk: 4})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		return nil, err
	}
	q := pool.NewSequence()
	var all []float32
	for _, tokens := range [][]int32{{1, 7, 2, 9}, {3, 3}} {
		s := &backend.Step{Tokens: tokens, Cache: cache}
		if err := q.Grow(len(tokens)); err != nil {
			return nil, err
		}
		for i := range tokens {
			s.Seqs, s.Outputs, s.Pos = append(s.Seqs, q), append(s.Outputs, int32(i)), append(s.Pos, int32(q.Len()-len(tokens)+i))
		}
		y, err := plan.Run(context.Background(), s, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, y...)
	}
	return all, nil
}

// op is a Backend with a kernel for the nodes of one operation.
func op(o graph.Op, k reference.Kernel) reference.Backend {
	return reference.Backend{Kernel: func(n *graph.Node) reference.Kernel {
		if n.Op == o {
			return k
		}
		return nil
	}}
}

// attend is attention from what a kernel can see.
func attend(c *reference.Call) ([]float64, error) {
	a := c.Node.Attr.(graph.AttentionAttr)
	heads, d := c.Node.In[0].Shape[0], a.KV.Dim
	y := make([]float64, len(c.In[0]))
	for t, p := range c.Step.Pos {
		for h := range heads {
			q := c.In[0][(t*heads+h)*d:][:d]
			var sum float64
			var weights []float64
			first := max(0, int(p)-a.KV.Window+1)
			for pos := first; pos <= int(p); pos++ {
				var s float64
				for j, v := range c.Keys(a.KV, t, pos) {
					s += v * q[j]
				}
				weights = append(weights, math.Exp(s*a.Scale))
				sum += weights[len(weights)-1]
			}
			for i, w := range weights {
				for j, v := range c.Values(a.KV, t, first+i) {
					y[(t*heads+h)*d+j] += w / sum * v
				}
			}
		}
	}
	return y, nil
}

func TestKernel(t *testing.T) {
	g := layer(t)
	want, err := logits(g, reference.Backend{})
	if err != nil {
		t.Fatal(err)
	}
	wider := func(c *reference.Call) ([]float64, error) {
		n := *c.Node
		a := n.Attr.(graph.AttentionAttr)
		all := *a.KV
		all.Window = 0
		n.Attr = graph.AttentionAttr{KV: &all, Scale: a.Scale}
		return c.Default(&n)
	}
	for name, x := range map[string]struct {
		b    reference.Backend
		same bool
	}{
		"none": {reference.Backend{Kernel: func(*graph.Node) reference.Kernel { return nil }}, true},
		"every default": {reference.Backend{Kernel: func(*graph.Node) reference.Kernel {
			return func(c *reference.Call) ([]float64, error) { return c.Default(c.Node) }
		}}, true},
		"attention": {op(graph.Attention, attend), true},
		"store": {op(graph.StoreKV, func(c *reference.Call) ([]float64, error) {
			k := c.Node.Attr.(*graph.KV)
			for i, p := range c.Step.Pos {
				if err := c.Store(k, i, int(p), c.In[0][i*4:(i+1)*4], c.In[1][i*4:(i+1)*4]); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}), true},
		"a value from before": {op(graph.Rows, func(c *reference.Call) ([]float64, error) { return c.Default(c.Node, c.Value(c.Node.In[0])) }), true},
		"no window":           {op(graph.Attention, wider), false},
		"nothing stored":      {op(graph.StoreKV, func(*reference.Call) ([]float64, error) { return nil, nil }), false},
		"embedding":           {op(graph.Embed, func(c *reference.Call) ([]float64, error) { return make([]float64, 8*len(c.Step.Tokens)), nil }), false},
		"turned back": {op(graph.RoPE, func(c *reference.Call) ([]float64, error) {
			s := *c.Step
			s.Pos = slices.Repeat([]int32{0}, len(s.Pos))
			c.Step = &s
			return c.Default(c.Node)
		}), false},
	} {
		got, err := logits(g, x.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if slices.Equal(got, want) != x.same {
			t.Errorf("%s: the same logits: %v, want %v", name, !x.same, x.same)
		}
	}
}

func TestKernelErrors(t *testing.T) {
	g := layer(t)
	own := errors.New("its own")
	for want, b := range map[string]reference.Backend{
		"returned 3 values, want 32": op(graph.Embed, func(*reference.Call) ([]float64, error) { return make([]float64, 3), nil }),
		"its own":                    op(graph.Add, func(*reference.Call) ([]float64, error) { return nil, own }),
		"position 6 of row 0's sequence is not held": op(graph.StoreKV, func(c *reference.Call) ([]float64, error) {
			return nil, c.Store(c.Node.Attr.(*graph.KV), 0, 6, c.In[0][:4], c.In[1][:4])
		}),
		"1 keys and 4 values, the store has 4": op(graph.StoreKV, func(c *reference.Call) ([]float64, error) {
			return nil, c.Store(c.Node.Attr.(*graph.KV), 0, 0, c.In[0][:1], c.In[1][:4])
		}),
		"layer 5 stores no keys": op(graph.StoreKV, func(c *reference.Call) ([]float64, error) {
			return nil, c.Store(&graph.KV{Layer: 5, Heads: 1, Dim: 4}, 0, 0, c.In[0][:4], c.In[1][:4])
		}),
		"2 heads of 4, layer 0 stores 4 keys": op(graph.StoreKV, func(c *reference.Call) ([]float64, error) {
			return nil, c.Store(&graph.KV{Heads: 2, Dim: 4}, 0, 0, c.In[0][:4], c.In[1][:4])
		}),
	} {
		if _, err := logits(g, b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
