// Package mamba2 is the Mamba 2 decoder.
//
// Differences from Llama: there is no attention and no MLP. Each layer is a mixer: a projection makes a gate,
// the input x of a scan, the vectors b and c for writing and reading its state, and the step dt of each head;
// a short convolution runs over x, b and c. The scan's output is gated, then normed over all heads.
//
// Source: transformers, models/mamba2/modeling_mamba2.py; Dao and Gu 2024, arXiv:2405.21060.
package mamba2

import (
	"fmt"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	VocabSize  int              `json:"vocab_size"`
	HiddenSize int              `json:"hidden_size"`
	NumLayers  int              `json:"num_hidden_layers"`
	NumHeads   int              `json:"num_heads"`
	HeadDim    int              `json:"ssm_head_dim"`
	NumGroups  int              `json:"n_groups"`
	StateSize  int              `json:"state_size"`
	Kernel     int              `json:"conv_kernel"`
	Expand     float64          `json:"expand"`
	RMSNormEps float32          `json:"rms_norm_eps"`
	Act        graph.Activation `json:"hidden_act"`
	Tied       bool             `json:"tie_word_embeddings"`
	Normed     bool             `json:"rms_norm"`
	Bias       bool             `json:"use_bias"`
	ConvBias   bool             `json:"use_conv_bias"`
	StepLimit  any              `json:"time_step_limit"` // nil for none
}

// Model is the whole decoder.
type Model struct {
	Config
	Embed  *graph.Weight `gguf:"token_embd" hf:"backbone.embeddings"`
	Layers []Layer       `gguf:"blk" hf:"backbone.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"backbone.norm_f"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer.
type Layer struct {
	MixerNorm *graph.Weight `gguf:"attn_norm" hf:"norm"`
	Mixer     Mixer         `gguf:"" hf:"mixer"`
}

// Mixer is a gated selective scan.
type Mixer struct {
	In       *graph.Weight `gguf:"ssm_in" hf:"in_proj"`
	Conv     *graph.Weight `gguf:"ssm_conv1d" hf:"conv1d"`
	ConvBias *graph.Weight `gguf:"ssm_conv1d.bias" hf:"conv1d.bias" if:"use_conv_bias"`
	A        *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	StepBias *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_bias"`
	D        *graph.Weight `gguf:"ssm_d" hf:"D"`
	Norm     *graph.Weight `gguf:"ssm_norm" hf:"norm"`
	Out      *graph.Weight `gguf:"ssm_out" hf:"out_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.Bias || !c.Normed || c.StepLimit != nil {
		return nil, fmt.Errorf("use_bias %v, rms_norm %v and time_step_limit %v, only projections without bias, "+
			"scans with a norm and steps without a limit are supported", c.Bias, c.Normed, c.StepLimit)
	}
	if inner := c.NumHeads * c.HeadDim; c.Expand != 0 && int(c.Expand*float64(c.HiddenSize)) != inner {
		return nil, fmt.Errorf("%d heads of %d, and expand is %v of a hidden size of %d", c.NumHeads, c.HeadDim,
			c.Expand, c.HiddenSize)
	}
	return &Model{Config: c, Layers: make([]Layer, c.NumLayers)}, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		h = m.Layers[i].forward(g.LayerAs("backbone.layers", i), h, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	h = g.Add(h, l.Mixer.forward(g, g.RMSNorm(l.MixerNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (x *Mixer) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	inner, groups := m.NumHeads*m.HeadDim, m.NumGroups*m.StateSize
	// [T, gate, x, b, c, dt]
	all := g.Linear(x.In, h, 2*inner+2*groups+m.NumHeads)
	// [T, heads·dim + 2·groups·n]
	xbc := g.Conv(x.Conv, x.ConvBias, g.Slice(all, inner, inner+2*groups), m.Kernel)
	xbc = g.Act(m.Act, xbc)                                                                       //
	in := g.Heads(g.Slice(xbc, 0, inner), m.HeadDim)                                              // [T, heads, dim]
	b, c := g.Slice(xbc, inner, groups), g.Slice(xbc, inner+groups, groups)                       // [T, groups·n]
	dt := g.Slice(all, 2*inner+2*groups, m.NumHeads)                                              // [T, heads]
	b, c = g.Heads(b, m.StateSize), g.Heads(c, m.StateSize)                                       // [T, groups, n]
	y := g.GLU(graph.SiLU, g.Slice(all, 0, inner), g.SSMScan(x.A, x.StepBias, x.D, in, dt, b, c)) // [T, heads·dim]
	return g.Linear(x.Out, g.RMSNorm(x.Norm, y, m.RMSNormEps, 0), m.HiddenSize)
}
