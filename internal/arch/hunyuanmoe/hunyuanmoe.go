// Package hunyuanmoe is the decoder of Hunyuan-A13B.
//
// Differences from Llama: norms of queries and keys, head by head, after their rotation; a mixture of experts in all
// layers, beside an expert for all tokens. The router takes the softmax over all experts, and divides the weights of
// the chosen ones by their sum.
//
// Source: transformers, models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py; llama.cpp, src/models/hunyuan-moe.cpp.
// published.json: what llama.cpp's converter asserts of the file, and other readers' tests of its lists.
package hunyuanmoe

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
	SharedSize int        `json:"intermediate_size"`
	Rope       rope.Kinds `json:"rope_parameters"`
}

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
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MoE      MoE           `gguf:"" hf:"mlp"`
}

// Attention is grouped-query attention over normed queries and keys.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QNorm            *graph.Weight `gguf:"attn_q_norm" hf:"query_layernorm"`
	KNorm            *graph.Weight `gguf:"attn_k_norm" hf:"key_layernorm"`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"gate.wg"`
	Experts family.Routed `gguf:"" hf:"experts"`
	Shared  family.Shared `gguf:"" hf:"shared_mlp"`
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
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	x := l.MoE.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m)
	return g.Name(g.Add(h, x), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q = g.RMSNorm(a.QNorm, g.RoPE("q", q, m.turn), m.RMSNormEps, 0)
	g.StoreKV(kv, g.RMSNorm(a.KNorm, g.RoPE("k", k, m.turn), m.RMSNormEps, 0), v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.gate.out") // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: true}, nil, nil)
	y := e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
	y = g.Add(y, e.Shared.Forward(g, "mlp.shared_mlp", x, m.Act, m.SharedSize, m.HiddenSize))
	return g.Name(y, "ffn_out", "mlp.out")
}
