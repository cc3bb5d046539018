// Package olmoe is the OLMoE decoder.
//
// Differences from Llama: norms of queries and keys over all heads together; the feed-forward part of each layer
// is a mixture of experts, whose weights are parts of the softmax over all experts and need not sum to 1.
//
// Source: transformers, models/olmoe/modeling_olmoe.py; Muennighoff et al. 2024, arXiv:2409.02060.
// published.json has the values of transformers' OlmoeConfig, and the sizes of OLMoE-1B-7B-0924.
package olmoe

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	ExpertSize int        `json:"intermediate_size"`
	NumExperts int        `json:"num_experts"`
	TopK       int        `json:"top_k_experts"`
	Normalize  bool       `json:"norm_topk_prob"`
	Rope       rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer = family.Layer[family.NormedAttention, MoE]

// MoE is the mixture of experts.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Experts family.Routed `gguf:"" hf:"experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		l := &m.Layers[kv.Layer]
		attn := func(x *graph.Node) *graph.Node { return m.attend(g, &l.Attn, x, kv) }
		mlp := func(x *graph.Node) *graph.Node { return l.MLP.forward(g, x, m) }
		return l.Record(g, x, &m.Usual, attn, mlp)
	})
}

func (m *Model) attend(g graph.Builder, a *family.NormedAttention, x *graph.Node, kv *graph.KV) *graph.Node {
	q := g.RMSNorm(a.QNorm, g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.RMSNormEps, 0)   // [T, heads·dim]
	k := g.RMSNorm(a.KNorm, g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.RMSNormEps, 0) // [T, kvHeads·dim]
	v := g.Linear(a.V, x, m.NumKVHeads*m.HeadDim)                                      //
	q = g.RoPE("q", g.Heads(q, m.HeadDim), m.turn)                                     // [T, heads, dim]
	k = g.RoPE("k", g.Heads(k, m.HeadDim), m.turn)                                     // [T, kvHeads, dim]
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Linear(e.Router, x, m.NumExperts) // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: m.Normalize}, nil, nil)
	return e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
}
