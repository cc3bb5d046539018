// Package ernie45 is the decoder of ERNIE 4.5's dense models.
//
// Differences from Llama: neighbouring features of a head turn as pairs.
//
// Source: transformers, models/ernie4_5/modeling_ernie4_5.py; llama.cpp, src/models/ernie4-5.cpp.
// published.json has the values of ERNIE-4.5-0.3B-PT's config.json, of which a public repository has a copy.
package ernie45

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
	turn   graph.RoPEAttr
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
	freqs, err := rope.From(c.HeadDim, c.Rope.Full)
	turn := graph.RoPEAttr{Freqs: freqs, Interleaved: true}
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
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
	q, k = g.RoPEWith("q", q, m.turn), g.RoPEWith("k", k, m.turn)
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
