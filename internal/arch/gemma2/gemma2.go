// Package gemma2 is the Gemma 2 decoder.
//
// Differences from Llama: norms before and after each half of a layer, scaled by 1+w; every other layer
// slides; a configured attention scale; soft caps of the attention's scores and of the logits; scaled
// embeddings, tied to the output; tanh GELU.
//
// Source: transformers, models/gemma2/modeling_gemma2.py; Gemma Team 2024, arXiv:2408.00118.
package gemma2

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
	QueryPreAttn     float64          `json:"query_pre_attn_scalar"`
	LayerTypes       []string         `json:"layer_types"`
	SlidingWindow    int              `json:"sliding_window"`
	RMSNormEps       float32          `json:"rms_norm_eps"`
	Tied             bool             `json:"tie_word_embeddings"`
	Act              graph.Activation `json:"hidden_activation"`
	AttnSoftcap      float64          `json:"attn_logit_softcapping"`
	Softcap          float64          `json:"final_logit_softcapping"`
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
	AttnNorm     *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn         family.Attention `gguf:"" hf:"self_attn"`
	PostAttnNorm *graph.Weight    `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLPNorm      *graph.Weight    `gguf:"ffn_norm" hf:"pre_feedforward_layernorm"`
	MLP          family.MLP       `gguf:"" hf:"mlp"`
	PostMLPNorm  *graph.Weight    `gguf:"post_ffw_norm" hf:"post_feedforward_layernorm"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, float32(math.Sqrt(float64(m.HiddenSize))))
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		if m.LayerTypes[i] == "sliding_attention" {
			kv.Window = m.SlidingWindow
		}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 1)
	h = family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
	if m.Softcap > 0 {
		h = g.Softcap(h, m.Softcap)
	}
	return h
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 1), kv)
	h = g.Add(h, g.RMSNorm(l.PostAttnNorm, x, m.RMSNormEps, 1))
	x = l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 1), m.Act, m.IntermediateSize, m.HiddenSize)
	h = g.Add(h, g.RMSNorm(l.PostMLPNorm, x, m.RMSNormEps, 1))
	return g.Name(h, "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	g.StoreKV(kv, k, v)
	x = g.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(m.QueryPreAttn), Cap: m.AttnSoftcap}, nil)
	return g.Linear(a.O, x, m.HiddenSize)
}
