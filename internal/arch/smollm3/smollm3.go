// Package smollm3 is the SmolLM3 decoder.
//
// Differences from Llama: every fourth layer turns neither queries nor keys, and sees positions by its mask
// alone (NoPE). There are no biases.
//
// Source: transformers, models/smollm3/modeling_smollm3.py; Yang et al. 2025,
// arXiv:2501.18795.
package smollm3

import (
	"fmt"
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
	RopeLayers       []int            `json:"no_rope_layers"`         // 1 for each layer that turns
	NoRopeInterval   int              `json:"no_rope_layer_interval"` // a period; read without RopeLayers
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

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O *graph.Weight `gguf:"attn_output" hf:"o_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if n := len(c.RopeLayers); c.RopeLayers != nil && n != c.NumLayers {
		return nil, fmt.Errorf("no_rope_layers has %d layers, expected %d", n, c.NumLayers)
	}
	freqs, err := rope.From(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, freqs: freqs, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m.turns(i), m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

// turns reports whether layer i turns queries and keys.
func (m *Model) turns(i int) bool {
	if len(m.RopeLayers) > 0 {
		return m.RopeLayers[i] != 0
	}
	return m.NoRopeInterval == 0 || (i+1)%m.NoRopeInterval != 0
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, turns bool, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, turns, m))
	h = g.Add(h, l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.Act, m.IntermediateSize, m.HiddenSize))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, turns bool, m *Model) *graph.Node {
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	if turns {
		q, k = g.RoPE("q", q, m.freqs), g.RoPE("k", k, m.freqs)
	}
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
