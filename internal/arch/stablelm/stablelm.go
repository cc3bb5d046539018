// Package stablelm is the decoder of StableLM 3B, and of StableLM 2.
//
// Differences from Llama: norms are LayerNorms with biases; a part of each head turns; queries, keys and values
// may have biases. In the 12B attention and MLP work side by side behind one norm, and each head of queries
// and keys has a LayerNorm of its own.
//
// Source: transformers, models/stablelm/modeling_stablelm.py; Bellagente et al. 2024, arXiv:2402.17834.
// published.json has the values that transformers' StableLmConfig documents: StableLM 3B's.
package stablelm

import (
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
	Biased           bool             `json:"use_qkv_bias"`
	Parallel         bool             `json:"use_parallel_residual"`
	Normed           bool             `json:"qk_layernorm"`
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
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm" if:"!use_parallel_residual"`
	MLPNormBias  *graph.Weight `gguf:"ffn_norm.bias" hf:"post_attention_layernorm.bias" if:"!use_parallel_residual"`
	MLP          family.MLP    `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"use_qkv_bias"`
	QNorm            *graph.Weight `gguf:"attn_q_norm" hf:"q_layernorm.norms" if:"qk_layernorm"` // [heads, dim]
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"use_qkv_bias"`
	KNorm            *graph.Weight `gguf:"attn_k_norm" hf:"k_layernorm.norms" if:"qk_layernorm"` // [kvHeads, dim]
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"use_qkv_bias"`
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
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, g.Outputs(h), m.LayerNormEps)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.LayerNorm(l.AttnNorm, l.AttnNormBias, h, m.LayerNormEps)
	h = g.Add(h, l.Attn.forward(g, x, kv, m))
	if !m.Parallel {
		x = g.LayerNorm(l.MLPNorm, l.MLPNormBias, h, m.LayerNormEps)
	}
	return g.Name(g.Add(h, l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	if m.Normed {
		q = g.MulWeight(a.QNorm, g.LayerNorm(nil, nil, q, m.LayerNormEps), m.NumHeads, m.HeadDim)
		k = g.MulWeight(a.KNorm, g.LayerNorm(nil, nil, k, m.LayerNormEps), m.NumKVHeads, m.HeadDim)
		q = g.Name(q, "attn_q_norm", "self_attn.q_layernorm.out")
		k = g.Name(k, "attn_k_norm", "self_attn.k_layernorm.out")
	}
	q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	return a.Mix(g, q, k, v, kv, &m.Sizes)
}
