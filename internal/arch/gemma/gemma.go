// Package gemma is the decoder of the first Gemma, and of CodeGemma.
//
// Differences from Llama: norms scaled by 1+w; embeddings scaled by the root of their width, tied to the
// output; tanh GELU; heads whose width together is not the model's.
//
// Source: transformers, models/gemma/modeling_gemma.py; Gemma Team 2024,
// arXiv:2403.08295. published.json has the values of transformers' GemmaConfig, with the sizes of
// google/gemma-2b; the activation was not compared with the publisher's file.
package gemma

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
type Layer struct {
	AttnNorm *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight    `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP      family.MLP       `gguf:"" hf:"mlp"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, float32(math.Sqrt(float64(m.HiddenSize))))
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 1)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.Forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 1), kv, &m.Sizes, &m.turn))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 1), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}
