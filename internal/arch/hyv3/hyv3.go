// Package hyv3 is the decoder of Hunyuan 3 (Hy3).
//
// Differences from Llama: norms of queries and keys, head by head; behind the first layers a mixture of experts,
// beside an expert for all tokens. The router takes the sigmoid of each score and chooses with a correction bias.
// The layer behind the last is a head predicting further tokens.
//
// Source: transformers, models/hy_v3/modeling_hy_v3.py; llama.cpp, src/models/hy-v3.cpp. published.json: Hy3-preview.
package hyv3

import (
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	family.Routing
	NumNext    int `json:"num_nextn_predict_layers"` // layers behind the last
	FirstDense int `json:"first_k_dense_replace"`
	NumShared  int `json:"num_shared_experts"`
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
	Next             *family.Next           `gguf:"" hf:""` // of a layer behind the last
	AttnNorm         *graph.Weight          `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             family.NormedAttention `gguf:"" hf:"self_attn"`
	MLPNorm          *graph.Weight          `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"router.gate"`
	Bias    *graph.Weight `gguf:"exp_probs_b" hf:"expert_bias"`
	Experts family.Routed `gguf:"" hf:"experts"`
	Shared  family.Shared `gguf:"" hf:"shared_mlp"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers + c.NumNext)}
	m.route = graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: c.Normalize, Factor: c.Factor}
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
	x := g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0)
	h = g.Add(h, l.Attn.Forward(g, x, kv, &m.Sizes, m.RMSNormEps, &m.turn))
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	moe := func(x *graph.Node) *graph.Node { return l.MoE.forward(g, x, m) }
	x = l.Feed.Forward(g, x, &m.Usual, m.IntermediateSize, moe)
	return g.Name(g.Add(h, x), "out", "out")
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.gate.out")
	y := e.Experts.Forward(g, x, g.RouteWith(scores, m.TopK, m.route, nil, e.Bias), m.Act, m.NumExperts, m.ExpertSize)
	y = g.Add(y, e.Shared.Forward(g, "mlp.shared_experts", x, m.Act, m.NumShared*m.ExpertSize, m.HiddenSize))
	return g.Name(y, "ffn_out", "mlp.out")
}
