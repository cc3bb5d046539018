// Package granite is the Granite 3 decoder.
//
// Differences from Llama: four multipliers: of the embedding, of the attention's scores in the place of
// 1/sqrt(head size), of the output of each half of a layer, and of the logits, divided by the multiplier.
//
// Source: transformers, models/granite/modeling_granite.py; IBM 2024, Granite 3.0 Language Models.
package granite

import (
	"cmp"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	AttentionBias   bool    `json:"attention_bias"`
	MLPBias         bool    `json:"mlp_bias"`
	EmbedMultiplier float64 `json:"embedding_multiplier"` // 0 switches off each of the four
	AttnMultiplier  float64 `json:"attention_multiplier"`
	HalfMultiplier  float64 `json:"residual_multiplier"`
	LogitsScaling   float64 `json:"logits_scaling"`
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
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP      MLP           `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	family.Biased `gguf:"" hf:""`
	OBias         *graph.Weight `gguf:"attn_output.bias" hf:"o_proj.bias" if:"attention_bias"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	Gate     *graph.Weight `gguf:"ffn_gate" hf:"gate_proj"`
	GateBias *graph.Weight `gguf:"ffn_gate.bias" hf:"gate_proj.bias" if:"mlp_bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"up_proj.bias" if:"mlp_bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"down_proj.bias" if:"mlp_bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	c.EmbedMultiplier, c.HalfMultiplier, c.LogitsScaling = cmp.Or(c.EmbedMultiplier, 1), cmp.Or(c.HalfMultiplier, 1),
		cmp.Or(c.LogitsScaling, 1)
	c.AttnMultiplier = cmp.Or(c.AttnMultiplier, 1/math.Sqrt(float64(c.HeadDim)))
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
	h = family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
	return g.Scale(h, 1/m.LogitsScaling)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m)
	h = g.Add(h, g.Scale(x, m.HalfMultiplier))
	x = l.MLP.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m)
	h = g.Add(h, g.Scale(x, m.HalfMultiplier))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes, &m.turn)
	g.StoreKV(kv, k, v)
	return family.Linear(g, a.O, a.OBias, g.Attention(q, kv, m.AttnMultiplier), m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	gate := family.Linear(g, p.Gate, p.GateBias, x, m.IntermediateSize)
	up := family.Linear(g, p.Up, p.UpBias, x, m.IntermediateSize)
	return family.Linear(g, p.Down, p.DownBias, g.GLU(m.Act, gate, up), m.HiddenSize)
}
