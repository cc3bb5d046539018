// Package falcon is the Falcon decoder.
//
// Differences from Llama: attention and MLP work side by side, behind one norm or behind a norm each; norms are
// LayerNorms with biases; a projection makes queries, keys and values; the MLP has no gate, and the exact GELU.
//
// Source: transformers, models/falcon/modeling_falcon.py; Almazrouei et al. 2023, arXiv:2311.16867. published.json
// has the values of falcon-7b's config.json, as public repositories quote them.
package falcon

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
	TwoNorms         bool             `json:"num_ln_in_parallel_attn"` // one for attention and one for the MLP
	Tied             bool             `json:"tie_word_embeddings"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn     graph.RoPEAttr
	Embed    *graph.Weight `gguf:"token_embd" hf:"transformer.word_embeddings"`
	Layers   []Layer       `gguf:"blk" hf:"transformer.h"`
	Norm     *graph.Weight `gguf:"output_norm" hf:"transformer.ln_f"`
	NormBias *graph.Weight `gguf:"output_norm.bias" hf:"transformer.ln_f.bias"`
	Output   *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer, with One or Two of norms.
type Layer struct {
	One  *OneNorm  `gguf:"" hf:""`
	Two  *TwoNorms `gguf:"" hf:""`
	Attn Attention `gguf:"" hf:"self_attention"`
	MLP  MLP       `gguf:"" hf:"mlp"`
}

// OneNorm is the norm before attention and MLP.
type OneNorm struct {
	Norm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Bias *graph.Weight `gguf:"attn_norm.bias" hf:"input_layernorm.bias"`
}

// TwoNorms are the norm before attention, which GGUF names after the MLP's, and that before the MLP.
type TwoNorms struct {
	Attn     *graph.Weight `gguf:"attn_norm_2" hf:"ln_attn"`
	AttnBias *graph.Weight `gguf:"attn_norm_2.bias" hf:"ln_attn.bias"`
	MLP      *graph.Weight `gguf:"attn_norm" hf:"ln_mlp"`
	MLPBias  *graph.Weight `gguf:"attn_norm.bias" hf:"ln_mlp.bias"`
}

// Attention is grouped-query attention, of a single projection: rows of queries, keys and values in sequence.
type Attention struct {
	QKV *graph.Weight `gguf:"attn_qkv" hf:"query_key_value"`
	O   *graph.Weight `gguf:"attn_output" hf:"dense"`
}

// MLP is the feed-forward part, without a gate.
type MLP struct {
	Up   *graph.Weight `gguf:"ffn_up" hf:"dense_h_to_4h"`
	Down *graph.Weight `gguf:"ffn_down" hf:"dense_4h_to_h"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	m := &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}
	for i := range m.Layers {
		if c.TwoNorms {
			m.Layers[i].Two = new(TwoNorms)
		} else {
			m.Layers[i].One = new(OneNorm)
		}
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.LayerAs("transformer.h", i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, g.Outputs(h), m.LayerNormEps)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	var x, y *graph.Node
	if n := l.Two; n != nil {
		x, y = g.LayerNorm(n.Attn, n.AttnBias, h, m.LayerNormEps), g.LayerNorm(n.MLP, n.MLPBias, h, m.LayerNormEps)
	} else {
		x = g.LayerNorm(l.One.Norm, l.One.Bias, h, m.LayerNormEps)
		y = x
	}
	h = g.Add(h, l.Attn.forward(g, x, kv, m))
	return g.Name(g.Add(h, l.MLP.forward(g, y, m)), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	queries, keys := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	all := g.Linear(a.QKV, x, queries+2*keys)                 // [T, heads·dim + 2·kvHeads·dim]
	all.HF = ""                                               // a folder has groups of queries, a key and a value
	q := g.Heads(g.Slice(all, 0, queries), m.HeadDim)         // [T, heads, dim]
	k := g.Heads(g.Slice(all, queries, keys), m.HeadDim)      // [T, kvHeads, dim]
	v := g.Heads(g.Slice(all, queries+keys, keys), m.HeadDim) //
	q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)     //
	g.StoreKV(kv, k, v)                                       //
	y := g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim)))  // [T, heads·dim]
	return g.Linear(a.O, y, m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := g.Name(g.Act(m.Act, g.Linear(p.Up, x, m.IntermediateSize)), "ffn_act", "mlp.act.out")
	return g.Linear(p.Down, up, m.HiddenSize)
}
