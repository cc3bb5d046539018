// Package jamba is the decoder of AI21's Jamba.
//
// Differences from Llama: most layers have Mamba 1's gated scan in the place of attention, with norms of the steps, of
// keys and of queries; attention sees no positions. Every second layer has experts in the place of the MLP, weighed by
// a softmax of all scores.
//
// Source: transformers, models/jamba/modeling_jamba.py; Lieber and others 2024, arXiv:2403.19887; llama.cpp,
// src/models/jamba.cpp. published.json: onnx-diagnostic, its copy of AI21-Jamba-1.5-Mini's config.json.
package jamba

import (
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	MLPSize      int      `json:"intermediate_size"`
	NumExperts   int      `json:"num_experts"`
	TopK         int      `json:"top_k_experts"`
	ExpertPeriod int      `json:"expert_layer_period"`
	ExpertOffset int      `json:"expert_layer_offset"`
	LayerTypes   []string `json:"layer_types"`
	Expand       int      `json:"mamba_expand"`
	StateSize    int      `json:"mamba_d_state"`
	Kernel       int      `json:"mamba_d_conv"`
	StepRank     int      `json:"mamba_dt_rank"`
	ConvBias     bool     `json:"mamba_conv_bias"`
	ScanBias     bool     `json:"mamba_proj_bias"`
}

// Model is the whole decoder.
type Model struct {
	Config
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []Layer       `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"model.final_layernorm"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer: a scan or attention, then an MLP or experts.
type Layer struct {
	Norm    *graph.Weight     `gguf:"attn_norm" hf:"input_layernorm"`
	Scan    *Scan             `gguf:"" hf:"mamba"`
	Attn    *family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm *graph.Weight     `gguf:"ffn_norm" hf:"pre_ff_layernorm"`
	MLP     *family.MLP       `gguf:"" hf:"feed_forward"`
	MoE     *MoE              `gguf:"" hf:"feed_forward"`
}

// Scan is a gated selective scan.
type Scan struct {
	In       *graph.Weight `gguf:"ssm_in" hf:"in_proj"`
	Conv     *graph.Weight `gguf:"ssm_conv1d" hf:"conv1d"`
	ConvBias *graph.Weight `gguf:"ssm_conv1d.bias" hf:"conv1d.bias" if:"mamba_conv_bias"`
	X        *graph.Weight `gguf:"ssm_x" hf:"x_proj"`
	StepNorm *graph.Weight `gguf:"ssm_dt_norm" hf:"dt_layernorm"`
	BNorm    *graph.Weight `gguf:"ssm_b_norm" hf:"b_layernorm"`
	CNorm    *graph.Weight `gguf:"ssm_c_norm" hf:"c_layernorm"`
	Step     *graph.Weight `gguf:"ssm_dt" hf:"dt_proj"`
	StepBias *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_proj.bias"`
	A        *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	D        *graph.Weight `gguf:"ssm_d" hf:"D"`
	Out      *graph.Weight `gguf:"ssm_out" hf:"out_proj"`
}

// MoE is the mixture of experts.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"router"`
	Experts family.Routed `gguf:"" hf:"experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.ScanBias || c.ExpertPeriod < 1 || c.Expand < 1 {
		return nil, fmt.Errorf("mamba_proj_bias %v, expert_layer_period %d and mamba_expand %d, want projections "+
			"without bias, and numbers from 1 on", c.ScanBias, c.ExpertPeriod, c.Expand)
	}
	m := &Model{Config: c, Layers: make([]Layer, c.NumLayers)}
	for i := range m.Layers {
		l := &m.Layers[i]
		if l.Scan = new(Scan); c.LayerTypes[i] == family.FullAttention {
			l.Scan, l.Attn = nil, new(family.Attention)
		}
		if l.MLP = new(family.MLP); c.NumExperts > 1 && i%c.ExpertPeriod == c.ExpertOffset {
			l.MLP, l.MoE = nil, new(MoE)
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
	if l.Attn != nil {
		x = l.Attn.Forward(g, x, kv, &m.Sizes, nil)
	} else {
		x = l.Scan.forward(g, x, m)
	}
	h = g.Add(h, x)
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if l.MoE != nil {
		x = l.MoE.forward(g, x, m)
	} else {
		x = l.MLP.Forward(g, x, m.Act, m.MLPSize, m.HiddenSize)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (s *Scan) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	inner, rank, n := m.Expand*m.HiddenSize, m.StepRank, m.StateSize
	all := g.Linear(s.In, h, 2*inner)                                               // [T, x, gate]
	x := g.Act(m.Act, g.Conv(s.Conv, s.ConvBias, g.Slice(all, 0, inner), m.Kernel)) // [T, inner]
	own := g.Linear(s.X, x, rank+2*n)                                               // [T, dt, b, c]
	b := g.RMSNorm(s.BNorm, g.Slice(own, rank, n), m.RMSNormEps, 0)                 // [T, n]
	c := g.RMSNorm(s.CNorm, g.Slice(own, rank+n, n), m.RMSNormEps, 0)               //
	dt := g.Linear(s.Step, g.RMSNorm(s.StepNorm, g.Slice(own, 0, rank), m.RMSNormEps, 0), inner)
	// The module adds the bias.
	dt.HF = ""
	y := g.SSMScanEach(s.A, s.StepBias, s.D, g.Heads(x, 1), dt, g.Heads(b, n), g.Heads(c, n)) // [T, inner, 1]
	y = g.GLU(graph.SiLU, g.Slice(all, inner, inner), y)                                      // [T, inner]
	return g.Linear(s.Out, y, m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	a := graph.RouteAttr{Weigh: graph.SoftmaxAll}
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, a, nil, nil)
	return g.Name(e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.MLPSize), "ffn_out", "feed_forward.out")
}
