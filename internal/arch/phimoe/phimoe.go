// Package phimoe is the decoder of Phi-3.5-MoE.
//
// Differences from Mixtral: norms are LayerNorms with biases, and projections and the head may have biases; heads
// turn by longrope, with a multiplier of its own; the router weighs each of its choices by a softmax of its own, over
// the scores near the choice's. llama.cpp weighs the choices by a softmax of all scores instead.
//
// Source: transformers, models/phimoe/modeling_phimoe.py; llama.cpp, src/models/phimoe.cpp; Liu et al. 2024,
// arXiv:2409.12136. published.json: transformers' models/phimoe/configuration_phimoe.py; its rope_scaling is that of
// transformers' test of phimoe, since no public copy of the publisher's lists was at hand.
package phimoe

import (
	"cmp"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	ExpertSize    int              `json:"intermediate_size"`
	SlidingWindow int              `json:"sliding_window"`
	NormEps       float32          `json:"rms_norm_eps"` // of LayerNorms
	Act           graph.Activation `json:"hidden_act"`
	AttentionBias bool             `json:"attention_bias"`
	HeadBias      bool             `json:"lm_head_bias"`
	NumExperts    int              `json:"num_experts"`
	TopK          int              `json:"top_k_experts"`
	Jitter        float64          `json:"router_jitter_noise"`
	Rope          rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn       graph.RoPEAttr
	Embed      *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers     []Layer       `gguf:"blk" hf:"model.layers"`
	Norm       *graph.Weight `gguf:"output_norm" hf:"model.norm"`
	NormBias   *graph.Weight `gguf:"output_norm.bias" hf:"model.norm.bias"`
	Output     *graph.Weight `gguf:"output" hf:"lm_head"`
	OutputBias *graph.Weight `gguf:"output.bias" hf:"lm_head.bias" if:"lm_head_bias"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm     *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	AttnNormBias *graph.Weight `gguf:"attn_norm.bias" hf:"input_layernorm.bias"`
	Attn         Attention     `gguf:"" hf:"self_attn"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLPNormBias  *graph.Weight `gguf:"ffn_norm.bias" hf:"post_attention_layernorm.bias"`
	MoE          MoE           `gguf:"" hf:"block_sparse_moe"`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	family.Biased `gguf:"" hf:""`
	OBias         *graph.Weight `gguf:"attn_output.bias" hf:"o_proj.bias" if:"attention_bias"`
}

// MoE is the mixture of experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.w1"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"experts.w3"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"experts.w2"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	p := c.Rope.Full
	if p.Type == "longrope" {
		p.Magnitude = cmp.Or(p.Magnitude, 1) // readers of GGUF assume 1
	}
	turn, err := family.Turn(c.HeadDim, p)
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim, Window: m.SlidingWindow}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, g.Outputs(h), m.NormEps)
	return family.Linear(g, m.Output, m.OutputBias, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.LayerNorm(l.AttnNorm, l.AttnNormBias, h, m.NormEps), kv, m))
	h = g.Add(h, l.MoE.forward(g, g.LayerNorm(l.MLPNorm, l.MLPNormBias, h, m.NormEps), m))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes, &m.turn)
	g.StoreKV(kv, k, v)
	return family.Linear(g, a.O, a.OBias, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.router.out") // [T, experts]
	rule := graph.RouteAttr{Weigh: graph.SparseMixer, Near: 2 * m.Jitter}
	experts := family.Routed{Gate: e.Gate, Up: e.Up, Down: e.Down}
	return experts.Forward(g, x, g.RouteWith(scores, m.TopK, rule, nil, nil), m.Act, m.NumExperts, m.ExpertSize)
}
