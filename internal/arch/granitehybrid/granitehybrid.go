// Package granitehybrid is the Granite 4 decoder.
//
// Differences from Llama: most layers have Mamba 2's gated scan in the place of attention; attention sees no
// positions. Experts, where there are any, stand beside an MLP for all tokens. There are Granite's four
// multipliers: of the embedding, of the attention's scores in the place of 1/sqrt(head size), of the output
// of each half of a layer, and of the logits, divided by the multiplier.
//
// Source: transformers, models/granitemoehybrid/modeling_granitemoehybrid.py; Dao and Gu 2024, arXiv:2405.21060.
package granitehybrid

import (
	"cmp"
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	ExpertSize      int        `json:"intermediate_size"`
	SharedSize      int        `json:"shared_intermediate_size"`
	NumExperts      int        `json:"num_experts"`
	TopK            int        `json:"top_k_experts"`
	LayerTypes      []string   `json:"layer_types"`
	ScanHeads       int        `json:"mamba_n_heads"`
	ScanDim         int        `json:"mamba_d_head"`
	ScanGroups      int        `json:"mamba_n_groups"`
	StateSize       int        `json:"mamba_d_state"`
	Kernel          int        `json:"mamba_d_conv"`
	Expand          float64    `json:"mamba_expand"`
	AttentionBias   bool       `json:"attention_bias"`
	ConvBias        bool       `json:"mamba_conv_bias"`
	ScanBias        bool       `json:"mamba_proj_bias"`
	Positions       string     `json:"position_embedding_type"` // rope, or none
	StepLimit       any        `json:"time_step_limit"`         // nil for none
	EmbedMultiplier float64    `json:"embedding_multiplier"`
	AttnMultiplier  float64    `json:"attention_multiplier"`
	HalfMultiplier  float64    `json:"residual_multiplier"`
	LogitsScaling   float64    `json:"logits_scaling"`
	Rope            rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr // nil where nothing turns
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with a single mixer.
type Layer struct {
	MixerNorm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Scan      *Scan         `gguf:"" hf:"mamba"`
	Attn      *Attention    `gguf:"" hf:"self_attn"`
	MLPNorm   *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MoE       MoE           `gguf:"" hf:"block_sparse_moe"`
	MLP       *MLP          `gguf:"" hf:"shared_mlp"` // or
	Shared    *SharedMLP    `gguf:"" hf:"shared_mlp"`
}

// Scan is a gated selective scan.
type Scan struct {
	In       *graph.Weight `gguf:"ssm_in" hf:"in_proj"`
	Conv     *graph.Weight `gguf:"ssm_conv1d" hf:"conv1d"`
	ConvBias *graph.Weight `gguf:"ssm_conv1d.bias" hf:"conv1d.bias" if:"mamba_conv_bias"`
	A        *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	StepBias *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_bias"`
	D        *graph.Weight `gguf:"ssm_d" hf:"D"`
	Norm     *graph.Weight `gguf:"ssm_norm" hf:"norm"`
	Out      *graph.Weight `gguf:"ssm_out" hf:"out_proj"`
}

// Attention is grouped-query attention.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	QBias            *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
	KBias            *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"attention_bias"`
	VBias            *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"attention_bias"`
	OBias            *graph.Weight `gguf:"attn_output.bias" hf:"o_proj.bias" if:"attention_bias"`
}

// MoE is the mixture of experts. Each of the last three weights is a stack over all experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"router.layer" if:"num_experts"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"gate_linear" if:"num_experts"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"up_linear" if:"num_experts"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"output_linear" if:"num_experts"`
}

// MLP is the gated feed-forward part of a model without experts.
type MLP struct {
	Gate *graph.Weight `gguf:"ffn_gate" hf:"gate_linear"`
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_linear"`
	Down *graph.Weight `gguf:"ffn_down" hf:"output_linear"`
}

// SharedMLP is the same part beside experts: GGUF has other names for its weights.
type SharedMLP struct {
	Gate *graph.Weight `gguf:"ffn_gate_shexp" hf:"gate_linear"`
	Up   *graph.Weight `gguf:"ffn_up_shexp" hf:"up_linear"`
	Down *graph.Weight `gguf:"ffn_down_shexp" hf:"output_linear"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.ScanBias || c.StepLimit != nil {
		return nil, fmt.Errorf("mamba_proj_bias %v and time_step_limit %v, only projections without bias and steps "+
			"without a limit are supported", c.ScanBias, c.StepLimit)
	}
	if c.Positions != "" && c.Positions != "rope" && c.Positions != "nope" {
		return nil, fmt.Errorf("position_embedding_type %q, supported are rope and nope", c.Positions)
	}
	if inner := c.ScanHeads * c.ScanDim; c.Expand != 0 && int(c.Expand*float64(c.HiddenSize)) != inner {
		return nil, fmt.Errorf("%d heads of scans of %d, and mamba_expand is %v of a hidden size of %d", c.ScanHeads,
			c.ScanDim, c.Expand, c.HiddenSize)
	}
	m := &Model{Config: c, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	for i := range m.Layers {
		if c.LayerTypes[i] == family.FullAttention {
			m.Layers[i].Attn = new(Attention)
		} else {
			m.Layers[i].Scan = new(Scan)
		}
		if c.NumExperts > 0 {
			m.Layers[i].Shared = new(SharedMLP)
		} else {
			m.Layers[i].MLP = new(MLP)
		}
	}
	if c.Positions != "rope" {
		return m, nil
	}
	var err error
	m.turn, err = family.Turn(c.HeadDim, c.Rope.Full)
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Scale(g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1), m.EmbedMultiplier)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	h = family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
	return g.Scale(h, 1/m.LogitsScaling)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.RMSNorm(l.MixerNorm, h, m.RMSNormEps, 0)
	if l.Attn != nil {
		x = l.Attn.forward(g, x, kv, m)
	} else {
		x = l.Scan.forward(g, x, m)
	}
	h = g.Add(h, g.Scale(x, m.HalfMultiplier))
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	y := cmp.Or((*MLP)(l.Shared), l.MLP).forward(g, x, m)
	if m.NumExperts > 0 {
		y = g.Add(l.MoE.forward(g, x, m), y)
	}
	return g.Name(g.Add(h, g.Scale(y, m.HalfMultiplier)), "out", "out")
}

func (s *Scan) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	inner, groups := m.ScanHeads*m.ScanDim, m.ScanGroups*m.StateSize
	all := g.Linear(s.In, h, 2*inner+2*groups+m.ScanHeads)                           // [T, gate, x, b, c, dt]
	xbc := g.Conv(s.Conv, s.ConvBias, g.Slice(all, inner, inner+2*groups), m.Kernel) // [T, heads·dim + 2·groups·n]
	xbc = g.Act(m.Act, xbc)
	x := g.Heads(g.Slice(xbc, 0, inner), m.ScanDim)               // [T, heads, dim]
	b := g.Heads(g.Slice(xbc, inner, groups), m.StateSize)        // [T, groups, n]
	c := g.Heads(g.Slice(xbc, inner+groups, groups), m.StateSize) //
	dt := g.Slice(all, 2*inner+2*groups, m.ScanHeads)             // [T, heads]
	y := g.SSMScan(s.A, s.StepBias, s.D, x, dt, b, c)             // [T, heads, dim]
	y = g.GLU(graph.SiLU, g.Slice(all, 0, inner), y)              // [T, heads·dim]
	return g.Linear(s.Out, g.RMSNorm(s.Norm, y, m.RMSNormEps, 0), m.HiddenSize)
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(family.Linear(g, a.Q, a.QBias, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(family.Linear(g, a.K, a.KBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(family.Linear(g, a.V, a.VBias, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	if m.turn.Freqs != nil {
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	}
	g.StoreKV(kv, k, v)
	return family.Linear(g, a.O, a.OBias, g.Attention(q, kv, m.AttnMultiplier), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.Route(g.Linear(e.Router, x, m.NumExperts), nil, m.TopK)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	return g.Name(y, "ffn_experts", "block_sparse_moe.experts.out")
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	gate, up := g.Linear(p.Gate, x, m.SharedSize), g.Linear(p.Up, x, m.SharedSize)
	return g.Linear(p.Down, g.GLU(m.Act, gate, up), m.HiddenSize)
}
