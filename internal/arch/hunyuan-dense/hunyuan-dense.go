// Package hunyuandense is the decoder of Hunyuan's dense models.
//
// Differences from Llama: norms of each head of queries and keys, after their rotation.
//
// Source: transformers, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py; llama.cpp,
// src/models/hunyuan-dense.cpp. published.json: Hunyuan-7B-Instruct.
package hunyuandense

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	VocabSize        int              `json:"vocab_size"`
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	NumKVHeads       int              `json:"num_key_value_heads"`
	HeadDim          int              `json:"head_dim"`
	RMSNormEps       float32          `json:"rms_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Tied             bool             `json:"tie_word_embeddings"`
	Rope             struct {
		Full rope.Params `json:"full_attention"`
	} `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	freqs  rope.Freqs
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []Layer       `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"model.norm"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     Attention     `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP      family.MLP    `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention over normed queries and keys.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O     *graph.Weight `gguf:"attn_output" hf:"o_proj"`
	QNorm *graph.Weight `gguf:"attn_q_norm" hf:"query_layernorm"`
	KNorm *graph.Weight `gguf:"attn_k_norm" hf:"key_layernorm"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	freqs, err := rope.From(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, freqs: freqs, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	q = g.RMSNorm(a.QNorm, g.RoPE("q", q, m.freqs), m.RMSNormEps, 0)  //
	k = g.RMSNorm(a.KNorm, g.RoPE("k", k, m.freqs), m.RMSNormEps, 0)  //
	g.StoreKV(kv, k, v)                                               //
	y := g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim)))          // [T, heads·dim]
	return g.Linear(a.O, y, m.HiddenSize)
}
