// Package minimaxm2 is the decoder of MiniMax-M2.
//
// Differences from Mixtral: queries and keys have norms over all heads at once; half of a head turns; the router takes
// the sigmoid of each score and chooses with a correction bias.
//
// Source: transformers, models/minimax_m2/modeling_minimax_m2.py; llama.cpp, src/models/minimax-m2.cpp. published.json:
// MiniMax-M2. The golden's record is of a program after the modeling file, in C++ and Python, and not of PyTorch.
package minimaxm2

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	VocabSize    int              `json:"vocab_size"`
	HiddenSize   int              `json:"hidden_size"`
	ExpertSize   int              `json:"moe_intermediate_size"`
	NumLayers    int              `json:"num_hidden_layers"`
	NumHeads     int              `json:"num_attention_heads"`
	NumKVHeads   int              `json:"num_key_value_heads"`
	HeadDim      int              `json:"head_dim"`
	MaxPositions int              `json:"max_position_embeddings"`
	RMSNormEps   float32          `json:"rms_norm_eps"`
	Act          graph.Activation `json:"hidden_act"`
	Tied         bool             `json:"tie_word_embeddings"`
	NumExperts   int              `json:"num_experts"`
	TopK         int              `json:"top_k_experts"`
	Rope         struct {
		Full rope.Params `json:"full_attention"`
	} `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn   graph.RoPEAttr
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []Layer       `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"model.norm"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     Attention     `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MoE      MoE           `gguf:"" hf:"block_sparse_moe"`
}

// Attention is grouped-query attention over normed queries and keys.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O     *graph.Weight `gguf:"attn_output" hf:"o_proj"`
	QNorm *graph.Weight `gguf:"attn_q_norm" hf:"q_norm"`
	KNorm *graph.Weight `gguf:"attn_k_norm" hf:"k_norm"`
}

// MoE is the mixture of experts.
type MoE struct {
	Router *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias   *graph.Weight `gguf:"exp_probs_b.bias" hf:"e_score_correction_bias"`
	Gate   *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.w1"`
	Up     *graph.Weight `gguf:"ffn_up_exps" hf:"experts.w3"`
	Down   *graph.Weight `gguf:"ffn_down_exps" hf:"experts.w2"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	r, err := rope.Resolve(c.HeadDim, rope.Context{Longest: c.MaxPositions}, c.Rope.Full)
	turn := graph.RoPEAttr{Freqs: r.Freqs, Dim: r.Dim, Magnitude: r.Magnitude}
	return &Model{Config: c, turn: turn, Layers: make([]Layer, c.NumLayers)}, err
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
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m))
	h = g.Add(h, l.MoE.forward(g, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.RMSNorm(a.QNorm, g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.RMSNormEps, 0)   // [T, heads·dim]
	k := g.RMSNorm(a.KNorm, g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.RMSNormEps, 0) // [T, kvHeads·dim]
	v := g.Heads(g.Linear(a.V, x, m.NumKVHeads*m.HeadDim), m.HeadDim)                  // [T, kvHeads, dim]
	q, k = g.RoPEWith("q", g.Heads(q, m.HeadDim), m.turn), g.RoPEWith("k", g.Heads(k, m.HeadDim), m.turn)
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Name(g.Linear(e.Router, x, m.NumExperts), "ffn_gate_inp", "mlp.gate.out") // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SigmoidEach, Normalize: true}, nil, e.Bias)
	experts := family.Routed{Gate: e.Gate, Up: e.Up, Down: e.Down}
	return experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
}
