// Package qwen2 is the Qwen 2 and 2.5 dense decoder.
//
// Differences from Llama: the query, key and value projections have biases.
//
// Source: transformers, models/qwen2/modeling_qwen2.py; Yang et al. 2024, arXiv:2407.10671.
package qwen2

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
	Sections      []int    `json:"mrope_section"` // in models that see
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer = family.Layer[Attention, family.MLP]

// Attention is grouped-query attention with biased projections.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias"`
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias"`
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	if err == nil {
		turn, err = turn.Divide(c.Sections, false)
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
		attn := func(x *graph.Node) *graph.Node { return l.Attn.forward(g, x, kv, m) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Bias(a.QBias, g.Linear(a.Q, x, m.NumHeads*m.HeadDim))   // [T, heads·dim]
	k := g.Bias(a.KBias, g.Linear(a.K, x, m.NumKVHeads*m.HeadDim)) // [T, kvHeads·dim]
	v := g.Bias(a.VBias, g.Linear(a.V, x, m.NumKVHeads*m.HeadDim)) //
	q = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn)                 // [T, heads, dim]
	k = g.RoPE("k", g.Heads(k, m.HeadDim), m.turn)                 // [T, kvHeads, dim]
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
