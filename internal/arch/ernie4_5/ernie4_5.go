// Package ernie45 is the decoder of ERNIE 4.5's dense models.
//
// Differences from Llama: neighbouring features of a head turn as pairs.
//
// Source: transformers, models/ernie4_5/modeling_ernie4_5.py; llama.cpp, src/models/ernie4-5.cpp.
// published.json has the values of ERNIE-4.5-0.3B-PT's config.json, of which a public repository has a copy.
package ernie45

import (
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
type Layer = family.Layer[family.Attention, family.MLP]

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	turn.Interleaved = true
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return l.Attn.Forward(g, x, kv, &m.Sizes, &m.turn) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}
