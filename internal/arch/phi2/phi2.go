// Package phi2 is the decoder of Phi-1, Phi-1.5 and Phi-2.
//
// Differences from Llama: attention and MLP read the same normed state, and both are added to it; norms with a mean and
// a bias; biases everywhere, the head's included; part of a head's features turn; an MLP without a gate.
//
// Source: transformers, models/phi/modeling_phi.py; llama.cpp, src/models/phi2.cpp; Li et al. 2023, arXiv:2309.05463.
// published.json: onnx-diagnostic, its copy of phi-2's config.json; the sizes that it cut are by memory. The golden's
// record is of a program in NumPy.
package phi2

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
	LayerNormEps     float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn       graph.RoPEAttr
	Embed      *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers     []Layer       `gguf:"blk" hf:"model.layers"`
	Norm       *graph.Weight `gguf:"output_norm" hf:"model.final_layernorm"`
	NormBias   *graph.Weight `gguf:"output_norm.bias" hf:"model.final_layernorm.bias"`
	Output     *graph.Weight `gguf:"output" hf:"lm_head"`
	OutputBias *graph.Weight `gguf:"output.bias" hf:"lm_head.bias"`
}

// Layer is a decoder layer.
type Layer struct {
	Norm     *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	NormBias *graph.Weight `gguf:"attn_norm.bias" hf:"input_layernorm.bias"`
	Attn     Attention     `gguf:"" hf:"self_attn"`
	MLP      MLP           `gguf:"" hf:"mlp"`
}

// Attention is attention with partly rotated heads.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	QBias *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	KBias *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	VBias *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias"`
	O     *graph.Weight `gguf:"attn_output" hf:"dense"`
	OBias *graph.Weight `gguf:"attn_output.bias" hf:"dense.bias"`
}

// MLP is the feed-forward part.
type MLP struct {
	Up       *graph.Weight `gguf:"ffn_up" hf:"fc1"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"fc1.bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"fc2"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"fc2.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, g.Outputs(h), m.LayerNormEps)
	return family.Linear(g, m.Output, m.OutputBias, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.LayerNorm(l.Norm, l.NormBias, h, m.LayerNormEps)
	y := g.Add(l.Attn.forward(g, x, kv, m), l.MLP.forward(g, x, m))
	return g.Name(g.Add(y, h), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	g.StoreKV(kv, g.RoPE("k", k, m.turn), v)
	x = g.Attention(g.RoPE("q", q, m.turn), kv, 1/math.Sqrt(float64(m.HeadDim)))
	return family.Linear(g, a.O, a.OBias, x, m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := family.Linear(g, p.Up, p.UpBias, x, m.IntermediateSize)
	up = g.Name(g.Act(m.Act, up), "ffn_act", "mlp.activation_fn.out")
	return family.Linear(g, p.Down, p.DownBias, up, m.HiddenSize)
}
