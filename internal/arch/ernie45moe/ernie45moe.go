// Package ernie45moe is the decoder of ERNIE 4.5's models with experts.
//
// Differences from Llama: pairs of neighbouring features turn; behind the first layers a mixture of experts, beside an
// MLP for all tokens. The router takes the softmax over all experts, chooses with a correction bias, and divides the
// weights of the chosen ones, without the bias, by their sum.
//
// Source: transformers, models/ernie4_5_moe/modeling_ernie4_5_moe.py; llama.cpp, src/models/ernie4-5-moe.cpp.
// published.json: MindIE's tests of ERNIE-4.5-21B-A3B, and transformers' configuration.
package ernie45moe

import (
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	family.Mixture
	FirstDense int `json:"moe_layer_start_index"`
	NumShared  int `json:"num_shared_experts"`
	Interval   int `json:"moe_layer_interval"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with either an MLP or a mixture.
type Layer struct {
	AttnNorm         *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm          *graph.Weight    `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router  *graph.Weight  `gguf:"ffn_gate_inp" hf:"gate"`
	Bias    *graph.Weight  `gguf:"exp_probs_b.bias" hf:"moe_statics.e_score_correction_bias"`
	Experts family.Routed  `gguf:"" hf:"experts"`
	Shared  *family.Shared `gguf:"" hf:"shared_experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	turn.Interleaved = true
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	for i := range m.Layers {
		m.Layers[i].Choose(i < c.FirstDense || (i+1)%c.Interval != 0)
		if m.Layers[i].MoE != nil && c.NumShared > 0 {
			m.Layers[i].MoE.Shared = new(family.Shared)
		}
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		l := &m.Layers[kv.Layer]
		x = g.Add(x, l.Attn.Forward(g, g.RMSNorm(l.AttnNorm, x, m.RMSNormEps, 0), kv, &m.Sizes, &m.turn))
		y := g.RMSNorm(l.MLPNorm, x, m.RMSNormEps, 0)
		moe := func(x *graph.Node) *graph.Node { return l.MoE.forward(g, x, m) }
		return g.Name(g.Add(x, l.Feed.Forward(g, y, &m.Usual, m.IntermediateSize, moe)), "out", "out")
	})
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Linear(e.Router, x, m.NumExperts) // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: true}, nil, e.Bias)
	y := e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
	if e.Shared != nil {
		y = g.Add(y, e.Shared.Forward(g, "mlp.shared_experts", x, m.Act, m.NumShared*m.ExpertSize, m.HiddenSize))
	}
	return g.Name(y, "ffn_out", "mlp.out")
}
