// Package mistral4 is the decoder of Mistral Small 4.
//
// Differences from DeepSeek V3: queries grow by a step at each multiple of the first context, as Ministral 3's; the
// router takes the softmax of all scores; experts have their gates and up matrices in a single weight.
//
// Source: transformers, models/mistral4/modeling_mistral4.py; DeepSeek-AI 2024, arXiv:2412.19437; Nakanishi 2025,
// arXiv:2501.19399. published.json: the values of transformers' models/mistral4/configuration_mistral4.py.
package mistral4

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Latent
	Normalize  bool       `json:"norm_topk_prob"`
	Factor     float64    `json:"routed_scaling_factor"`
	QueryRank  int        `json:"q_lora_rank"`
	Groups     int        `json:"n_group"`
	KeptGroups int        `json:"topk_group"`
	Growth     float64    `json:"llama_4_scaling_beta"` // of queries; 0 in llama.cpp's files
	Every      int        `json:"temperature_length"`   // positions of a step of growth
	Rope       rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	route               graph.RouteAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with either an MLP or a mixture.
type Layer struct {
	AttnNorm         *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             Attention     `gguf:"" hf:"self_attn"`
	MLPNorm          *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// Attention is latent attention.
type Attention struct {
	QA                     *graph.Weight `gguf:"attn_q_a" hf:"q_a_proj"`
	QANorm                 *graph.Weight `gguf:"attn_q_a_norm" hf:"q_a_layernorm"`
	QB                     *graph.Weight `gguf:"attn_q_b" hf:"q_b_proj"`
	family.LatentAttention `gguf:"" hf:""`
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	GateUp *graph.Weight `gguf:"ffn_gate_up_exps" hf:"experts.gate_up_proj"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj"`
	Shared family.Shared `gguf:"" hf:"shared_experts"`
}

// latentEps is the epsilon of the norms of latents, whatever RMSNormEps says.
const latentEps = 1e-6

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.Growth != 0 && c.Every < 1 {
		return nil, fmt.Errorf("queries grow by %v (llama_4_scaling_beta) every %d positions", c.Growth, c.Every)
	}
	turn, err := family.Turn(c.SharedDim, c.Rope.Full)
	turn.Interleaved = true
	m := &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	m.route = graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: c.Normalize, Factor: c.Factor, Groups: c.Groups,
		Kept: c.KeptGroups, Best: 2}
	for i := range m.Layers {
		m.Layers[i].Choose(i < c.FirstDense)
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		h = m.Layers[i].forward(g.Layer(i), h, m.KV(i), m)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	x := g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if l.MLP != nil {
		x = l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)
	} else {
		x = l.MoE.forward(g, x, m)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	qDim := m.PlainDim + m.SharedDim
	from := g.RMSNorm(a.QANorm, g.Linear(a.QA, x, m.QueryRank), latentEps, 0) // [T, qRank]
	q := g.Heads(g.Linear(a.QB, from, m.NumHeads*qDim), qDim)                 // [T, heads, plain + turning]
	plain := g.HeadLinear(a.KeyB, g.Slice(q, 0, m.PlainDim), m.Rank)          // [T, heads, rank]
	turning := g.RoPE("q", g.Slice(q, m.PlainDim, m.SharedDim), m.turn)       // [T, heads, turning]
	both := g.Linear(a.KVA, x, kv.Dim)                                        // [T, rank + turning]
	latent := g.RMSNorm(a.KVNorm, g.Slice(both, 0, m.Rank), latentEps, 0)     // [T, rank]
	k := g.RoPE("k", g.Heads(g.Slice(both, m.Rank, m.SharedDim), m.SharedDim), m.turn)
	g.StoreKV(kv, g.Concat(g.Heads(latent, m.Rank), k), nil)
	q = g.Concat(plain, turning) // [T, heads, rank + turning]
	if m.Growth != 0 {
		q = g.ScalePos(q, graph.ScalePosAttr{Beta: m.Growth, Every: m.Every})
	}
	y := g.Attention(q, kv, m.Rope.Full.ScoreScale()/math.Sqrt(float64(qDim))) // [T, heads·rank]
	return g.Linear(a.O, g.HeadLinear(a.ValueB, g.Heads(y, m.Rank), m.ValueDim), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, m.route, nil, nil)
	y := g.Experts(m.Act, e.GateUp, e.Down, x, route, m.NumExperts, m.ExpertSize)
	shared := e.Shared.Forward(g, "mlp.shared_experts", x, m.Act, m.NumShared*m.ExpertSize, m.HiddenSize)
	return g.Name(g.Add(g.Name(y, "ffn_experts", "mlp.experts.out"), shared), "ffn_out", "mlp.out")
}
