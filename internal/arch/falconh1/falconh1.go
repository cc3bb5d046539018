// Package falconh1 is the Falcon-H1 decoder.
//
// Differences from Llama: each layer has Mamba 2's gated scan beside attention, over the same normed input, and adds
// both. A dozen multipliers scale the embedding, inputs and outputs of attention and scan, keys, the parts of the
// scan's projection, the MLP's gate and output, and the logits. GGUF's files have them multiplied into the weights.
//
// Source: transformers, models/falcon_h1/modeling_falcon_h1.py; TII 2025, arXiv:2507.22448.
package falconh1

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass. A multiplier of 0 is absent, and means 1.
type Config struct {
	family.Rotary
	ScanSize   int       `json:"mamba_d_ssm"`
	ScanHeads  int       `json:"mamba_n_heads"`
	ScanDim    int       `json:"mamba_d_head"`
	ScanGroups int       `json:"mamba_n_groups"`
	StateSize  int       `json:"mamba_d_state"`
	Kernel     int       `json:"mamba_d_conv"`
	ConvBias   bool      `json:"mamba_conv_bias"`
	ScanBias   bool      `json:"mamba_proj_bias"`
	OutBias    bool      `json:"projectors_bias"`
	MLPBias    bool      `json:"mlp_bias"`
	Normed     bool      `json:"mamba_rms_norm"`
	NormFirst  bool      `json:"mamba_norm_before_gate"`
	StepLimit  any       `json:"time_step_limit"` // nil for none
	Folded     bool      `json:"multipliers_folded"`
	Embed      float64   `json:"embedding_multiplier"`
	AttnIn     float64   `json:"attention_in_multiplier"`
	AttnOut    float64   `json:"attention_out_multiplier"`
	Key        float64   `json:"key_multiplier"`
	ScanIn     float64   `json:"ssm_in_multiplier"`
	ScanOut    float64   `json:"ssm_out_multiplier"`
	ScanParts  []float64 `json:"ssm_multipliers"` // of gate, x, b, c and dt
	MLPParts   []float64 `json:"mlp_multipliers"` // of gate and output
	Logits     float64   `json:"lm_head_multiplier"`
}

// A multiplier's bounds.
const least, most = 1e-6, 1e6

// factors returns the limits of multipliers.
func factors(settings ...string) (all []family.Limit) {
	for _, key := range settings {
		all = append(all, family.Limit{Key: key, Min: least, Max: most})
	}
	return all
}

// Model is the whole decoder.
type Model struct {
	Config
	turn      graph.RoPEAttr
	Embedding *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers    []Layer       `gguf:"blk" hf:"model.layers"`
	Norm      *graph.Weight `gguf:"output_norm" hf:"model.final_layernorm"`
	Output    *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer.
type Layer struct {
	MixerNorm *graph.Weight    `gguf:"attn_norm" hf:"input_layernorm"`
	Scan      Scan             `gguf:"" hf:"mamba"`
	Attn      family.Attention `gguf:"" hf:"self_attn"`
	MLPNorm   *graph.Weight    `gguf:"ffn_norm" hf:"pre_ff_layernorm"`
	MLP       MLP              `gguf:"" hf:"feed_forward"`
}

// Scan is a gated selective scan.
type Scan struct {
	In       *graph.Weight `gguf:"ssm_in" hf:"in_proj"`
	Conv     *graph.Weight `gguf:"ssm_conv1d" hf:"conv1d"`
	ConvBias *graph.Weight `gguf:"ssm_conv1d.bias" hf:"conv1d.bias" if:"mamba_conv_bias"`
	A        *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	StepBias *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_bias"`
	D        *graph.Weight `gguf:"ssm_d" hf:"D"`
	Norm     *graph.Weight `gguf:"ssm_norm" hf:"norm" if:"mamba_rms_norm"`
	Out      *graph.Weight `gguf:"ssm_out" hf:"out_proj"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	Gate *graph.Weight `gguf:"ffn_gate" hf:"gate_proj"`
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.ScanBias || c.OutBias || c.MLPBias || c.StepLimit != nil {
		return nil, fmt.Errorf("mamba_proj_bias %v, projectors_bias %v, mlp_bias %v and time_step_limit %v, only "+
			"projections without bias and steps without a limit are supported", c.ScanBias, c.OutBias, c.MLPBias,
			c.StepLimit)
	}
	if inner := c.ScanHeads * c.ScanDim; c.Normed && c.NormFirst || c.ScanSize != 0 && c.ScanSize != inner {
		return nil, fmt.Errorf("mamba_rms_norm %v with mamba_norm_before_gate %v, and %d heads of scans of %d with "+
			"mamba_d_ssm %d: only norms behind the gate are supported, and sizes that agree", c.Normed, c.NormFirst,
			c.ScanHeads, c.ScanDim, c.ScanSize)
	}
	for _, x := range []struct {
		key  string
		list *[]float64
		n    int
	}{{"ssm_multipliers", &c.ScanParts, 5}, {"mlp_multipliers", &c.MLPParts, 2}} {
		if *x.list == nil {
			*x.list = slices.Repeat([]float64{1}, x.n)
		}
		bad := func(v float64) bool { return v < least || v > most }
		if len(*x.list) != x.n || slices.ContainsFunc(*x.list, bad) {
			return nil, fmt.Errorf("configuration key %s is %s, expected %d numbers from %v to %v", x.key,
				family.Show(*x.list), x.n, least, int(most))
		}
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := times(g, m.hide(g.Embed(m.Embedding, m.VocabSize, m.HiddenSize, 1)), m.Embed)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	h = family.Logits(g, m.Output, m.Embedding, h, m.VocabSize)
	return times(g, m.hide(h), m.Logits)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.RMSNorm(l.MixerNorm, h, m.RMSNormEps, 0)
	scan := times(g, l.Scan.forward(g, times(g, x, m.ScanIn), m), m.ScanOut)
	attn := times(g, m.attend(g, &l.Attn, times(g, x, m.AttnIn), kv), m.AttnOut)
	h = g.Add(h, g.Add(scan, attn))
	h = g.Add(h, l.MLP.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (s *Scan) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	inner, groups := m.ScanHeads*m.ScanDim, m.ScanGroups*m.StateSize
	all := m.hide(g.Linear(s.In, h, 2*inner+2*groups+m.ScanHeads)) // [T, gate, x, b, c, dt]
	part := func(i, at, n int) *graph.Node { return times(g, g.Slice(all, at, n), m.ScanParts[i]) }
	xbc := g.Concat(part(1, inner, inner), g.Concat(part(2, 2*inner, groups), part(3, 2*inner+groups, groups)))
	xbc = g.Act(m.Act, g.Conv(s.Conv, s.ConvBias, xbc, m.Kernel)) // [T, heads·dim + 2·groups·n]
	x := g.Heads(g.Slice(xbc, 0, inner), m.ScanDim)               // [T, heads, dim]
	b := g.Heads(g.Slice(xbc, inner, groups), m.StateSize)        // [T, groups, n]
	c := g.Heads(g.Slice(xbc, inner+groups, groups), m.StateSize) //
	dt := part(4, 2*inner+2*groups, m.ScanHeads)                  // [T, heads]
	y := g.SSMScan(s.A, s.StepBias, s.D, x, dt, b, c)             // [T, heads, dim]
	y = g.GLU(graph.SiLU, part(0, 0, inner), y)                   // [T, heads·dim]
	if m.Normed {
		y = g.Normalize(g.Heads(y, inner/m.ScanGroups), m.RMSNormEps) // [T, groups, heads·dim/groups]
		y = g.Name(g.MulWeight(s.Norm, y, inner), "ssm_norm", "mamba.norm.out")
	}
	return m.hide(g.Linear(s.Out, y, m.HiddenSize))
}

func (m *Model) attend(g graph.Builder, a *family.Attention, x *graph.Node, kv *graph.KV) *graph.Node {
	q := g.Heads(m.hide(g.Linear(a.Q, x, m.NumHeads*m.HeadDim)), m.HeadDim)                    // [T, heads, dim]
	k := g.Heads(times(g, m.hide(g.Linear(a.K, x, m.NumKVHeads*m.HeadDim)), m.Key), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(m.hide(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim)), m.HeadDim)
	g.StoreKV(kv, g.RoPE("k", k, m.turn), v)
	y := g.Attention(g.RoPE("q", q, m.turn), kv, 1/math.Sqrt(float64(m.HeadDim)))
	return m.hide(g.Linear(a.O, y, m.HiddenSize))
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	gate := times(g, m.hide(g.Linear(p.Gate, x, m.IntermediateSize)), m.MLPParts[0])
	y := g.GLU(m.Act, gate, g.Linear(p.Up, x, m.IntermediateSize))
	y = times(g, m.hide(g.Linear(p.Down, y, m.HiddenSize)), m.MLPParts[1])
	if y.Op == graph.Scale {
		y = g.Name(y, "ffn_out", "feed_forward.out")
	}
	return y
}

// times returns x·by, by a multiplier.
func times(g graph.Builder, x *graph.Node, by float64) *graph.Node {
	if by = cmp.Or(by, 1); by == 1 {
		return x
	}
	return g.Scale(x, by)
}

// hide drops PyTorch's name of a product with a folded multiplier in the weight: no module of PyTorch's
// computes the product.
func (m *Model) hide(x *graph.Node) *graph.Node {
	if m.Folded {
		x.HF = ""
	}
	return x
}
