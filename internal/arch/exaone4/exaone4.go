// Package exaone4 is the decoder of EXAONE 4.0.
//
// Differences from Llama: norms of the outputs of attention and MLP, in the place of norms before; norms of
// queries and keys, head by head. In the 32B three of four layers slide, and full ones turn neither queries
// nor keys. Where no layer slides, all turn.
//
// Source: transformers, models/exaone4/modeling_exaone4.py; LG AI Research 2025, arXiv:2507.11407.
package exaone4

import (
	"fmt"
	"math"
	"slices"

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
	turn                graph.RoPEAttr
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
	kv    *graph.KV
	turns bool
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.SlidingWindow > 0 && !slices.Contains(c.LayerTypes, "sliding_attention") { // GGUF cannot say so
		return nil, fmt.Errorf("sliding_window is %d, but no layer slides: such a model would see no positions",
			c.SlidingWindow)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

func (m *Model) layer(i int) layerConfig {
	kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
	if m.LayerTypes[i] == "sliding_attention" {
		kv.Window = m.SlidingWindow
	}
	return layerConfig{kv, kv.Window == m.SlidingWindow}
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
	q, k, v := a.Heads(g, x, &m.Sizes)
	q, k = g.RMSNorm(a.QNorm, q, m.RMSNormEps, 0), g.RMSNorm(a.KNorm, k, m.RMSNormEps, 0)
	if lc.turns {
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	}
	g.StoreKV(lc.kv, k, v)
	return g.Linear(a.O, g.Attention(q, lc.kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
