// Package glm4 is the GLM-4 decoder, as of 0414.
//
// Differences from Llama: norms before and after each half of a layer; half of a head's features turn, in
// neighbouring pairs; queries, keys and values may have biases, and the output has none; a single projection
// makes the MLP's gate and up.
//
// Source: transformers, models/glm4/modeling_glm4.py; Team GLM 2024, arXiv:2406.12793.
package glm4

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
	AttnNorm     *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn         family.Biased `gguf:"" hf:"self_attn"`
	PostAttnNorm *graph.Weight `gguf:"post_attention_norm" hf:"post_self_attn_layernorm"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP          MLP           `gguf:"" hf:"mlp"`
	PostMLPNorm  *graph.Weight `gguf:"post_ffw_norm" hf:"post_mlp_layernorm"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	GateUp *graph.Weight `gguf:"ffn_up" hf:"gate_up_proj"`
	Down   *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	turn.Interleaved = true
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	})
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := l.Attn.Forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, &m.Sizes, &m.turn)
	h = g.Add(h, g.RMSNorm(l.PostAttnNorm, x, m.RMSNormEps, 0))
	x = l.MLP.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m)
	h = g.Add(h, g.RMSNorm(l.PostMLPNorm, x, m.RMSNormEps, 0))
	return g.Name(h, "out", "out")
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	both := g.Linear(p.GateUp, x, 2*m.IntermediateSize) // [T, 2·ff], the gate first
	gate, up := g.Slice(both, 0, m.IntermediateSize), g.Slice(both, m.IntermediateSize, m.IntermediateSize)
	return g.Linear(p.Down, g.GLU(m.Act, gate, up), m.HiddenSize)
}
