// Package gptoss is the decoder of gpt-oss.
//
// Differences from Llama: every layer has experts, the best few weighed by the softmax over their scores;
// gate and up are clamped, the gate's SiLU is steeper, and 1 is added to up; softmax of attention has a
// learned sink for each head; every other layer slides; all projections have biases, the router included;
// rotation by yarn between bounds off whole pairs.
//
// Source: transformers, models/gpt_oss/modeling_gpt_oss.py; OpenAI 2025, arXiv:2508.10925.
package gptoss

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	family.Mixture
	LayerTypes    []string   `json:"layer_types"`
	SlidingWindow int        `json:"sliding_window"`
	Limit         float64    `json:"swiglu_limit"`
	AttentionBias bool       `json:"attention_bias"`
	Rope          rope.Kinds `json:"rope_parameters"`
}

// steepness multiplies the gate in its sigmoid. No configuration has a key.
const steepness = 1.702

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     Attention     `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MoE      MoE           `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention with a sink for each head of queries.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"attention_bias"`
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"attention_bias"`
	OBias            *graph.Weight `gguf:"attn_output.bias" hf:"o_proj.bias" if:"attention_bias"`
	Sinks            *graph.Weight `gguf:"attn_sinks" hf:"sinks"`
}

// MoE is the mixture of experts. Each weight except the router's is a stack over all experts.
type MoE struct {
	Router     *graph.Weight `gguf:"ffn_gate_inp" hf:"router"`
	RouterBias *graph.Weight `gguf:"ffn_gate_inp.bias" hf:"router.bias"`
	Gate       *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.gate_proj"`
	GateBias   *graph.Weight `gguf:"ffn_gate_exps.bias" hf:"experts.gate_proj_bias"`
	Up         *graph.Weight `gguf:"ffn_up_exps" hf:"experts.up_proj"`
	UpBias     *graph.Weight `gguf:"ffn_up_exps.bias" hf:"experts.up_proj_bias"`
	Down       *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj"`
	DownBias   *graph.Weight `gguf:"ffn_down_exps.bias" hf:"experts.down_proj_bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		if m.LayerTypes[kv.Layer] == "sliding_attention" {
			kv.Window = m.SlidingWindow
		}
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	})
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	h = g.Add(h, l.MoE.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim)   // [T, heads·dim]
	k := family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim) // [T, kvHeads·dim]
	v := family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim) //
	q = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn)                 // [T, heads, dim]
	k = g.RoPE("k", g.Heads(k, m.HeadDim), m.turn)                 // [T, kvHeads, dim]
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))
	y := g.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(m.HeadDim))}, a.Sinks)
	return family.Linear(g, a.O, a.OBias, y, m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Bias(e.RouterBias, g.Linear(e.Router, x, m.NumExperts)) // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxChosen}, nil, nil)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act, Limit: m.Limit, Alpha: steepness, Plus: 1},
		Form: graph.Apart}
	matrices, biases := []*graph.Weight{e.Gate, e.Up, e.Down}, []*graph.Weight{e.GateBias, e.UpBias, e.DownBias}
	y := g.ExpertsWith(experts, matrices, biases, x, route, m.NumExperts, m.ExpertSize)
	return g.Name(y, "ffn_experts", "mlp.experts.out")
}
