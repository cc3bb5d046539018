// Package llama4 is the text decoder of Llama 4.
//
// Differences from Llama: three of four layers see a chunk of the context and turn, in neighbouring pairs, and may norm
// the turned rows; the fourth sees all, does not turn, and its queries grow with their position. Every so many layers
// the MLP is a mixture beside a shared expert: the sigmoid of the best score multiplies the input of its expert.
//
// Source: transformers, models/llama4/modeling_llama4.py; Meta 2025, The Llama 4 herd.
package llama4

import (
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	family.Mixture
	ExpertStep int      `json:"interleave_moe_layer_step"`
	LayerTypes []string `json:"layer_types"`
	Turning    []int    `json:"no_rope_layers"` // where the types do not name the layers
	ChunkSize  int      `json:"sliding_window"`
	QKNorm     bool     `json:"use_qk_norm"`
	Tuned      bool     `json:"attn_temperature_tuning"`
	FloorScale int      `json:"floor_scale"`
	AttnScale  float64  `json:"attn_scale"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with either an MLP or a mixture.
type Layer struct {
	AttnNorm *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight    `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP      *family.MLP      `gguf:"" hf:"feed_forward"`
	MoE      *MoE             `gguf:"" hf:"feed_forward"`
}

// MoE is the mixture of experts, with a shared expert for all tokens.
type MoE struct {
	Router     *graph.Weight `gguf:"ffn_gate_inp" hf:"router"`
	Gate       *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.gate_proj"`
	Up         *graph.Weight `gguf:"ffn_up_exps" hf:"experts.up_proj"`
	Down       *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj"`
	SharedGate *graph.Weight `gguf:"ffn_gate_shexp" hf:"shared_expert.gate_proj"`
	SharedUp   *graph.Weight `gguf:"ffn_up_shexp" hf:"shared_expert.up_proj"`
	SharedDown *graph.Weight `gguf:"ffn_down_shexp" hf:"shared_expert.down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if len(c.Turning) > 0 || c.ExpertStep < 1 {
		return nil, fmt.Errorf("no_rope_layers %v and interleave_moe_layer_step %d, supported are full layers "+
			"alone without rope, and experts every so many layers", c.Turning, c.ExpertStep)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	turn.Interleaved = true
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	for i := range m.Layers {
		if (i+1)%c.ExpertStep == 0 {
			m.Layers[i].MoE = new(MoE)
		} else {
			m.Layers[i].MLP = new(family.MLP)
		}
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	return m.Record(g, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		if m.LayerTypes[kv.Layer] != "full_attention" {
			kv.Window, kv.Chunked = m.ChunkSize, true
		}
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	})
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, m.attend(g, &l.Attn, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv))
	x := g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if l.MLP != nil {
		x = l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)
	} else {
		x = l.MoE.forward(g, x, m)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q, k, v := a.Heads(g, x, &m.Sizes)
	if kv.Chunked {
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
		if m.QKNorm {
			q = g.Name(g.Normalize(q, m.RMSNormEps), "attn_q_norm", "self_attn.qk_norm.out")
			k = g.Name(g.Normalize(k, m.RMSNormEps), "attn_k_norm", "self_attn.k_norm.out")
		}
	} else if m.Tuned {
		q = g.ScalePos(q, graph.ScalePosAttr{Beta: m.AttnScale, Every: m.FloorScale, Shift: 1})
	}
	return a.Mix(g, q, k, v, kv, &m.Sizes)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, graph.RouteAttr{Weigh: graph.SigmoidEach}, nil,
		nil)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart, OnInput: true}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	y = g.Name(y, "ffn_experts", "feed_forward.experts.sum") // the module itself returns the outputs of each expert
	gate, up := g.Linear(e.SharedGate, x, m.ExpertSize), g.Linear(e.SharedUp, x, m.ExpertSize)
	y = g.Add(y, g.Linear(e.SharedDown, g.GLU(m.Act, gate, up), m.HiddenSize))
	return g.Name(y, "ffn_out", "feed_forward.out")
}
