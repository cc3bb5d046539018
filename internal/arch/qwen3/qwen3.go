// Package qwen3 is the Qwen 3 dense decoder.
//
// Differences from Llama: each query and key head is normed before its rotation, and the head size does not
// follow from the width.
//
// Source: transformers, models/qwen3/modeling_qwen3.py; Yang et al. 2025, arXiv:2505.09388.
package qwen3

import (
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	LayerTypes    []string `json:"layer_types"`
	SlidingWindow int      `json:"sliding_window"`
	Deepstack     int      `json:"n_deepstack_layers"`
	Sections      []int    `json:"mrope_section"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer = family.Layer[family.NormedAttention, family.MLP]

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	if err == nil {
		turn, err = turn.Divide(c.Sections, true)
	}
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		if m.LayerTypes[kv.Layer] == "sliding_attention" {
			kv.Window = m.SlidingWindow
		}
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return l.Attn.Forward(g, x, kv, &m.Sizes, m.RMSNormEps, &m.turn) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize) }
		x = l.Record(g, x, &m.Usual, attn, mlp)
		if kv.Layer < m.Deepstack {
			x = g.Add(x, g.Deepstack(kv.Layer, m.HiddenSize))
		}
		return x
	})
}
