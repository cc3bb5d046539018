// Package glm4moe is the decoder of GLM-4.5 and GLM-4.5-Air.
//
// Differences from Llama: all layers except the first have a mixture of experts, beside an expert for all
// tokens; the router takes the sigmoid of each score and chooses with a correction bias; half of a head's
// features turn; queries and keys may be normed, and have biases, as values do. The layer
// behind the last is a head predicting further tokens: after the last norm a state feeds it, then its own
// normed state, as in SGLang, models/glm4_moe_nextn.py (vLLM's glm4_moe_mtp.py feeds its own before the norm).
//
// Source: transformers, models/glm4_moe/modeling_glm4_moe.py; GLM-4.5 Team 2025, arXiv:2508.06471.
package glm4moe

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	family.Routing
	NumNext       int    `json:"num_nextn_predict_layers"` // layers behind the last
	AttentionBias bool   `json:"attention_bias"`
	QKNorm        bool   `json:"use_qk_norm"`
	FirstDense    int    `json:"first_k_dense_replace"`
	NumShared     int    `json:"n_shared_experts"`
	Scoring       string `json:"scoring_func"`
	Groups        int    `json:"n_group"`
	KeptGroups    int    `json:"topk_group"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	route               graph.RouteAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with either an MLP or a mixture.
type Layer struct {
	Next             *family.Next  `gguf:"" hf:""` // of a layer behind the last
	AttnNorm         *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             Attention     `gguf:"" hf:"self_attn"`
	MLPNorm          *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"attention_bias"`
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"attention_bias"`
	QNorm            *graph.Weight `gguf:"attn_q_norm" hf:"q_norm" if:"use_qk_norm"`
	KNorm            *graph.Weight `gguf:"attn_k_norm" hf:"k_norm" if:"use_qk_norm"`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router     *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias       *graph.Weight `gguf:"exp_probs_b.bias" hf:"gate.e_score_correction_bias"`
	Experts    family.Routed `gguf:"" hf:"experts"`
	SharedGate *graph.Weight `gguf:"ffn_gate_shexp" hf:"shared_experts.gate_proj" if:"n_shared_experts"`
	SharedUp   *graph.Weight `gguf:"ffn_up_shexp" hf:"shared_experts.up_proj" if:"n_shared_experts"`
	SharedDown *graph.Weight `gguf:"ffn_down_shexp" hf:"shared_experts.down_proj" if:"n_shared_experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.Scoring != "sigmoid" {
		return nil, fmt.Errorf("scoring_func %q, only sigmoid is supported", c.Scoring)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers + c.NumNext)}
	m.route = graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: c.Normalize, Factor: c.Factor, Groups: c.Groups,
		Kept: c.KeptGroups, Best: 2}
	for i := range m.Layers {
		if i >= c.NumLayers {
			m.Layers[i].Next = new(family.Next)
		}
		m.Layers[i].Choose(i < c.FirstDense)
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node { return m.Decoder().Forward(g) }

// Decoder implements family.Predictor.
func (m *Model) Decoder() *family.Decoder {
	return family.Predicting(&m.Trunk, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	}, func(l *Layer) *family.Next { return l.Next })
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	x := g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	moe := func(x *graph.Node) *graph.Node { return l.MoE.forward(g, x, m) }
	x = l.Feed.Forward(g, x, &m.Usual, m.IntermediateSize, moe)
	return g.Name(g.Add(h, x), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	if m.QKNorm {
		q, k = g.RMSNorm(a.QNorm, q, m.RMSNormEps, 0), g.RMSNorm(a.KNorm, k, m.RMSNormEps, 0)
	}
	g.StoreKV(kv, g.RoPE("k", k, m.turn), v)
	y := g.Attention(g.RoPE("q", q, m.turn), kv, 1/math.Sqrt(float64(m.HeadDim)))
	return g.Linear(a.O, y, m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, m.route, nil, e.Bias)
	y := e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
	if e.SharedUp == nil {
		return y
	}
	gate, up := g.Linear(e.SharedGate, x, m.NumShared*m.ExpertSize), g.Linear(e.SharedUp, x, m.NumShared*m.ExpertSize)
	y = g.Add(y, g.Linear(e.SharedDown, g.GLU(m.Act, gate, up), m.HiddenSize))
	return g.Name(y, "ffn_out", "mlp.out")
}
