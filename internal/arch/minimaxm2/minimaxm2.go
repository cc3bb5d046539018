// Package minimaxm2 is the decoder of MiniMax-M2.
//
// Differences from Mixtral: queries and keys have norms over all heads at once; half of a head turns; the router takes
// the sigmoid of each score and chooses with a correction bias.
//
// Source: transformers, models/minimax_m2/modeling_minimax_m2.py; llama.cpp, src/models/minimax-m2.cpp. published.json:
// MiniMax-M2. The golden's record is of a program after the modeling file, in C++ and Python, and not of PyTorch.
package minimaxm2

import (
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	family.Mixture
	Rope rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight          `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     family.NormedAttention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight          `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MoE      MoE                    `gguf:"" hf:"block_sparse_moe"`
}

// MoE is the mixture of experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias   *graph.Weight `gguf:"exp_probs_b.bias" hf:"e_score_correction_bias"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.w1"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"experts.w3"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"experts.w2"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	})
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv))
	h = g.Add(h, l.MoE.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.NormedAttention, x *graph.Node, kv *graph.KV) *graph.Node {
	q := g.RMSNorm(a.QNorm, g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.RMSNormEps, 0)   // [T, heads·dim]
	k := g.RMSNorm(a.KNorm, g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.RMSNormEps, 0) // [T, kvHeads·dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim)                  // [T, kvHeads, dim]
	q, k = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn), g.RoPE("k", g.Heads(k, m.HeadDim), m.turn)
	return a.Mix(g, q, k, v, kv, &m.Sizes)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.gate.out") // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: true}, nil, e.Bias)
	experts := family.Routed{Gate: e.Gate, Up: e.Up, Down: e.Down}
	return experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
}
