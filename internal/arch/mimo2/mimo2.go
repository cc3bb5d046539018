// Package mimo2 is the decoder of Xiaomi's MiMo-V2-Flash.
//
// Differences from Llama: heads of values are smaller than heads of keys; a third of a head turns; most layers slide,
// with a base of rotation, heads of keys and sinks of their own; attention's output is multiplied by a constant, which
// PyTorch's multiplies the values by. From some layer on the MLP is a mixture: the router takes the sigmoid of each
// score and chooses with a correction bias.
//
// Source: transformers, models/mimo_v2_flash/modeling_mimo_v2_flash.py; llama.cpp, src/models/mimo2.cpp.
// published.json: the tests of public readers of MiMo-V2-Flash's config.json, which agree.
//
// Files in reading order: family.go, published.go, mimo2.go.
package mimo2

import (
	"math"
	"strconv"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Usual
	family.Mixture
	DenseSize     int              `json:"intermediate_size"`
	PerLayer      map[string]Heads `json:"per_layer_config"`
	ValueDim      int              `json:"v_head_dim"`
	ValueScale    float64          `json:"attention_value_scale"`
	FullSinks     bool             `json:"add_full_attention_sink_bias"`
	SlidingSinks  bool             `json:"add_swa_attention_sink_bias"`
	LayerTypes    []string         `json:"layer_types"`
	SlidingWindow int              `json:"sliding_window"`
	FirstDense    int              `json:"first_k_dense_replace"`
	Groups        int              `json:"n_group"`
	KeptGroups    int              `json:"topk_group"`
	Rope          rope.Kinds       `json:"rope_parameters"`
}

// Heads are the heads of keys and values of a layer, where it has others.
type Heads struct {
	NumKVHeads int `json:"num_key_value_heads"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turns               map[bool]graph.RoPEAttr // of sliding layers, and of others
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with either an MLP or a mixture.
type Layer struct {
	AttnNorm         *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             Attention     `gguf:"" hf:"self_attn"`
	MLPNorm          *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// Attention is grouped-query attention.
type Attention struct {
	family.Attention `gguf:"" hf:""`
	Sinks            *Sinks `gguf:"" hf:""`
}

// Sinks holds a score for each head that no position has.
type Sinks struct {
	Bias *graph.Weight `gguf:"attn_sinks" hf:"attention_sink_bias"`
}

// MoE is the mixture of experts.
type MoE struct {
	Router  *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias    *graph.Weight `gguf:"exp_probs_b.bias" hf:"gate.e_score_correction_bias"`
	Experts family.Routed `gguf:"" hf:"experts"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	full, sliding, err := family.TurnBoth(c.HeadDim, c.Rope)
	m := &Model{Config: c, turns: map[bool]graph.RoPEAttr{false: full, true: sliding},
		Trunk: family.NewTrunk[Layer](c.NumLayers)}
	for i := range m.Layers {
		m.Layers[i].Choose(i < c.FirstDense)
		if slides := c.LayerTypes[i] == family.SlidingAttention; slides && c.SlidingSinks || !slides && c.FullSinks {
			m.Layers[i].Attn.Sinks = new(Sinks)
		}
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim, ValueDim: m.ValueDim}
		if own := m.PerLayer[strconv.Itoa(i)]; own.NumKVHeads > 0 {
			kv.Heads = own.NumKVHeads
		}
		if m.LayerTypes[i] == family.SlidingAttention {
			kv.Window = m.SlidingWindow
		}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	x := g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	moe := func(x *graph.Node) *graph.Node { return l.MoE.forward(g, x, m) }
	x = l.Feed.Forward(g, x, &m.Usual, m.DenseSize, moe)
	return g.Name(g.Add(h, x), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*kv.Dim), kv.Dim)         // [T, heads, dim]
	k := g.Heads(g.Linear(a.K, x, kv.Heads*kv.Dim), kv.Dim)           // [T, kvHeads, dim]
	v := g.Heads(g.Linear(a.V, x, kv.Heads*kv.Values()), kv.Values()) // [T, kvHeads, values]
	turn := m.turns[kv.Window > 0]
	g.StoreKV(kv, g.RoPE("k", k, turn), v)
	attr := graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(kv.Dim))}
	var sinks *graph.Weight
	if a.Sinks != nil {
		sinks = a.Sinks.Bias
	}
	y := g.AttentionWith(g.RoPE("q", q, turn), attr, sinks) // [T, heads·values]
	return g.Linear(a.O, g.Scale(y, m.ValueScale), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	rule := graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: true, Factor: 1, Groups: m.Groups, Kept: m.KeptGroups,
		Best: 2}
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, rule, nil, e.Bias)
	return e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
}
