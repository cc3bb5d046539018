// Package starcoder2 is the StarCoder 2 decoder.
//
// Differences from Llama: norms are LayerNorms with biases, as have projections; the MLP has no
// gate; all layers may have a window.
//
// Source: transformers, models/starcoder2/modeling_starcoder2.py; Lozhkov et al. 2024, arXiv:2402.19173.
package starcoder2

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	IntermediateSize int              `json:"intermediate_size"`
	SlidingWindow    int              `json:"sliding_window"` // of all layers; 0 for none
	LayerNormEps     float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Biased           bool             `json:"use_bias"` // projections; norms always are
	Tied             bool             `json:"tie_word_embeddings"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
	NormBias            *graph.Weight `gguf:"output_norm.bias" hf:"model.norm.bias"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm     *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	AttnNormBias *graph.Weight `gguf:"attn_norm.bias" hf:"input_layernorm.bias"`
	Attn         Attention     `gguf:"" hf:"self_attn"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLPNormBias  *graph.Weight `gguf:"ffn_norm.bias" hf:"post_attention_layernorm.bias"`
	MLP          MLP           `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"use_bias"`
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"use_bias"`
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"use_bias"`
	OBias            *graph.Weight `gguf:"attn_output.bias" hf:"o_proj.bias" if:"use_bias"`
}

// MLP is the feed-forward part, without a gate.
type MLP struct {
	Up       *graph.Weight `gguf:"ffn_up" hf:"c_fc"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"c_fc.bias" if:"use_bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"c_proj"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"c_proj.bias" if:"use_bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim, Window: m.SlidingWindow}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, g.Outputs(h), m.LayerNormEps)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.LayerNorm(l.AttnNorm, l.AttnNormBias, h, m.LayerNormEps), kv, m))
	h = g.Add(h, l.MLP.forward(g, g.LayerNorm(l.MLPNorm, l.MLPNormBias, h, m.LayerNormEps), m))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	g.StoreKV(kv, k, v)
	y := g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim)))
	return family.Linear(g, a.O, a.OBias, y, m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := g.Name(g.Act(m.Act, family.Linear(g, p.Up, p.UpBias, x, m.IntermediateSize)), "ffn_act", "mlp.act.out")
	return family.Linear(g, p.Down, p.DownBias, up, m.HiddenSize)
}
