// Package qwen3moe is the Qwen 3 decoder with a mixture of experts.
//
// Differences from Qwen 3: the feed-forward part of each layer is a mixture: the router takes the softmax
// over all experts, keeps the best and, where norm_topk_prob says so, divides their weights by their sum,
// giving the softmax of the kept scores.
//
// Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py; Yang et al. 2025, arXiv:2505.09388.
package qwen3moe

import (
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	family.Mixture
	Normalize  bool       `json:"norm_topk_prob"`
	SparseStep int        `json:"decoder_sparse_step"`
	DenseOnly  []int      `json:"mlp_only_layers"`
	Window     int        `json:"sliding_window"`
	Deepstack  int        `json:"n_deepstack_layers"`
	Sections   []int      `json:"mrope_section"` // pairs turning by each part of a position (models that see)
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
	AttnNorm *graph.Weight          `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     family.NormedAttention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight          `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MoE      MoE                    `gguf:"" hf:"mlp"`
}

// MoE is the mixture of experts.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Experts family.Routed `gguf:"" hf:"experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.SparseStep > 1 || len(c.DenseOnly) > 0 {
		return nil, fmt.Errorf("decoder_sparse_step is %d and mlp_only_layers %v: some layers have no experts; "+
			"only models whose layers all have experts are supported", c.SparseStep, c.DenseOnly)
	}
	if c.Window > 0 {
		return nil, fmt.Errorf("sliding_window %d with use_sliding_window, only models without a window are supported",
			c.Window)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	if err == nil {
		turn, err = turn.Divide(c.Sections, true)
	}
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		x = m.Layers[kv.Layer].forward(g, x, kv, m)
		if kv.Layer < m.Deepstack {
			x = g.Add(x, g.Deepstack(kv.Layer, m.HiddenSize))
		}
		return x
	})
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.Forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, &m.Sizes, m.RMSNormEps, &m.turn))
	h = g.Add(h, l.MoE.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Linear(e.Router, x, m.NumExperts) // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: m.Normalize}, nil, nil)
	return e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
}
