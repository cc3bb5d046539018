// Package eurobert is the EuroBERT encoder.
//
// Differences from Llama: all of a text is seen from everywhere; no head.
//
// Source: transformers, models/eurobert/modeling_eurobert.py; Boizard et al. 2025, arXiv:2503.05500.
// published.json: EuroBERT-210m.
package eurobert

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	IntermediateSize int              `json:"intermediate_size"`
	RMSNormEps       float32          `json:"rms_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole encoder.
type Model struct {
	Config
	turn   graph.RoPEAttr
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []Layer       `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"model.norm"`
}

// Layer is an encoder layer.
type Layer struct {
	AttnNorm *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight    `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP      family.MLP       `gguf:"" hf:"mlp"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to rows [outputs, hidden].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	return g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	g.StoreKV(kv, k, v)
	look := graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(m.HeadDim)), Bidirectional: true}
	return g.Linear(a.O, g.AttentionWith(q, look, nil), m.HiddenSize)
}
