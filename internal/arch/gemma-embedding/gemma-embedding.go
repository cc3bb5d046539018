// Package gemmaembedding is EmbeddingGemma: Gemma 3 without a head, whose tokens also see later ones.
//
// Differences from Llama: all of a text is seen from everywhere, and from sliding layers half a window on
// each side; norms before and after each half of a layer, scaled by 1+w; normed queries and keys; each kind
// of layer with its own rotary base; a configured attention scale; scaled embeddings; tanh GELU; no head. The
// way from rows to a vector, with two dense layers, is no part of the graph (package embed).
//
// Source: transformers, models/gemma3/modeling_gemma3.py; Gemma Team 2025, arXiv:2503.19786.
package gemmaembedding

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
	QueryPreAttn     float64          `json:"query_pre_attn_scalar"`
	LayerTypes       []string         `json:"layer_types"`
	SlidingWindow    int              `json:"sliding_window"`
	RMSNormEps       float32          `json:"rms_norm_eps"`
	Act              graph.Activation `json:"hidden_activation"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole encoder.
type Model struct {
	Config
	full, sliding graph.RoPEAttr
	Embed         *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers        []Layer       `gguf:"blk" hf:"model.layers"`
	Norm          *graph.Weight `gguf:"output_norm" hf:"model.norm"`
	Dense2        *graph.Weight `gguf:"dense_2" hf:"2_Dense.linear" optional:"behind the pooling"`
	Dense3        *graph.Weight `gguf:"dense_3" hf:"3_Dense.linear" optional:"behind the pooling"`
}

// Layer is an encoder layer.
type Layer struct {
	AttnNorm     *graph.Weight          `gguf:"attn_norm" hf:"input_layernorm"`
	Attn         family.NormedAttention `gguf:"" hf:"self_attn"`
	PostAttnNorm *graph.Weight          `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLPNorm      *graph.Weight          `gguf:"ffn_norm" hf:"pre_feedforward_layernorm"`
	MLP          family.MLP             `gguf:"" hf:"mlp"`
	PostMLPNorm  *graph.Weight          `gguf:"post_ffw_norm" hf:"post_feedforward_layernorm"`
}

// layerConfig holds the settings of a layer.
type layerConfig struct {
	kv   *graph.KV
	turn graph.RoPEAttr
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	full, sliding, err := family.TurnBoth(c.HeadDim, c.Rope)
	return &Model{Config: c, full: full, sliding: sliding, Layers: make([]Layer, c.NumLayers)}, err
}

func (m *Model) layer(i int) layerConfig {
	kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
	if m.LayerTypes[i] == "full_attention" {
		return layerConfig{kv, m.full}
	}
	kv.Window = m.SlidingWindow/2 + 1 // on either side, itself included
	return layerConfig{kv, m.sliding}
}

// Forward records the pass from the step's tokens to rows [outputs, hidden].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, float32(math.Sqrt(float64(m.HiddenSize))))
	for i := range m.Layers {
		h = m.Layers[i].forward(g.Layer(i), h, m.layer(i), m)
	}
	return g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 1)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, lc layerConfig, m *Model) *graph.Node {
	x := m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 1), lc)
	h = g.Add(h, g.RMSNorm(l.PostAttnNorm, x, m.RMSNormEps, 1))
	x = l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 1), m.Act, m.IntermediateSize, m.HiddenSize)
	h = g.Add(h, g.RMSNorm(l.PostMLPNorm, x, m.RMSNormEps, 1))
	return g.Name(h, "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.NormedAttention, x *graph.Node, lc layerConfig) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q = g.RoPE("q", g.RMSNorm(a.QNorm, q, m.RMSNormEps, 1), lc.turn) //
	k = g.RoPE("k", g.RMSNorm(a.KNorm, k, m.RMSNormEps, 1), lc.turn) //
	g.StoreKV(lc.kv, k, v)
	x = g.AttentionWith(q, graph.AttentionAttr{KV: lc.kv, Scale: 1 / math.Sqrt(m.QueryPreAttn), Bidirectional: true},
		nil)
	return g.Linear(a.O, x, m.HiddenSize)
}
