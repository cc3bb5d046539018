// Package cohere2 is the decoder of Command R7B and Command A.
//
// Differences from Llama: attention and MLP side by side, over a single LayerNorm without bias; sliding layers with a
// full layer in between; only sliding layers turn queries and keys, in neighbouring pairs; a scale of the logits.
//
// Source: transformers, models/cohere2/modeling_cohere2.py; Cohere 2025, arXiv:2504.00698.
package cohere2

import (
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	IntermediateSize int              `json:"intermediate_size"`
	LayerTypes       []string         `json:"layer_types"`
	SlidingWindow    int              `json:"sliding_window"`
	NormEps          float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Tied             bool             `json:"tie_word_embeddings"`
	LogitScale       float64          `json:"logit_scale"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	Norm *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn family.Attention `gguf:"" hf:"self_attn"`
	MLP  family.MLP       `gguf:"" hf:"mlp"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	turn.Interleaved = true
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		if m.LayerTypes[i] == "sliding_attention" {
			kv.Window = m.SlidingWindow
		}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, nil, g.Outputs(h), m.NormEps)
	h = family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
	return g.Scale(h, m.LogitScale)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.LayerNorm(l.Norm, nil, h, m.NormEps)
	h = g.Add(h, m.attend(g, &l.Attn, x, kv))
	return g.Name(g.Add(h, l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)), "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	if kv.Window > 0 { // full layers see positions by their mask alone
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	}
	return a.Mix(g, q, k, v, kv, &m.Sizes)
}
