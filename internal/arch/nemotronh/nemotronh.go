// Package nemotronh is the decoder of Nemotron-H, with MLPs or with experts.
//
// Differences from Llama: a layer has a norm and a single part: Mamba 2's gated scan, attention without
// positions, an MLP, or experts. The scan's output is normed by groups of heads. MLPs and experts have no gate, and a
// squared ReLU; a sigmoid weighs experts, a bias helps in their choice, and an MLP of the same make for all tokens
// stands beside. Some models' experts work in a smaller width.
//
// Source: transformers, models/nemotron_h/modeling_nemotron_h.py; NVIDIA 2025, arXiv:2504.03624.
package nemotronh

import (
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	family.Routing
	LayerTypes []string         `json:"layer_types"`
	ScanHeads  int              `json:"mamba_num_heads"`
	ScanDim    int              `json:"mamba_head_dim"`
	ScanGroups int              `json:"n_groups"`
	StateSize  int              `json:"ssm_state_size"`
	Kernel     int              `json:"conv_kernel"`
	MLPSize    int              `json:"intermediate_size"`
	NumShared  int              `json:"n_shared_experts"` // 0, or the size of all
	SharedSize int              `json:"moe_shared_expert_intermediate_size"`
	LatentSize int              `json:"moe_latent_size"` // experts' width; 0 for the model's
	Groups     int              `json:"n_group"`
	KeptGroups int              `json:"topk_group"`
	RMSNormEps float32          `json:"rms_norm_eps"`
	ScanAct    graph.Activation `json:"mamba_hidden_act"`
	Act        graph.Activation `json:"mlp_hidden_act"`
	ConvBias   bool             `json:"use_conv_bias"`
	Bias       bool             `json:"use_bias"`
	ScanBias   bool             `json:"mamba_proj_bias"`
	MLPBias    bool             `json:"mlp_bias"`
	Tied       bool             `json:"tie_word_embeddings"`
	StepLimit  any              `json:"time_step_limit"` // nil for none
}

// Model is the whole decoder.
type Model struct {
	Config
	route  graph.RouteAttr
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embeddings"`
	Layers []Layer       `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"model.norm_f"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer, with a single mixer.
type Layer struct {
	Norm *graph.Weight     `gguf:"attn_norm" hf:"norm"`
	Scan *Scan             `gguf:"" hf:"mixer"`
	Attn *family.Attention `gguf:"" hf:"mixer"`
	MLP  *MLP              `gguf:"" hf:"mixer"`
	MoE  *MoE              `gguf:"" hf:"mixer"`
}

// Scan is a gated selective scan.
type Scan struct {
	In       *graph.Weight `gguf:"ssm_in" hf:"in_proj"`
	Conv     *graph.Weight `gguf:"ssm_conv1d" hf:"conv1d"`
	ConvBias *graph.Weight `gguf:"ssm_conv1d.bias" hf:"conv1d.bias" if:"use_conv_bias"`
	A        *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	StepBias *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_bias"`
	D        *graph.Weight `gguf:"ssm_d" hf:"D"`
	Norm     *graph.Weight `gguf:"ssm_norm" hf:"norm"`
	Out      *graph.Weight `gguf:"ssm_out" hf:"out_proj"`
}

// MLP is a feed-forward part without a gate.
type MLP struct {
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// MoE is the mixture of experts, beside an MLP for all tokens.
type MoE struct {
	Router     *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias       *graph.Weight `gguf:"exp_probs_b.bias" hf:"gate.e_score_correction_bias"`
	LatentDown *graph.Weight `gguf:"ffn_latent_down" hf:"fc1_latent_proj" if:"moe_latent_size"`
	LatentUp   *graph.Weight `gguf:"ffn_latent_up" hf:"fc2_latent_proj" if:"moe_latent_size"`
	Up         *graph.Weight `gguf:"ffn_up_exps" hf:"experts.up_proj"`
	Down       *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj"`
	SharedUp   *graph.Weight `gguf:"ffn_up_shexp" hf:"shared_experts.up_proj" if:"n_shared_experts"`
	SharedDown *graph.Weight `gguf:"ffn_down_shexp" hf:"shared_experts.down_proj" if:"n_shared_experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.Bias || c.ScanBias || c.MLPBias || c.StepLimit != nil {
		return nil, fmt.Errorf("use_bias %v, mamba_proj_bias %v, mlp_bias %v and time_step_limit %v, only "+
			"projections without bias and steps without a limit are supported", c.Bias, c.ScanBias, c.MLPBias,
			c.StepLimit)
	}
	m := &Model{Config: c, Layers: make([]Layer, c.NumLayers)}
	m.route = graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: c.Normalize, Factor: c.Factor, Groups: c.Groups,
		Kept: c.KeptGroups, Best: 2}
	for i := range m.Layers {
		switch l := &m.Layers[i]; c.LayerTypes[i] {
		case family.FullAttention:
			l.Attn = new(family.Attention)
		case family.MLPAlone:
			l.MLP = new(MLP)
		case family.ExpertsAlone:
			l.MoE = new(MoE)
		default:
			l.Scan = new(Scan)
		}
	}
	return m, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.RMSNorm(l.Norm, h, m.RMSNormEps, 0)
	switch {
	case l.Attn != nil:
		x = l.Attn.Forward(g, x, kv, &m.Sizes, nil)
	case l.MLP != nil:
		x = g.Linear(l.MLP.Down, g.Act(m.Act, g.Linear(l.MLP.Up, x, m.MLPSize)), m.HiddenSize)
		x = g.Name(x, "ffn_out", "mixer.out")
	case l.MoE != nil:
		x = l.MoE.forward(g, x, m)
	default:
		x = l.Scan.forward(g, x, m)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (s *Scan) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	inner, groups := m.ScanHeads*m.ScanDim, m.ScanGroups*m.StateSize
	all := g.Linear(s.In, h, 2*inner+2*groups+m.ScanHeads)                           // [T, gate, x, b, c, dt]
	xbc := g.Conv(s.Conv, s.ConvBias, g.Slice(all, inner, inner+2*groups), m.Kernel) // [T, heads·dim + 2·groups·n]
	xbc = g.Act(m.ScanAct, xbc)
	x := g.Heads(g.Slice(xbc, 0, inner), m.ScanDim)                                            // [T, heads, dim]
	b := g.Heads(g.Slice(xbc, inner, groups), m.StateSize)                                     // [T, groups, n]
	c := g.Heads(g.Slice(xbc, inner+groups, groups), m.StateSize)                              //
	y := g.SSMScan(s.A, s.StepBias, s.D, x, g.Slice(all, 2*inner+2*groups, m.ScanHeads), b, c) // [T, heads, dim]
	y = g.GLU(graph.SiLU, g.Slice(all, 0, inner), y)                                           // [T, heads·dim]
	// [T, groups, heads·dim/groups]
	y = g.Normalize(g.Heads(y, inner/m.ScanGroups), m.RMSNormEps)
	y = g.Name(g.MulWeight(s.Norm, y, inner), "ssm_norm", "mixer.norm.out")
	return g.Linear(s.Out, y, m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, m.route, nil, e.Bias)
	in := x
	if m.LatentSize > 0 {
		in = g.Linear(e.LatentDown, x, m.LatentSize)
	}
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Ungated}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Up, e.Down}, nil, in, route, m.NumExperts, m.ExpertSize)
	y = g.Name(y, "ffn_experts", "mixer.experts.out")
	if m.LatentSize > 0 {
		y = g.Linear(e.LatentUp, y, m.HiddenSize)
	}
	if m.NumShared == 0 {
		return g.Name(y, "ffn_out", "mixer.out")
	}
	shared := g.Linear(e.SharedDown, g.Act(m.Act, g.Linear(e.SharedUp, x, m.SharedSize)), m.HiddenSize)
	return g.Name(g.Add(y, shared), "ffn_out", "mixer.out")
}
