// Package phi3 is the decoder of Phi-3 and Phi-4.
//
// Differences from Llama: a projection makes queries, keys and values, another the MLP's gate and up; a part of a
// head's features may turn, by longrope, with divisors chosen by the model's context; all layers may slide.
//
// Source: transformers, models/phi3/modeling_phi3.py; Abdin et al. 2024,
// arXiv:2404.14219; Ding et al. 2024, arXiv:2402.13753 (longrope).
package phi3

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	SlidingWindow int `json:"sliding_window"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer = family.Layer[Attention, MLP]

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	QKV *graph.Weight `gguf:"attn_qkv" hf:"qkv_proj"`
	O   *graph.Weight `gguf:"attn_output" hf:"o_proj"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	GateUp *graph.Weight `gguf:"ffn_up" hf:"gate_up_proj"`
	Down   *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		kv.Window = m.SlidingWindow
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return l.Attn.forward(g, x, kv, m) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.forward(g, x, m) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	queries, keys := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	all := g.Linear(a.QKV, x, queries+2*keys)                              // [T, heads·dim + 2·kvHeads·dim]
	q := g.RoPE("q", g.Heads(g.Slice(all, 0, queries), m.HeadDim), m.turn) // [T, heads, dim]
	k := g.RoPE("k", g.Heads(g.Slice(all, queries, keys), m.HeadDim), m.turn)
	v := g.Heads(g.Slice(all, queries+keys, keys), m.HeadDim) // [T, kvHeads, dim]
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	both := g.Linear(p.GateUp, x, 2*m.IntermediateSize) // [T, 2·ff], the gate first
	gate, up := g.Slice(both, 0, m.IntermediateSize), g.Slice(both, m.IntermediateSize, m.IntermediateSize)
	return g.Linear(p.Down, g.GLU(m.Act, gate, up), m.HiddenSize)
}
