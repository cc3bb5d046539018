// Package arcee is the decoder of Arcee's AFM.
//
// Differences from Llama: the MLP has no gate, and squares ReLU's output. Heads may turn by yarn. There are
// no biases.
//
// Source: transformers, models/arcee/modeling_arcee.py; So et al. 2021, arXiv:2109.08668 (squared ReLU).
package arcee

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
	MaxPositions     int              `json:"max_position_embeddings"`
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
	MLP      MLP           `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O *graph.Weight `gguf:"attn_output" hf:"o_proj"`
}

// MLP is the feed-forward part.
type MLP struct {
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	r, err := rope.Resolve(c.HeadDim, rope.Context{Longest: c.MaxPositions}, c.Rope.Full)
	turn := graph.RoPEAttr{Freqs: r.Freqs, Dim: r.Dim, Magnitude: r.Magnitude}
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
	h = g.Add(h, l.MLP.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	g.StoreKV(kv, g.RoPEWith("k", k, m.turn), v)
	return g.Linear(a.O, g.Attention(g.RoPEWith("q", q, m.turn), kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := g.Name(g.Act(m.Act, g.Linear(p.Up, x, m.IntermediateSize)), "ffn_act", "mlp.act_fn.out")
	return g.Linear(p.Down, up, m.HiddenSize)
}
