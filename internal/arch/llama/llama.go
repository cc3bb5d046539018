// Package llama is the decoder of Llama 2 and 3, and of Mistral's models, dense or with experts, under the
// same key. The other architectures are described by their differences from Llama.
//
// Source: transformers, models/llama/modeling_llama.py and models/mixtral/modeling_mixtral.py; Touvron et al. 2023,
// arXiv:2302.13971; Jiang et al. 2024, arXiv:2401.04088.
package llama

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
	SlidingWindow    int              `json:"sliding_window"` // Mistral 7B v0.1: on all layers
	RMSNormEps       float32          `json:"rms_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	AttentionBias    bool             `json:"attention_bias"`
	MLPBias          bool             `json:"mlp_bias"`
	Tied             bool             `json:"tie_word_embeddings"`
	NumExperts       int              `json:"num_experts"` // Mixtral; 0 in dense models
	TopK             int              `json:"top_k_experts"`
	Rope             rope.Kinds       `json:"rope_parameters"`
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
	MLP      MLP           `gguf:"" hf:"mlp"`              // of dense models
	MoE      MoE           `gguf:"" hf:"block_sparse_moe"` // of the others
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	QBias *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	KBias *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"attention_bias"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	VBias *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"attention_bias"`
	O     *graph.Weight `gguf:"attn_output" hf:"o_proj"`
	OBias *graph.Weight `gguf:"attn_output.bias" hf:"o_proj.bias" if:"attention_bias"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	Gate     *graph.Weight `gguf:"ffn_gate" hf:"gate_proj" if:"!num_experts"`
	GateBias *graph.Weight `gguf:"ffn_gate.bias" hf:"gate_proj.bias" if:"mlp_bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"up_proj" if:"!num_experts"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"up_proj.bias" if:"mlp_bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"down_proj" if:"!num_experts"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"down_proj.bias" if:"mlp_bias"`
}

// MoE is the mixture of experts. Each of the last three weights is a stack over all experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"gate" if:"num_experts"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.w1" if:"num_experts"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"experts.w3" if:"num_experts"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"experts.w2" if:"num_experts"`
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
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim, Window: m.SlidingWindow}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	x := g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if m.NumExperts > 0 {
		x = l.MoE.forward(g, x, m)
	} else {
		x = l.MLP.forward(g, x, m)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim)   // [T, heads·dim]
	k := family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim) // [T, kvHeads·dim]
	v := family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim) //
	q = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn)                 // [T, heads, dim]
	k = g.RoPE("k", g.Heads(k, m.HeadDim), m.turn)                 // [T, kvHeads, dim]
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))                        //
	x = g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim)))        // [T, heads·dim]
	return family.Linear(g, a.O, a.OBias, x, m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	gate := family.Linear(g, p.Gate, p.GateBias, x, m.IntermediateSize)
	up := family.Linear(g, p.Up, p.UpBias, x, m.IntermediateSize)
	return family.Linear(g, p.Down, p.DownBias, g.GLU(m.Act, gate, up), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.gate.out") // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: true}, nil, nil)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.IntermediateSize)
	return g.Name(y, "ffn_experts", "mlp.experts.out")
}
