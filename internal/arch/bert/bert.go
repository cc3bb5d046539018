// Package bert is the BERT encoder, and XLM-RoBERTa's, different in the tokenizer alone.
//
// Differences from Llama: all of a text is seen from everywhere; positions are learned, and added with a kind of text,
// here the first; norms are LayerNorms with biases behind each half of a layer and behind the embeddings; projections
// have biases; the MLP has no gate; no head to predict tokens. A reranker's head is no part of the graph (package
// embed). Files of XLM-RoBERTa have learned positions from behind the padding's on, counted from 0 here, as in GGUF.
//
// Source: transformers, models/bert/modeling_bert.py; Devlin et al. 2018, arXiv:1810.04805.
package bert

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	VocabSize        int              `json:"vocab_size"`
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	NumPositions     int              `json:"max_position_embeddings"`
	NumTypes         int              `json:"type_vocab_size"`
	LayerNormEps     float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
}

// Model is the whole encoder.
type Model struct {
	Config
	Embed     *graph.Weight `gguf:"token_embd" hf:"bert.embeddings.word_embeddings"`
	Positions *graph.Weight `gguf:"position_embd" hf:"bert.embeddings.position_embeddings"`
	Types     *graph.Weight `gguf:"token_types" hf:"bert.embeddings.token_type_embeddings" if:"type_vocab_size"`
	Norm      *graph.Weight `gguf:"token_embd_norm" hf:"bert.embeddings.LayerNorm"`
	NormBias  *graph.Weight `gguf:"token_embd_norm.bias" hf:"bert.embeddings.LayerNorm.bias"`
	Layers    []Layer       `gguf:"blk" hf:"bert.encoder.layer"`
	Head      *graph.Weight `gguf:"cls" hf:"classifier.dense" optional:"of rerankers, behind the graph"`
	HeadBias  *graph.Weight `gguf:"cls.bias" hf:"classifier.dense.bias" optional:"of rerankers"`
	Score     *graph.Weight `gguf:"cls.output" hf:"classifier.out_proj" optional:"of rerankers"`
	ScoreBias *graph.Weight `gguf:"cls.output.bias" hf:"classifier.out_proj.bias" optional:"of rerankers"`
}

// Layer is an encoder layer.
type Layer struct {
	Q        *graph.Weight `gguf:"attn_q" hf:"attention.self.query"`
	QBias    *graph.Weight `gguf:"attn_q.bias" hf:"attention.self.query.bias"`
	K        *graph.Weight `gguf:"attn_k" hf:"attention.self.key"`
	KBias    *graph.Weight `gguf:"attn_k.bias" hf:"attention.self.key.bias"`
	V        *graph.Weight `gguf:"attn_v" hf:"attention.self.value"`
	VBias    *graph.Weight `gguf:"attn_v.bias" hf:"attention.self.value.bias"`
	O        *graph.Weight `gguf:"attn_output" hf:"attention.output.dense"`
	OBias    *graph.Weight `gguf:"attn_output.bias" hf:"attention.output.dense.bias"`
	AttnNorm *graph.Weight `gguf:"attn_output_norm" hf:"attention.output.LayerNorm"`
	AttnBias *graph.Weight `gguf:"attn_output_norm.bias" hf:"attention.output.LayerNorm.bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"intermediate.dense"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"intermediate.dense.bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"output.dense"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"output.dense.bias"`
	Norm     *graph.Weight `gguf:"layer_output_norm" hf:"output.LayerNorm"`
	NormBias *graph.Weight `gguf:"layer_output_norm.bias" hf:"output.LayerNorm.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.NumHeads < 1 || c.HiddenSize%c.NumHeads != 0 {
		return nil, fmt.Errorf("a hidden size of %d for %d heads", c.HiddenSize, c.NumHeads)
	}
	return &Model{Config: c, Layers: make([]Layer, c.NumLayers)}, nil
}

// Forward records the pass from the step's tokens to rows [outputs, hidden].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Add(g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1), g.EmbedPos(m.Positions, m.NumPositions, m.HiddenSize))
	if m.NumTypes > 0 {
		h = g.BiasRow(m.Types, m.NumTypes, 0, h)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, h, m.LayerNormEps)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumHeads, Dim: m.HiddenSize / m.NumHeads}
		h = m.Layers[i].forward(g.LayerAs("bert.encoder.layer", i), h, kv, m)
	}
	return g.Outputs(h)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.LayerNorm(l.AttnNorm, l.AttnBias, g.Add(l.attention(g, h, kv, m), h), m.LayerNormEps)
	up := g.Act(m.Act, g.Bias(l.UpBias, g.Linear(l.Up, h, m.IntermediateSize)))
	down := g.Bias(l.DownBias, g.Linear(l.Down, up, m.HiddenSize))
	return g.LayerNorm(l.Norm, l.NormBias, g.Add(down, h), m.LayerNormEps)
}

func (l *Layer) attention(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	d := m.HiddenSize
	q := g.Heads(g.Bias(l.QBias, g.Linear(l.Q, x, d)), kv.Dim) // [T, heads, dim]
	k := g.Heads(g.Bias(l.KBias, g.Linear(l.K, x, d)), kv.Dim) //
	v := g.Heads(g.Bias(l.VBias, g.Linear(l.V, x, d)), kv.Dim) //
	g.StoreKV(kv, k, v)
	x = g.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(kv.Dim)), Bidirectional: true}, nil)
	return g.Bias(l.OBias, g.Linear(l.O, x, d))
}
