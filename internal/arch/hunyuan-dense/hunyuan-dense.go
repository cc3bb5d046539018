// Package hunyuandense is the decoder of Hunyuan's dense models.
//
// Differences from Llama: norms of each head of queries and keys, after their rotation.
//
// Source: transformers, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py; llama.cpp,
// src/models/hunyuan-dense.cpp. published.json: Hunyuan-7B-Instruct.
package hunyuandense

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config = family.Rotary

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer = family.Layer[Attention, family.MLP]

// Attention is grouped-query attention over normed queries and keys.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QNorm            *graph.Weight `gguf:"attn_q_norm" hf:"query_layernorm"`
	KNorm            *graph.Weight `gguf:"attn_k_norm" hf:"key_layernorm"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return l.Attn.forward(g, x, kv, m) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q = g.RMSNorm(a.QNorm, g.RoPE("q", q, m.turn), m.RMSNormEps, 0) //
	k = g.RMSNorm(a.KNorm, g.RoPE("k", k, m.turn), m.RMSNormEps, 0) //
	g.StoreKV(kv, k, v)                                             //
	y := g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim)))        // [T, heads·dim]
	return g.Linear(a.O, y, m.HiddenSize)
}
