// Package gemma4v is the tower of Gemma 4.
//
// Pixels are between -1 and 1. A patch's column and row add learned vectors, and turn the two halves of queries and
// keys, each by itself. Values are normed; scores have no scale. Norms stand before and behind attention and MLP. In
// small models products clamp their inputs and outputs. The means of blocks of patches are scaled, and moved and
// scaled again by learned vectors in large models, normed, and projected.
//
// Source: transformers 5.17, models/gemma4/modeling_gemma4.py.
package gemma4v

import (
	"errors"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	NumKVHeads       int              `json:"num_key_value_heads"`
	HeadDim          int              `json:"head_dim"`
	PatchSize        int              `json:"patch_size"`
	Positions        int              `json:"position_embedding_size"`
	Pooling          int              `json:"spatial_merge_size"`
	OutSize          int              `json:"out_hidden_size"`
	Theta            float64          `json:"rope_theta"`
	Eps              float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Standardize      bool             `json:"standardize"`
	Clips            bool             `json:"use_clipped_linears"`
}

// Model is the tower.
type Model struct {
	Config
	freqs      []float64
	Patch      *graph.Weight `gguf:"v.patch_embd" hf:"model.vision_tower.patch_embedder.input_proj"`
	Places     *graph.Weight `gguf:"v.position_embd" hf:"model.vision_tower.patch_embedder.position_embedding_table"`
	Layers     []Layer       `gguf:"v.blk" hf:"model.vision_tower.encoder.layers"`
	StdBias    *graph.Weight `gguf:"v.std_bias" hf:"model.vision_tower.std_bias" if:"standardize"`
	StdScale   *graph.Weight `gguf:"v.std_scale" hf:"model.vision_tower.std_scale" if:"standardize"`
	Projection *graph.Weight `gguf:"mm.input_projection" hf:"model.embed_vision.embedding_projection"`
}

// Layer is a layer of the tower.
type Layer struct {
	AttnNorm     *graph.Weight `gguf:"ln1" hf:"input_layernorm"`
	Q            Product       `gguf:"attn_q" hf:"self_attn.q_proj"`
	K            Product       `gguf:"attn_k" hf:"self_attn.k_proj"`
	V            Product       `gguf:"attn_v" hf:"self_attn.v_proj"`
	O            Product       `gguf:"attn_out" hf:"self_attn.o_proj"`
	QNorm        *graph.Weight `gguf:"attn_q_norm" hf:"self_attn.q_norm"`
	KNorm        *graph.Weight `gguf:"attn_k_norm" hf:"self_attn.k_norm"`
	AttnPostNorm *graph.Weight `gguf:"attn_post_norm" hf:"post_attention_layernorm"`
	MLPNorm      *graph.Weight `gguf:"ln2" hf:"pre_feedforward_layernorm"`
	Gate         Product       `gguf:"ffn_gate" hf:"mlp.gate_proj"`
	Up           Product       `gguf:"ffn_up" hf:"mlp.up_proj"`
	Down         Product       `gguf:"ffn_down" hf:"mlp.down_proj"`
	MLPPostNorm  *graph.Weight `gguf:"ffn_post_norm" hf:"post_feedforward_layernorm"`
}

// Product is a linear layer that may clamp.
type Product struct {
	W       *graph.Weight `gguf:"" hf:"linear"`
	InLow   *graph.Weight `gguf:"input_min" hf:"input_min" if:"use_clipped_linears"`
	InHigh  *graph.Weight `gguf:"input_max" hf:"input_max" if:"use_clipped_linears"`
	OutLow  *graph.Weight `gguf:"output_min" hf:"output_min" if:"use_clipped_linears"`
	OutHigh *graph.Weight `gguf:"output_max" hf:"output_max" if:"use_clipped_linears"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.HeadDim < 4 || c.HeadDim%4 != 0 || c.NumKVHeads < 1 {
		return nil, errors.New("head_dim is no multiple of four, or num_key_value_heads no positive number")
	}
	return &Model{Config: c, Layers: make([]Layer, c.NumLayers), freqs: rope.New(c.Theta, c.HeadDim/2)}, nil
}

// Sight implements family.Eye.
func (m *Model) Sight() family.Sight {
	return family.Sight{Patch: m.PatchSize, Side: m.Pooling, By: 2, Less: 1}
}

// Forward records the pass from patches to rows of the text's width.
func (m *Model) Forward(g graph.Builder) *graph.Node {
	x := g.Linear(m.Patch.Flat(m.HiddenSize), g.Patches(3*m.PatchSize*m.PatchSize), m.HiddenSize)
	a := graph.PlaceAttr{Rule: graph.Axes, Height: m.Positions, Width: m.Positions}
	x = g.Name(g.Add(x, g.Interpolate(m.Places.Flat(2*m.Positions), a, m.HiddenSize)), "v.inp",
		"model.vision_tower.patch_embedder.out")
	kv := &graph.KV{Heads: m.NumKVHeads, Dim: m.HeadDim}
	for i := range m.Layers {
		x = m.Layers[i].forward(g.Block("v.blk", "model.vision_tower.encoder.layers", i), x, kv, m)
	}
	x = g.Scale(g.Fold(graph.Mean, m.Pooling*m.Pooling, x), math.Sqrt(float64(m.HiddenSize)))
	x = g.Name(x, "v.pool", "model.vision_tower.pooler.out")
	if m.Standardize { // x less the bias, times the scale
		x = g.MulWeight(m.StdScale, g.Scale(g.Bias(m.StdBias, g.Scale(x, -1)), -1), m.HiddenSize)
	}
	return g.Name(g.Linear(m.Projection, g.Normalize(x, m.Eps), m.OutSize), "mm", "model.embed_vision.out")
}

func (l *Layer) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	d, y := m.HiddenSize, g.RMSNorm(l.AttnNorm, x, m.Eps, 0)
	q := g.RMSNorm(l.QNorm, g.Heads(l.Q.forward(g, y, m.NumHeads*kv.Dim), kv.Dim), m.Eps, 0)
	k := g.RMSNorm(l.KNorm, g.Heads(l.K.forward(g, y, kv.Heads*kv.Dim), kv.Dim), m.Eps, 0)
	v := g.Normalize(g.Heads(l.V.forward(g, y, kv.Heads*kv.Dim), kv.Dim), m.Eps)
	g.StoreKV(kv, m.rotate(g, "k", k), v)
	y = g.AttentionWith(m.rotate(g, "q", q), graph.AttentionAttr{KV: kv, Scale: 1, Bidirectional: true}, nil)
	y = g.Name(l.O.forward(g, y, d), "attn_out", "self_attn.out")
	x = g.Add(x, g.RMSNorm(l.AttnPostNorm, y, m.Eps, 0))
	y = g.RMSNorm(l.MLPNorm, x, m.Eps, 0)
	gate, up := l.Gate.forward(g, y, m.IntermediateSize), l.Up.forward(g, y, m.IntermediateSize)
	y = g.Name(l.Down.forward(g, g.GLU(m.Act, gate, up), d), "ffn_down", "mlp.out")
	return g.Name(g.Add(x, g.RMSNorm(l.MLPPostNorm, y, m.Eps, 0)), "out", "out")
}

// rotate turns the first half of each head by the column, and the second by the row.
func (m *Model) rotate(g graph.Builder, role string, x *graph.Node) *graph.Node {
	half, n := m.HeadDim/2, m.HeadDim/4
	return g.Concat(
		g.RoPE(role, g.Slice(x, 0, half), graph.RoPEAttr{Freqs: m.freqs, Sections: [3]int{0, 0, n}}),
		g.RoPE(role+"_y", g.Slice(x, half, half), graph.RoPEAttr{Freqs: m.freqs, Sections: [3]int{0, n, 0}}))
}

func (p *Product) forward(g graph.Builder, x *graph.Node, out int) *graph.Node {
	if p.InLow == nil {
		return g.Linear(p.W, x, out)
	}
	return g.Clamp(p.OutLow, p.OutHigh, g.Linear(p.W, g.Clamp(p.InLow, p.InHigh, x), out))
}
