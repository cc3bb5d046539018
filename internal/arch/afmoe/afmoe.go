// Package afmoe is the decoder of Arcee's Trinity (AFMoE).
//
// Differences from Llama: the embedding is multiplied by the root of its size; norms before and behind attention and
// MLP, and of queries and keys, head by head; a gate of attention's output; three of four layers slide, and full ones
// turn neither queries nor keys; behind the first layers a mixture of experts, beside an expert for all tokens. The
// router takes the sigmoid of each score and chooses with a correction bias.
//
// Source: transformers, models/afmoe/modeling_afmoe.py; llama.cpp, src/models/afmoe.cpp. published.json:
// Trinity-Nano-Preview.
package afmoe

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	family.Routing
	LayerTypes    []string `json:"layer_types"`
	SlidingWindow int      `json:"sliding_window"`
	FirstDense    int      `json:"num_dense_layers"`
	NumShared     int      `json:"num_shared_experts"`
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
	AttnNorm         *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             Attention     `gguf:"" hf:"self_attn"`
	PostAttnNorm     *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLPNorm          *graph.Weight `gguf:"ffn_norm" hf:"pre_mlp_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
	PostMLPNorm      *graph.Weight `gguf:"post_ffw_norm" hf:"post_mlp_layernorm"`
}

// Attention is gated grouped-query attention over normed queries and keys.
type Attention struct {
	family.NormedAttention `gguf:"" hf:""`
	Gate                   *graph.Weight `gguf:"attn_gate" hf:"gate_proj"`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"router.gate"`
	Bias    *graph.Weight `gguf:"exp_probs_b.bias" hf:"expert_bias"`
	Experts family.Routed `gguf:"" hf:"experts"`
	Shared  family.Shared `gguf:"" hf:"shared_experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	m.route = graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: c.Normalize, Factor: c.Factor}
	for i := range m.Layers {
		m.Layers[i].Choose(i < c.FirstDense)
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Scale(g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1), math.Sqrt(float64(m.HiddenSize)))
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		if m.LayerTypes[i] == "sliding_attention" {
			kv.Window = m.SlidingWindow
		}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m)
	h = g.Add(h, g.RMSNorm(l.PostAttnNorm, x, m.RMSNormEps, 0))
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	moe := func(x *graph.Node) *graph.Node { return l.MoE.forward(g, x, m) }
	x = l.Feed.Forward(g, x, &m.Usual, m.IntermediateSize, moe)
	return g.Name(g.Add(h, g.RMSNorm(l.PostMLPNorm, x, m.RMSNormEps, 0)), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	q, k = g.RMSNorm(a.QNorm, q, m.RMSNormEps, 0), g.RMSNorm(a.KNorm, k, m.RMSNormEps, 0)
	if kv.Window > 0 {
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	}
	g.StoreKV(kv, k, v)
	gate, y := g.Linear(a.Gate, x, m.NumHeads*m.HeadDim), g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim)))
	return g.Linear(a.O, g.GLU(graph.Sigmoid, gate, y), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, m.route, nil, e.Bias)
	y := e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
	y = g.Add(y, e.Shared.Forward(g, "mlp.shared_experts", x, m.Act, m.NumShared*m.ExpertSize, m.HiddenSize))
	return g.Name(y, "ffn_out", "mlp.out")
}
