// Package seedoss is the decoder of ByteDance's Seed-OSS.
//
// Differences from Llama: projections to queries, keys and values may have biases, without one behind attention.
//
// Source: transformers, models/seed_oss/modeling_seed_oss.py; llama.cpp, src/models/seed-oss.cpp. published.json: the
// sizes of MLX Swift's test of Seed-OSS-36B, and transformers' configuration. The golden's record is of a program after
// the modeling file, in C++ and Python, and not of PyTorch.
package seedoss

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	AttentionBias bool `json:"attention_bias"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     Attention     `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLP      family.MLP    `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"attention_bias"`
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"attention_bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	})
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim)   // [T, heads·dim]
	k := family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim) // [T, kvHeads·dim]
	v := family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim) //
	q, k = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn), g.RoPE("k", g.Heads(k, m.HeadDim), m.turn)
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
