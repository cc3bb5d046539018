// Package lfm2 is the LFM2 decoder, without and with experts.
//
// Differences from Llama: most layers have a short causal convolution in the place of attention, whose input
// and output are gated; queries and keys are normed by heads. With experts all layers but the first have a
// mixture, whose router takes the sigmoid of each score and chooses with a bias.
//
// Source: transformers, models/lfm2/modeling_lfm2.py and models/lfm2_moe/modeling_lfm2_moe.py;
// Liquid AI 2025, arXiv:2511.23404.
package lfm2

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	family.Routing
	IntermediateSize int        `json:"intermediate_size"`
	LayerTypes       []string   `json:"layer_types"`
	Kernel           int        `json:"conv_L_cache"`
	ConvBias         bool       `json:"conv_bias"`
	NumDense         int        `json:"num_dense_layers"` // of models with experts
	ExpertBias       bool       `json:"use_expert_bias"`
	Scoring          string     `json:"scoring_func"`
	RMSNormEps       float32    `json:"rms_norm_eps"`
	Tied             bool       `json:"tie_word_embeddings"`
	Rope             rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn   graph.RoPEAttr
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []Layer       `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"token_embd_norm" hf:"model.embedding_norm"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer, with either a convolution or attention.
type Layer struct {
	OperatorNorm *graph.Weight `gguf:"attn_norm" hf:"operator_norm"`
	Conv         *Conv         `gguf:"shortconv" hf:"conv"`
	Attn         *Attention    `gguf:"" hf:"self_attn"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"ffn_norm"`
	MLP          *MLP          `gguf:"" hf:"feed_forward"`
	MoE          *MoE          `gguf:"" hf:"feed_forward"`
}

// Conv is a convolution between two gates.
type Conv struct {
	In   *graph.Weight `gguf:"in_proj" hf:"in_proj"`
	Conv *graph.Weight `gguf:"conv" hf:"conv"`
	Out  *graph.Weight `gguf:"out_proj" hf:"out_proj"`
}

// Attention is grouped-query attention over normed queries and keys.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O     *graph.Weight `gguf:"attn_output" hf:"out_proj"`
	QNorm *graph.Weight `gguf:"attn_q_norm" hf:"q_layernorm"`
	KNorm *graph.Weight `gguf:"attn_k_norm" hf:"k_layernorm"`
}

// MLP is the gated feed-forward part.
type MLP struct {
	Gate *graph.Weight `gguf:"ffn_gate" hf:"w1"`
	Up   *graph.Weight `gguf:"ffn_up" hf:"w3"`
	Down *graph.Weight `gguf:"ffn_down" hf:"w2"`
}

// MoE is the mixture of experts. Each of the last three weights is a stack over all experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias   *graph.Weight `gguf:"exp_probs_b.bias" hf:"expert_bias" if:"use_expert_bias"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.w1"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"experts.w3"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"experts.w2"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.ConvBias || c.NumExperts > 0 && c.Scoring != "sigmoid" {
		return nil, fmt.Errorf("conv_bias %v and scoring_func %q, only convolutions without biases and sigmoid are "+
			"supported", c.ConvBias, c.Scoring)
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	m := &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}
	for i := range m.Layers {
		if c.LayerTypes[i] == "full_attention" {
			m.Layers[i].Attn = new(Attention)
		} else {
			m.Layers[i].Conv = new(Conv)
		}
		if c.NumExperts == 0 || i < c.NumDense {
			m.Layers[i].MLP = new(MLP)
		} else {
			m.Layers[i].MoE = new(MoE)
		}
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m)
	}
	// a fixed name: GGUF's varies
	h = g.Name(g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0), "output_norm", "model.embedding_norm.out")
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	x := g.RMSNorm(l.OperatorNorm, h, m.RMSNormEps, 0)
	if l.Conv != nil {
		x = l.Conv.forward(g, x, m)
	} else {
		x = l.Attn.forward(g, x, kv, m)
	}
	h = g.Add(h, x)
	x = g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if l.MLP != nil {
		x = l.MLP.forward(g, x, m)
	} else {
		x = l.MoE.forward(g, x, m)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (c *Conv) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	d := m.HiddenSize
	all := g.Linear(c.In, x, 3*d)                                                       // [T, b, c, x]
	y := g.Conv(c.Conv, nil, g.Mul(g.Slice(all, 0, d), g.Slice(all, 2*d, d)), m.Kernel) // [T, d]
	return g.Linear(c.Out, g.Mul(g.Slice(all, d, d), y), d)
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.HeadDim)   // [T, heads, dim]
	k := g.Heads(g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.HeadDim) // [T, kvHeads, dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim) //
	q = g.RoPE("q", g.RMSNorm(a.QNorm, q, m.RMSNormEps, 0), m.turn)   //
	k = g.RoPE("k", g.RMSNorm(a.KNorm, k, m.RMSNormEps, 0), m.turn)   //
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	gate, up := g.Linear(p.Gate, x, m.IntermediateSize), g.Linear(p.Up, x, m.IntermediateSize)
	return g.Linear(p.Down, g.GLU(graph.SiLU, gate, up), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	attr := graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: m.Normalize, Eps: 1e-6, Factor: m.Factor}
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, attr, nil, e.Bias)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: graph.SiLU}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	return g.Name(y, "ffn_experts", "feed_forward.experts.out")
}
