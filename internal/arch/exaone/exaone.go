// Package exaone is the decoder of EXAONE 3.0 and 3.5.
//
// It differs from Llama in names alone.
//
// Source: the publisher's modeling_exaone.py; llama.cpp, src/models/exaone.cpp; LG AI Research 2024, arXiv:2412.04862.
// published.json has EXAONE 3.5 7.8B's values by memory, and the golden's record is of a program in NumPy.
package exaone

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
	turn   graph.RoPEAttr
	Embed  *graph.Weight `gguf:"token_embd" hf:"transformer.wte"`
	Layers []Layer       `gguf:"blk" hf:"transformer.h"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"transformer.ln_f"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"ln_1"`
	Attn     Attention     `gguf:"" hf:"attn.attention"`
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"ln_2"`
	MLP      MLP           `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O *graph.Weight `gguf:"attn_output" hf:"out_proj"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	Gate *graph.Weight `gguf:"ffn_gate" hf:"c_fc_0"`
	Up   *graph.Weight `gguf:"ffn_up" hf:"c_fc_1"`
	Down *graph.Weight `gguf:"ffn_down" hf:"c_proj"`
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
		h = m.Layers[i].forward(g.LayerAs("transformer.h", i), h, kv, m)
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
	g.StoreKV(kv, g.RoPE("k", k, m.turn), v)
	x = g.Attention(g.RoPE("q", q, m.turn), kv, 1/math.Sqrt(float64(m.HeadDim)))
	return g.Linear(a.O, x, m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	gate, up := g.Linear(p.Gate, x, m.IntermediateSize), g.Linear(p.Up, x, m.IntermediateSize)
	return g.Linear(p.Down, g.GLU(m.Act, gate, up), m.HiddenSize)
}
