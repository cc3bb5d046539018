// Package granitemoe is the decoder of Granite 3 with experts.
//
// Differences from Granite: the feed-forward part of each layer is a mixture of experts, perhaps with an MLP
// beside them.
//
// Source: transformers, models/granitemoe/modeling_granitemoe.py and
// models/granitemoeshared/modeling_granitemoeshared.py; IBM 2024, Granite 3.0 Language Models.
// published.json has the values of a Granite 3 with 32 experts, as a public repository's tests quote them.
package granitemoe

import (
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	ExpertSize      int        `json:"intermediate_size"`
	SharedSize      int        `json:"shared_intermediate_size"` // 0 without an MLP beside the experts
	NumExperts      int        `json:"num_experts"`
	TopK            int        `json:"top_k_experts"`
	EmbedMultiplier float64    `json:"embedding_multiplier"`
	AttnMultiplier  float64    `json:"attention_multiplier"`
	HalfMultiplier  float64    `json:"residual_multiplier"`
	LogitsScaling   float64    `json:"logits_scaling"`
	Rope            rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight    `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MoE      MoE              `gguf:"" hf:"block_sparse_moe"`
	Shared   MLP              `gguf:"" hf:"shared_mlp"`
}

// MoE is the mixture of experts. Each of the last three weights is a stack over all experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"router.layer"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"gate_linear"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"up_linear"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"output_linear"`
}

// MLP is the gated feed-forward part beside the experts.
type MLP struct {
	Gate *graph.Weight `gguf:"ffn_gate_shexp" hf:"gate_linear" if:"shared_intermediate_size"`
	Up   *graph.Weight `gguf:"ffn_up_shexp" hf:"up_linear" if:"shared_intermediate_size"`
	Down *graph.Weight `gguf:"ffn_down_shexp" hf:"output_linear" if:"shared_intermediate_size"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Scale(g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1), m.EmbedMultiplier)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return g.Scale(family.Logits(g, m.Output, m.Embed, h, m.VocabSize), 1/m.LogitsScaling)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv)
	h = g.Add(h, g.Scale(x, m.HalfMultiplier))
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	y := l.MoE.forward(g, x, m)
	if m.SharedSize > 0 {
		y = g.Add(y, (*family.MLP)(&l.Shared).Forward(g, x, m.Act, m.SharedSize, m.HiddenSize))
	}
	return g.Name(g.Add(h, g.Scale(y, m.HalfMultiplier)), "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, m.AttnMultiplier), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.Route(g.Linear(e.Router, x, m.NumExperts), nil, m.TopK)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	return g.Name(y, "ffn_experts", "block_sparse_moe.experts.out")
}
