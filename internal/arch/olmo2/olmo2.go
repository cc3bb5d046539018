// Package olmo2 is the decoder of OLMo 2 and 3.
//
// Differences from Llama: norms of the outputs of attention and MLP, in the place of norms before; norms of queries and
// keys over all heads together. In OLMo 3 three of four layers slide, and full ones may turn by yarn.
//
// Source: transformers, models/olmo2/modeling_olmo2.py and
// models/olmo3/modeling_olmo3.py; OLMo Team 2024, arXiv:2501.00656.
package olmo2

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	LayerTypes    []string `json:"layer_types"`
	SlidingWindow int      `json:"sliding_window"`
}

// Model is the whole decoder.
type Model struct {
	Config
	full, sliding       graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	Attn         family.NormedAttention `gguf:"" hf:"self_attn"`
	PostAttnNorm *graph.Weight          `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
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
	return &Model{Config: c, full: full, sliding: sliding, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

func (m *Model) layer(i int) layerConfig {
	kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
	if m.LayerTypes[i] == "full_attention" {
		return layerConfig{kv, m.full}
	}
	kv.Window = m.SlidingWindow
	return layerConfig{kv, m.sliding}
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		h = m.Layers[i].forward(g.Layer(i), h, m.layer(i), m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, lc layerConfig, m *Model) *graph.Node {
	h = g.Add(h, g.RMSNorm(l.PostAttnNorm, m.attend(g, &l.Attn, h, lc), m.RMSNormEps, 0))
	y := l.MLP.Forward(g, h, m.Act, m.IntermediateSize, m.HiddenSize)
	h = g.Add(h, g.RMSNorm(l.PostMLPNorm, y, m.RMSNormEps, 0))
	return g.Name(h, "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.NormedAttention, x *graph.Node, lc layerConfig) *graph.Node {
	q := g.RMSNorm(a.QNorm, g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.RMSNormEps, 0)   // [T, heads·dim]
	k := g.RMSNorm(a.KNorm, g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.RMSNormEps, 0) // [T, kvHeads·dim]
	v := g.Linear(a.V, x, m.NumKVHeads*m.HeadDim)                                      //
	q = g.RoPE("q", g.Heads(q, m.HeadDim), lc.turn)                                    // [T, heads, dim]
	k = g.RoPE("k", g.Heads(k, m.HeadDim), lc.turn)                                    // [T, kvHeads, dim]
	g.StoreKV(lc.kv, k, g.Heads(v, m.HeadDim))
	return g.Linear(a.O, g.Attention(q, lc.kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
