// Package smollm3 is the SmolLM3 decoder.
//
// Differences from Llama: every fourth layer turns neither queries nor keys, and sees positions by its mask
// alone (NoPE). There are no biases.
//
// Source: transformers, models/smollm3/modeling_smollm3.py; Yang et al. 2025, arXiv:2501.18795.
package smollm3

import (
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	RopeLayers     []int `json:"no_rope_layers"`         // 1 for each layer that turns
	NoRopeInterval int   `json:"no_rope_layer_interval"` // a period; read without RopeLayers
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
	MLP      family.MLP       `gguf:"" hf:"mlp"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if n := len(c.RopeLayers); c.RopeLayers != nil && n != c.NumLayers {
		return nil, fmt.Errorf("no_rope_layers has %d layers, expected %d", n, c.NumLayers)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		return m.Layers[kv.Layer].forward(g, x, kv, m.turns(kv.Layer), m)
	})
}

// turns reports whether layer i turns queries and keys.
func (m *Model) turns(i int) bool {
	if len(m.RopeLayers) > 0 {
		return m.RopeLayers[i] != 0
	}
	return m.NoRopeInterval == 0 || (i+1)%m.NoRopeInterval != 0
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, turns bool, m *Model) *graph.Node {
	h = g.Add(h, m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, turns))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV, turns bool) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	if turns {
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	}
	return a.Mix(g, q, k, v, kv, &m.Sizes)
}
