// Package qwen35 is the Qwen 3.5 decoder, without and with experts, and Qwen3-Next.
//
// Differences from Qwen 3: three of four layers are gated DeltaNets: a short convolution, then a state for each head,
// decaying and corrected by the delta rule, then a gated norm. In the fourth, attention's queries come with a gate of
// its output, and a quarter of a head turns, by three parts of the position. All norms except the gated norm are scaled
// by 1+w. With experts the feed-forward part of each layer is a mixture, beside a shared expert weighed by the sigmoid
// of its score. The router takes the softmax over all experts and divides the weights of the best by their sum. In
// Qwen3-Next positions have one part, decays and corrections come of one matrix, and heads stay by groups.

// The layer behind the last, with attention, is a head predicting further tokens (mtp): after the last norm a state
// feeds it, then its own normed state; the embedding comes before the state. Source: vLLM,
// vllm/model_executor/models/qwen3_5_mtp.py; llama.cpp, src/models/qwen35.cpp.
//
// Source: transformers, models/qwen3_5/modeling_qwen3_5.py and models/qwen3_5_moe/modeling_qwen3_5_moe.py;
// Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464. published.json of Qwen3-Next: 80B-A3B-Instruct.
package qwen35

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	family.Mixture
	IntermediateSize int        `json:"intermediate_size"` // without experts
	SharedSize       int        `json:"shared_expert_intermediate_size"`
	NumNext          int        `json:"mtp_num_hidden_layers"` // layers behind the last
	LayerTypes       []string   `json:"layer_types"`
	KeyHeads         int        `json:"linear_num_key_heads"`
	ValueHeads       int        `json:"linear_num_value_heads"`
	KeyDim           int        `json:"linear_key_head_dim"`
	ValueDim         int        `json:"linear_value_head_dim"`
	Kernel           int        `json:"linear_conv_kernel_dim"`
	Sections         []int      `json:"mrope_section"`
	Rope             rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	grouped             bool // heads behind DeltaNets stay by groups
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with attention or a DeltaNet.
type Layer struct {
	Next             *family.Next  `gguf:"" hf:""` // of a layer behind the last
	AttnNorm         *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             *Attention    `gguf:"" hf:"self_attn"`
	Delta            *DeltaNet     `gguf:"" hf:"linear_attn"`
	MLPNorm          *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// Attention is gated grouped-query attention. Q makes, for each head, queries and gates.
type Attention struct {
	family.NormedAttention `gguf:"" hf:""`
}

// DeltaNet is a gated DeltaNet. The columns of Out are in the order of heads by turns of the groups sharing a
// key, the rows of other weights by groups.
type DeltaNet struct {
	QKV   *graph.Weight `gguf:"attn_qkv" hf:"in_proj_qkv"`
	Gate  *graph.Weight `gguf:"attn_gate" hf:"in_proj_z"`
	Apart *Apart        `gguf:"" hf:""`
	Both  *Both         `gguf:"" hf:""`
	Conv  *graph.Weight `gguf:"ssm_conv1d" hf:"conv1d"`
	Decay *graph.Weight `gguf:"ssm_a" hf:"A_log"`
	Bias  *graph.Weight `gguf:"ssm_dt.bias" hf:"dt_bias"`
	Norm  *graph.Weight `gguf:"ssm_norm" hf:"norm"`
	Out   *graph.Weight `gguf:"ssm_out" hf:"out_proj"`
}

// Apart is the matrices of corrections and of decays.
type Apart struct {
	Beta  *graph.Weight `gguf:"ssm_beta" hf:"in_proj_b"`
	Alpha *graph.Weight `gguf:"ssm_alpha" hf:"in_proj_a"`
}

// Both is a matrix with the rows of both, group by group.
type Both struct {
	BetaAlpha *graph.Weight `gguf:"ssm_ba" hf:"in_proj_ba"`
}

// normEps is the epsilon of the length of a DeltaNet's queries and keys.
const normEps = 1e-6

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if len(c.Sections) != 3 || c.KeyHeads < 1 || c.ValueHeads%c.KeyHeads != 0 {
		return nil, fmt.Errorf("mrope_section %v, linear_num_key_heads %d and linear_num_value_heads %d, want "+
			"three sections, and heads of values that are a multiple of those of keys",
			c.Sections, c.KeyHeads, c.ValueHeads)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	turn.Sections, turn.Woven = [3]int(c.Sections), true
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers + c.NumNext)}
	for i := range m.Layers {
		if i >= c.NumLayers {
			m.Layers[i].Next = new(family.Next)
		}
		if i >= c.NumLayers || c.LayerTypes[i] == "full_attention" {
			m.Layers[i].Attn = new(Attention)
		} else {
			m.Layers[i].Delta = &DeltaNet{Apart: new(Apart)}
		}
		if c.NumExperts > 0 {
			m.Layers[i].MoE = new(MoE)
		} else {
			m.Layers[i].MLP = new(family.MLP)
		}
	}
	return m, err
}

// NewNext makes a Qwen3-Next with unbound weights.
func NewNext(c Config) (*Model, error) {
	c.Sections = make([]int, 3)
	m, err := New(c)
	if err != nil {
		return nil, err
	}
	m.turn.Woven, m.grouped = false, true
	for _, l := range m.Layers {
		if l.Delta != nil {
			l.Delta.Apart, l.Delta.Both = nil, new(Both)
		}
	}
	return m, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node { return m.Decoder().Forward(g) }

// Decoder implements family.Predictor.
func (m *Model) Decoder() *family.Decoder {
	d := family.Predicting(&m.Trunk, &m.Usual, func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
		return m.Layers[kv.Layer].forward(g, x, kv, m)
	}, func(l *Layer) *family.Next { return l.Next })
	d.Offset = 1
	return d
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 1)
	if l.Attn != nil {
		x = l.Attn.forward(g, x, kv, m)
	} else {
		x = l.Delta.forward(g, x, m)
	}
	h = g.Add(h, x)
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 1)
	if l.MoE != nil {
		x = l.MoE.forward(g, x, m)
	} else {
		x = l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)
	}
	h = g.Add(h, x)
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	both := g.Heads(g.Linear(a.Q, x, 2*m.NumHeads*m.HeadDim), 2*m.HeadDim) // [T, heads, 2·dim]
	q, gate := g.Slice(both, 0, m.HeadDim), g.Slice(both, m.HeadDim, m.HeadDim)
	k := g.Heads(g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	q = g.RoPE("q", g.RMSNorm(a.QNorm, q, m.RMSNormEps, 1), m.turn)   //
	k = g.RoPE("k", g.RMSNorm(a.KNorm, k, m.RMSNormEps, 1), m.turn)   //
	g.StoreKV(kv, k, v)
	y := g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))) // [T, heads·dim]
	return g.Linear(a.O, g.GLU(graph.Sigmoid, g.Heads(gate, m.NumHeads*m.HeadDim), y), m.HiddenSize)
}

func (d *DeltaNet) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	keys, values := m.KeyHeads*m.KeyDim, m.ValueHeads*m.ValueDim
	z := g.Linear(d.Gate, x, values)
	var alpha, beta *graph.Node // [T, valueHeads]
	if d.Both != nil {
		per := m.ValueHeads / m.KeyHeads
		both := g.Heads(g.Linear(d.Both.BetaAlpha, x, 2*m.ValueHeads), 2*per) // [T, keyHeads, 2·per]
		alpha, beta = g.Slice(both, per, per), g.Slice(both, 0, per)
	} else {
		alpha, beta = g.Linear(d.Apart.Alpha, x, m.ValueHeads), g.Linear(d.Apart.Beta, x, m.ValueHeads)
	}
	qkv := g.Act(m.Act, g.Conv(d.Conv, nil, g.Linear(d.QKV, x, 2*keys+values), m.Kernel)) // [T, 2·keys + values]
	q, k := g.Heads(g.Slice(qkv, 0, keys), m.KeyDim), g.Heads(g.Slice(qkv, keys, keys), m.KeyDim)
	q = g.Scale(g.L2Norm(q, normEps), 1/math.Sqrt(float64(m.KeyDim)))          // [T, keyHeads, keyDim]
	v := g.Heads(g.Slice(qkv, 2*keys, values), m.ValueDim)                     // [T, valueHeads, valueDim]
	y := g.DeltaScan(d.Decay, d.Bias, q, g.L2Norm(k, normEps), v, alpha, beta) //
	y = g.RMSNorm(d.Norm, y, m.RMSNormEps, 0)                                  //
	y = g.GLU(graph.SiLU, g.Heads(z, m.ValueDim), y)                           // [T, valueHeads, valueDim]
	return g.Linear(d.Out, m.byTurns(g, y), m.HiddenSize)
}

// byTurns returns the heads of y, stored by groups, by turns: the first head of each group, then the second.
func (m *Model) byTurns(g graph.Builder, y *graph.Node) *graph.Node {
	per := m.ValueHeads / m.KeyHeads
	if per == 1 || m.grouped {
		return y
	}
	groups := g.Heads(y, per*m.ValueDim) // [T, keyHeads, per·valueDim]
	var out *graph.Node
	for i := range per {
		part := g.Heads(g.Slice(groups, i*m.ValueDim, m.ValueDim), m.KeyHeads*m.ValueDim)
		if out == nil {
			out = part
		} else {
			out = g.Concat(out, part)
		}
	}
	return out
}

// MoE is the mixture of experts, with a shared expert for all tokens, scored by SharedScore [1, in].
type MoE struct {
	Router      *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Gate        *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.gate_proj"`
	Up          *graph.Weight `gguf:"ffn_up_exps" hf:"experts.up_proj"`
	Down        *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj"`
	SharedScore *graph.Weight `gguf:"ffn_gate_inp_shexp" hf:"shared_expert_gate"`
	SharedGate  *graph.Weight `gguf:"ffn_gate_shexp" hf:"shared_expert.gate_proj"`
	SharedUp    *graph.Weight `gguf:"ffn_up_shexp" hf:"shared_expert.up_proj"`
	SharedDown  *graph.Weight `gguf:"ffn_down_shexp" hf:"shared_expert.down_proj"`
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Linear(e.Router, x, m.NumExperts) // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: true}, nil, nil)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	y = g.Name(y, "ffn_experts", "mlp.experts.out")
	own := g.RouteWith(g.Linear(e.SharedScore, x, 1), 1, graph.RouteAttr{Weigh: graph.SigmoidEach}, nil, nil)
	shared := []*graph.Weight{single(e.SharedGate), single(e.SharedUp), single(e.SharedDown)}
	weighed := g.Name(g.ExpertsWith(experts, shared, nil, x, own, 1, m.SharedSize), "ffn_shexp",
		"mlp.shared_expert.weighed")
	y = g.Add(y, weighed)
	return g.Name(y, "ffn_out", "mlp.out")
}

// single returns w as the weight of a single expert, for a route to weigh the output.
func single(w *graph.Weight) *graph.Weight {
	one := *w
	if len(w.Shape) == 2 {
		one.Shape = append([]int{1}, w.Shape...)
	}
	return &one
}
