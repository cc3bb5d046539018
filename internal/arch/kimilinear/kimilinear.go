// Package kimilinear is the decoder of Moonshot's Kimi Linear.
//
// Differences from DeepSeek V3: most layers have Kimi Delta Attention in the place of attention: short convolutions of
// queries, keys and values, then the gated delta rule with a decay for each element of a key, then a norm with a
// sigmoid gate. Latent attention in the other layers sees no positions: the part of keys that all heads share does not
// turn.
//
// Source: transformers, models/kimi_linear/modular_kimi_linear.py; llama.cpp, src/models/kimi-linear.cpp; Kimi Team
// 2025, arXiv:2510.26692. published.json: tests of public engines, as they have Kimi-Linear-48B-A3B-Instruct's values,
// and transformers' class for model_max_length.
package kimilinear

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Latent
	LayerTypes []string `json:"layer_types"`
	DeltaDim   int      `json:"linear_head_dim"`
	Kernel     int      `json:"linear_conv_kernel_dim"`
	Factor     float64  `json:"routed_scaling_factor"`
}

// Model is the whole decoder.
type Model struct {
	Config
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer: delta or latent attention, then an MLP or experts.
type Layer struct {
	Norm    *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Delta   *Delta        `gguf:"" hf:"self_attn"`
	Attn    *Attention    `gguf:"" hf:"self_attn"`
	MLPNorm *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP     *family.MLP   `gguf:"" hf:"mlp"`
	MoE     *MoE          `gguf:"" hf:"block_sparse_moe"`
}

// Delta is Kimi Delta Attention. The gates of decays (F) and of the output (G) are products of a small latent.
type Delta struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	QConv *graph.Weight `gguf:"ssm_conv1d_q" hf:"q_conv1d"`
	KConv *graph.Weight `gguf:"ssm_conv1d_k" hf:"k_conv1d"`
	VConv *graph.Weight `gguf:"ssm_conv1d_v" hf:"v_conv1d"`
	FA    *graph.Weight `gguf:"ssm_f_a" hf:"f_a_proj"`
	FB    *graph.Weight `gguf:"ssm_f_b" hf:"f_b_proj"`
	Beta  *graph.Weight `gguf:"ssm_beta" hf:"b_proj"`
	Decay *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	Bias  *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_bias"`
	GA    *graph.Weight `gguf:"ssm_g_a" hf:"g_a_proj"`
	GB    *graph.Weight `gguf:"ssm_g_b" hf:"g_b_proj"`
	Norm  *graph.Weight `gguf:"ssm_norm" hf:"o_norm"`
	Out   *graph.Weight `gguf:"attn_output" hf:"o_proj"`
}

// Attention is latent attention, as DeepSeek's.
type Attention struct {
	Q                      *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	family.LatentAttention `gguf:"" hf:""`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router     *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias       *graph.Weight `gguf:"exp_probs_b.bias" hf:"gate.e_score_correction_bias"`
	Gate       *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.w1"`
	Up         *graph.Weight `gguf:"ffn_up_exps" hf:"experts.w3"`
	Down       *graph.Weight `gguf:"ffn_down_exps" hf:"experts.w2"`
	SharedPart family.Shared `gguf:"" hf:"shared_experts"`
}

// Epsilons of the norms of latents and of the lengths of queries and keys, whatever RMSNormEps says.
const latentEps, lengthEps = 1e-6, 1e-6

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	m := &Model{Config: c, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	for i := range m.Layers {
		l := &m.Layers[i]
		if l.Delta = new(Delta); c.LayerTypes[i] == family.FullAttention {
			l.Delta, l.Attn = nil, new(Attention)
		}
		if l.MLP = new(family.MLP); i >= c.FirstDense {
			l.MLP, l.MoE = nil, new(MoE)
		}
	}
	return m, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		h = m.Layers[i].forward(g.Layer(i), h, m.KV(i), m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.RMSNorm(l.Norm, h, m.RMSNormEps, 0)
	if l.Attn != nil {
		x = l.Attn.forward(g, x, kv, m)
	} else {
		x = l.Delta.forward(g, x, m)
	}
	h = g.Add(h, x)
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if l.MoE != nil {
		x = l.MoE.forward(g, x, m)
	} else {
		x = l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (d *Delta) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	inner := m.NumHeads * m.DeltaDim
	part := func(w, conv *graph.Weight) *graph.Node { // [T, heads, dim]
		return g.Heads(g.Act(graph.SiLU, g.Conv(conv, nil, g.Linear(w, x, inner), m.Kernel)), m.DeltaDim)
	}
	q, k, v := part(d.Q, d.QConv), part(d.K, d.KConv), part(d.V, d.VConv)
	q = g.Scale(g.L2Norm(q, lengthEps), 1/math.Sqrt(float64(m.DeltaDim)))
	gate := g.Linear(d.FB, g.Linear(d.FA, x, m.DeltaDim), inner) // [T, heads·dim]
	y := g.DeltaScan(d.Decay, d.Bias, q, g.L2Norm(k, lengthEps), v, gate, g.Linear(d.Beta, x, m.NumHeads))
	y = g.RMSNorm(d.Norm, y, m.RMSNormEps, 0)
	y.HF = "" // the module multiplies by the gate
	out := g.Heads(g.Linear(d.GB, g.Linear(d.GA, x, m.DeltaDim), inner), m.DeltaDim)
	return g.Linear(d.Out, g.Name(g.GLU(graph.Sigmoid, out, y), "ssm_gated", "self_attn.o_norm.out"), m.HiddenSize)
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	dim := m.PlainDim + m.SharedDim
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*dim), dim)                   // [T, heads, plain + shared]
	plain := g.HeadLinear(a.KeyB, g.Slice(q, 0, m.PlainDim), m.Rank)      // [T, heads, rank]
	both := g.Linear(a.KVA, x, kv.Dim)                                    // [T, rank + shared]
	latent := g.RMSNorm(a.KVNorm, g.Slice(both, 0, m.Rank), latentEps, 0) // [T, rank]
	g.StoreKV(kv, g.Heads(g.Concat(latent, g.Slice(both, m.Rank, m.SharedDim)), kv.Dim), nil)
	y := g.Attention(g.Concat(plain, g.Slice(q, m.PlainDim, m.SharedDim)), kv, 1/math.Sqrt(float64(dim)))
	return g.Linear(a.O, g.HeadLinear(a.ValueB, g.Heads(y, m.Rank), m.ValueDim), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	a := graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: true, Factor: m.Factor}
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.gate.out")
	route := g.RouteWith(scores, m.TopK, a, nil, e.Bias)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	y = g.Name(y, "ffn_experts", "mlp.experts.out")
	shared := e.SharedPart.Forward(g, "mlp.shared_experts", x, m.Act, m.NumShared*m.ExpertSize, m.HiddenSize)
	return g.Name(g.Add(y, shared), "ffn_out", "mlp.out")
}
