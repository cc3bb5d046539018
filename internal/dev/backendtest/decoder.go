package backendtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// Attributes is a small model of random weights whose layers have the attributes that few
// families have: sinks, caps, chunks, latent keys, rope of a part of the head and by sections, limits of gate
// and up, and all rules of routing. Its tokens are 0 to Vocab-1.
func Attributes(t testing.TB, seed uint64) *graph.Graph {
	t.Helper()
	m := &model{newSketch(seed)}
	h := m.Embed(m.named("token_embd", 1, Vocab, hidden), Vocab, hidden, 1)
	for i, layer := range []func(l *modelLayer, x *graph.Node) (attention, mlp *graph.Node){(*modelLayer).sinks,
		(*modelLayer).chunks, (*modelLayer).window, (*modelLayer).latent} {
		l := &modelLayer{m, m.Layer(i), i, h}
		a, _ := layer(l, l.RMSNorm(l.ones("attn_norm", hidden), h, 1e-6, 0))
		l.h = l.Add(h, a)
		_, f := layer(l, nil)
		h = l.Add(l.h, f)
	}
	h = m.RMSNorm(m.named("output_norm", 1, hidden), m.Outputs(h), 1e-6, 0)
	m.Linear(m.named("output", 1, Vocab, hidden), h, Vocab)
	return m.graph(t)
}

const hidden, modelExperts, modelFF = 64, 8, 48

type model struct{ *sketch }

// modelLayer is a layer that is being recorded.
type modelLayer struct {
	*model
	graph.Builder
	i int
	h *graph.Node // the stream that enters the half
}

// named is a weight whose values are about gain/sqrt(columns).
func (m *model) named(name string, gain float64, shape ...int) *graph.Weight {
	w := newWeight(m.r, name, tensor.F32, shape...)
	if len(shape) > 1 {
		gain /= math.Sqrt(float64(shape[len(shape)-1]))
	}
	for b := w.Data; len(b) > 0; b = b[4:] {
		v := gain * float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	}
	w.HF = "model." + name
	return w
}

func (l *modelLayer) weight(name string, gain float64, shape ...int) *graph.Weight {
	w := l.named(fmt.Sprintf("blk.%d.%s", l.i, name), gain, shape...)
	w.HF = fmt.Sprintf("model.layers.%d.%s", l.i, name)
	return w
}

func (l *modelLayer) ones(name string, n int) *graph.Weight { return l.weight(name, 1, n) }

// heads is a product of x, as heads.
func (l *modelLayer) heads(name string, x *graph.Node, count, dim int) *graph.Node {
	return l.Builder.Heads(l.Builder.Linear(l.weight(name, 1.4, count*dim, hidden), x, count*dim), dim)
}

// attend is attention of 4 heads to 2 as a and turn say.
func (l *modelLayer) attend(x *graph.Node, a graph.AttentionAttr, turn graph.RoPEAttr,
	sinks *graph.Weight) *graph.Node {
	const heads = 4
	b, kv := l.Builder, a.KV
	kv.Layer = l.i
	q, k := b.RoPE("q", l.heads("attn_q", x, heads, kv.Dim), turn),
		b.RoPE("k", l.heads("attn_k", x, kv.Heads, kv.Dim), turn)
	var v *graph.Node
	if !kv.Latent {
		v = l.heads("attn_v", x, kv.Heads, kv.Values())
	}
	b.StoreKV(kv, k, v)
	a.Scale = 0.25
	return b.Linear(l.weight("attn_output", 1, hidden, heads*kv.Values()), b.AttentionWith(q, a, sinks), hidden)
}

func (l *modelLayer) norm() *graph.Node {
	return l.Builder.RMSNorm(l.ones("ffn_norm", hidden), l.h, 1e-6, 0)
}

// experts is routed as a says, by k of them.
func (l *modelLayer) experts(r graph.RouteAttr, k int, e graph.ExpertsAttr, bias bool) *graph.Node {
	b, x := l.Builder, l.norm()
	var choice *graph.Weight
	if bias {
		choice = l.weight("exp_probs_b", 1, modelExperts)
	}
	route := b.RouteWith(b.Linear(l.weight("ffn_gate_inp", 1, modelExperts, hidden), x, modelExperts), k, r,
		nil, choice)
	rows := []int{2 * modelFF}
	switch e.Form {
	case graph.Apart:
		rows = []int{modelFF, modelFF}
	case graph.Ungated:
		rows = []int{modelFF}
	}
	var matrices, biases []*graph.Weight
	for i, n := range append(rows, hidden) {
		in := hidden
		if i == len(rows) {
			in = modelFF
		}
		matrices = append(matrices, l.weight(fmt.Sprintf("ffn_exps_%d", i), 1.4, modelExperts, n, in))
		if e.Biased {
			biases = append(biases, l.weight(fmt.Sprintf("ffn_exps_%d.bias", i), 1, modelExperts, n))
		}
	}
	return b.ExpertsWith(e, matrices, biases, x, route, modelExperts, modelFF)
}

// Each layer records its attention of x, or its other half.

func (l *modelLayer) sinks(x *graph.Node) (attention, mlp *graph.Node) {
	if x != nil {
		a := graph.AttentionAttr{KV: &graph.KV{Heads: 2, Dim: 16}, Cap: 2}
		return l.attend(x, a, graph.RoPEAttr{Freqs: []float64{1, 0.1, 0.01, 0.001}, Dim: 8, Interleaved: true},
			l.weight("attn_sinks", 1, 4)), nil
	}
	b, y := l.Builder, l.norm()
	gate, up := b.Linear(l.weight("ffn_gate", 1.4, modelFF, hidden), y, modelFF),
		b.Linear(l.weight("ffn_up", 1.4, modelFF, hidden), y, modelFF)
	y = b.GLUWith(graph.ActAttr{Limit: 1, Alpha: 1.702, Plus: 1}, gate, up)
	return nil, b.Linear(l.weight("ffn_down", 1, hidden, modelFF), y, hidden)
}

func (l *modelLayer) chunks(x *graph.Node) (attention, mlp *graph.Node) {
	if x != nil {
		a := graph.AttentionAttr{KV: &graph.KV{Heads: 2, Dim: 16, ValueDim: 24, Window: 6, Chunked: true}}
		return l.attend(x, a, graph.RoPEAttr{
			Freqs:     []float64{1, 0.3162, 0.1, 0.03162, 0.01, 0.003162, 0.001, 0.0003162},
			Magnitude: 1.3, Sections: [3]int{2, 3, 3}, Woven: true}, nil), nil
	}
	r := graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: true, Eps: 0.25, Factor: 1.5, Groups: 4, Kept: 2, Best: 2}
	return nil, l.experts(r, 3,
		graph.ExpertsAttr{Form: graph.Interleaved, Biased: true,
			ActAttr: graph.ActAttr{Limit: 1, Alpha: 1.702, Plus: 1}}, true)
}

func (l *modelLayer) window(x *graph.Node) (attention, mlp *graph.Node) {
	if x != nil {
		a := graph.AttentionAttr{KV: &graph.KV{Heads: 1, Dim: 8, Window: 5}}
		return l.attend(x, a, graph.RoPEAttr{Freqs: []float64{1, 0.01}, Dim: 4}, l.weight("attn_sinks", 1, 4)), nil
	}
	return nil, l.experts(graph.RouteAttr{Weigh: graph.SigmoidEach}, 1,
		graph.ExpertsAttr{OnInput: true, ActAttr: graph.ActAttr{Act: graph.GELUErf}}, false)
}

func (l *modelLayer) latent(x *graph.Node) (attention, mlp *graph.Node) {
	if x != nil {
		a := graph.AttentionAttr{KV: &graph.KV{Heads: 1, Dim: 40, ValueDim: 32, Latent: true}}
		return l.attend(x, a, graph.RoPEAttr{Freqs: []float64{1, 0.1, 0.01}, Interleaved: true, Dim: 6}, nil), nil
	}
	return nil, l.experts(graph.RouteAttr{Weigh: graph.SoftmaxAll}, 2,
		graph.ExpertsAttr{Form: graph.Apart, ActAttr: graph.ActAttr{Act: graph.ReLUSquared}}, false)
}

// Encoder is a small model of random weights, whose tokens are 0 to Vocab-1: its one layer sees later rows,
// too, and its result is a mean of all rows.
func Encoder(t testing.TB, seed uint64) *graph.Graph {
	t.Helper()
	m := &model{newSketch(seed)}
	h := m.Embed(m.named("token_embd", 1, Vocab, hidden), Vocab, hidden, 1)
	l := &modelLayer{m, m.Layer(0), 0, h}
	b := l.Builder
	norm := func(name string, x *graph.Node) *graph.Node {
		return b.LayerNorm(l.ones(name, hidden), l.weight(name+".bias", 1, hidden), x, 1e-6)
	}
	x := norm("attn_norm", h)
	q := b.Concat(l.heads("attn_q_a", x, 4, 8), l.heads("attn_q_b", x, 4, 8))
	kv := &graph.KV{Heads: 2, Dim: 16}
	b.StoreKV(kv, l.heads("attn_k", x, 2, 16), l.heads("attn_v", x, 2, 16))
	x = b.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 0.25, Bidirectional: true}, nil)
	h = b.Add(h, b.Linear(l.weight("attn_output", 1, hidden, hidden), x, hidden))
	x = b.Act(graph.GELUErf, b.Linear(l.weight("ffn_up", 1.4, modelFF, hidden), norm("ffn_norm", h), modelFF))
	h = b.Add(h, b.Linear(l.weight("ffn_down", 1, hidden, modelFF), x, hidden))
	m.Linear(m.named("output", 1, Vocab, hidden), m.Pool(graph.Mean, h), Vocab)
	return m.graph(t)
}
