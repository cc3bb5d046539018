// Package seedoss is the decoder of ByteDance's Seed-OSS.
//
// Differences from Llama: projections to queries, keys and values may have biases, without one behind attention.
//
// Source: transformers, models/seed_oss/modeling_seed_oss.py; llama.cpp, src/models/seed-oss.cpp. published.json: the
// sizes of MLX Swift's test of Seed-OSS-36B, and transformers' configuration. The golden's record is of a program after
// the modeling file, in C++ and Python, and not of PyTorch.
package seedoss

import (
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
	Attn     family.Biased `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLP      family.MLP    `gguf:"" hf:"mlp"`
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
	h = g.Add(h, l.Attn.Forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, &m.Sizes, &m.turn))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}
