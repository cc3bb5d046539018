// Package arcee is the decoder of Arcee's AFM.
//
// Differences from Llama: the MLP has no gate, and squares ReLU's output. Heads may turn by yarn. There are no biases.
//
// Source: transformers, models/arcee/modeling_arcee.py; So et al. 2021, arXiv:2109.08668 (squared ReLU).
package arcee

import (
	"math"

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
type Layer = family.Layer[family.Attention, MLP]

// MLP is the feed-forward part.
type MLP struct {
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return m.attend(g, &l.Attn, x, kv) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.forward(g, x, m) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	g.StoreKV(kv, g.RoPE("k", k, m.turn), v)
	return g.Linear(a.O, g.Attention(g.RoPE("q", q, m.turn), kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := g.Name(g.Act(m.Act, g.Linear(p.Up, x, m.IntermediateSize)), "ffn_act", "mlp.act_fn.out")
	return g.Linear(p.Down, up, m.HiddenSize)
}
