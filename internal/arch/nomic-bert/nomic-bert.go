// Package nomicbert is Nomic's BERT, an encoder.
//
// Differences from BERT: queries and keys turn, and no positions are learned; projections have no biases, one
// makes queries, keys and values; the MLP has a gate.
//
// Source: transformers, models/nomic_bert/modeling_nomic_bert.py; Nussbaum et al. 2024, arXiv:2402.01613.
// published.json: nomic-embed-text-v1.5.
package nomicbert

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
	NumTypes         int              `json:"type_vocab_size"`
	LayerNormEps     float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole encoder.
type Model struct {
	Config
	turn     graph.RoPEAttr
	Embed    *graph.Weight `gguf:"token_embd" hf:"model.embeddings.word_embeddings"`
	Types    *graph.Weight `gguf:"token_types" hf:"model.embeddings.token_type_embeddings" if:"type_vocab_size"`
	Norm     *graph.Weight `gguf:"token_embd_norm" hf:"model.emb_ln"`
	NormBias *graph.Weight `gguf:"token_embd_norm.bias" hf:"model.emb_ln.bias"`
	Layers   []Layer       `gguf:"blk" hf:"model.encoder.layers"`
}

// Layer is an encoder layer.
type Layer struct {
	QKV      *graph.Weight `gguf:"attn_qkv" hf:"attn.Wqkv"`
	O        *graph.Weight `gguf:"attn_output" hf:"attn.out_proj"`
	AttnNorm *graph.Weight `gguf:"attn_output_norm" hf:"norm1"`
	AttnBias *graph.Weight `gguf:"attn_output_norm.bias" hf:"norm1.bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"mlp.fc11"`
	Gate     *graph.Weight `gguf:"ffn_gate" hf:"mlp.fc12"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"mlp.fc2"`
	Norm     *graph.Weight `gguf:"layer_output_norm" hf:"norm2"`
	NormBias *graph.Weight `gguf:"layer_output_norm.bias" hf:"norm2.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.NumHeads < 1 || c.HiddenSize%c.NumHeads != 0 {
		return nil, fmt.Errorf("a hidden size of %d for %d heads", c.HiddenSize, c.NumHeads)
	}
	turn, err := family.Turn(c.HiddenSize/c.NumHeads, c.Rope.Full)
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to rows [outputs, hidden].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	if m.NumTypes > 0 {
		h = g.BiasRow(m.Types, m.NumTypes, 0, h)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, h, m.LayerNormEps)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumHeads, Dim: m.HiddenSize / m.NumHeads}
		h = m.Layers[i].forward(g.LayerAs("model.encoder.layers", i), h, kv, m)
	}
	return g.Outputs(h)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.LayerNorm(l.AttnNorm, l.AttnBias, g.Add(l.attention(g, h, kv, m), h), m.LayerNormEps)
	gate, up := g.Linear(l.Gate, h, m.IntermediateSize), g.Linear(l.Up, h, m.IntermediateSize)
	down := g.Linear(l.Down, g.GLU(m.Act, gate, up), m.HiddenSize)
	return g.LayerNorm(l.Norm, l.NormBias, g.Add(down, h), m.LayerNormEps)
}

func (l *Layer) attention(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	d := m.HiddenSize
	qkv := g.Linear(l.QKV, x, 3*d) // [T, 3·heads·dim]
	part := func(i int) *graph.Node { return g.Heads(g.Slice(qkv, i*d, d), kv.Dim) }
	q := g.RoPE("q", part(0), m.turn) // [T, heads, dim]
	g.StoreKV(kv, g.RoPE("k", part(1), m.turn), part(2))
	x = g.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(kv.Dim)), Bidirectional: true}, nil)
	return g.Linear(l.O, x, d)
}
