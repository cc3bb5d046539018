// Package mistral3 is the decoder of Ministral 3.
//
// Differences from Llama: heads turn by yarn, and queries of later positions grow, by a step at each multiple
// of the first training context.
//
// Source: transformers, models/ministral3/modeling_ministral3.py; Peng et al. 2023,
// arXiv:2309.00071 (yarn); Nakanishi 2025, arXiv:2501.19399 (growing queries).
package mistral3

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	SlidingWindow int     `json:"sliding_window"`
	Growth        float64 `json:"llama_4_scaling_beta"` // of queries; 0 in models of before Ministral 3
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	grow                graph.ScalePosAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer = family.Layer[family.Attention, family.MLP]

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	if err != nil {
		return nil, err
	}
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	if c.Growth != 0 {
		every := c.Rope.Full.Context
		if every < 1 || every != math.Trunc(every) {
			return nil, fmt.Errorf("queries grow by %v (llama_4_scaling_beta), but "+
				"original_max_position_embeddings is %v, expected 1 or more", c.Growth, every)
		}
		m.grow = graph.ScalePosAttr{Beta: c.Growth, Every: int(every)}
	}
	return m, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		kv.Window = m.SlidingWindow
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return m.attend(g, &l.Attn, x, kv) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q := g.Linear(a.Q, x, m.NumHeads*m.HeadDim)    // [T, heads·dim]
	k := g.Linear(a.K, x, m.NumKVHeads*m.HeadDim)  // [T, kvHeads·dim]
	v := g.Linear(a.V, x, m.NumKVHeads*m.HeadDim)  //
	q = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn) // [T, heads, dim]
	k = g.RoPE("k", g.Heads(k, m.HeadDim), m.turn) // [T, kvHeads, dim]
	if m.Growth != 0 {
		q = g.ScalePos(q, m.grow)
	}
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
