// Package deepseek2 is the decoder of DeepSeek V2, V3 and R1, and of GLM-4.7-Flash.
//
// Differences from Llama: keys and values are products of a latent of each position; only the latent and a
// turned key for all heads are stored. A head's key matrix is absorbed by its queries, its value matrix comes
// after attention. Queries may be made of a latent of their own. Only a part of a head turns, in neighbouring
// pairs, by yarn, whose multiplier also scales the scores. From some layer on the MLP is a mixture: experts
// chosen by softmax or by biased sigmoids, within the best groups, beside shared ones.
//
// The layer behind the last is a head predicting further tokens: after the last norm a state feeds it, then its
// own normed state, as in SGLang, models/deepseek_nextn.py, and llama.cpp, src/models/deepseek2.cpp (vLLM's
// deepseek_mtp.py feeds its own before the norm).
//
// Source: transformers, models/deepseek_v2/modeling_deepseek_v2.py and
// models/deepseek_v3/modeling_deepseek_v3.py; DeepSeek-AI 2024, arXiv:2405.04434 and
// arXiv:2412.19437. published.json of GLM-4.7-Flash: vLLM, its test of glm4_moe_lite.
//
// Files in reading order: sparse.go (families with indexers), family.go, deepseek2.go.
package deepseek2

import (
	"errors"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Latent
	Normalize        bool       `json:"norm_topk_prob"`
	Factor           float64    `json:"routed_scaling_factor"`
	NumNext          int        `json:"num_nextn_predict_layers"` // layers behind the last
	QueryRank        int        `json:"q_lora_rank"`              // 0 for queries without a latent
	Interleaved      bool       `json:"rope_interleave"`
	Scoring          string     `json:"scoring_func"`
	Method           string     `json:"topk_method"`
	Biased           bool       `json:"e_score_correction_bias"` // as the method says
	Groups           int        `json:"n_group"`
	KeptGroups       int        `json:"topk_group"`
	IndexTopK        int        `json:"index_topk"` // positions that attention sees; 0 for all
	IndexHeads       int        `json:"index_n_heads"`
	IndexDim         int        `json:"index_head_dim"`
	IndexInterleaved bool       `json:"indexer_rope_interleave"`
	IndexTypes       []string   `json:"indexer_types"` // by layer: full, or shared for an earlier layer's choice
	Rope             rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	index               []*graph.KV // an indexer's keys, by layer
	scale               float64     // of attention's scores
	route               graph.RouteAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer, with either an MLP or a mixture.
type Layer struct {
	Next             *family.Next  `gguf:"" hf:""` // of a layer behind the last
	AttnNorm         *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn             Attention     `gguf:"" hf:"self_attn"`
	MLPNorm          *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	family.Feed[MoE] `gguf:"" hf:""`
}

// Attention is latent attention.
type Attention struct {
	Q                      *graph.Weight `gguf:"attn_q" hf:"q_proj" if:"!q_lora_rank"`
	QA                     *graph.Weight `gguf:"attn_q_a" hf:"q_a_proj" if:"q_lora_rank"`
	QANorm                 *graph.Weight `gguf:"attn_q_a_norm" hf:"q_a_layernorm" if:"q_lora_rank"`
	QB                     *graph.Weight `gguf:"attn_q_b" hf:"q_b_proj" if:"q_lora_rank"`
	family.LatentAttention `gguf:"" hf:""`

	Indexer *Indexer `gguf:"" hf:"indexer"` // nil in layers that see all, or an earlier layer's choice
}

// MoE is the mixture of experts, with the shared experts as an MLP for all tokens.
type MoE struct {
	Router     *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Bias       *graph.Weight `gguf:"exp_probs_b.bias" hf:"gate.e_score_correction_bias" if:"e_score_correction_bias"`
	Experts    family.Routed `gguf:"" hf:"experts"`
	SharedGate *graph.Weight `gguf:"ffn_gate_shexp" hf:"shared_experts.gate_proj" if:"n_shared_experts"`
	SharedUp   *graph.Weight `gguf:"ffn_up_shexp" hf:"shared_experts.up_proj" if:"n_shared_experts"`
	SharedDown *graph.Weight `gguf:"ffn_down_shexp" hf:"shared_experts.down_proj" if:"n_shared_experts"`
}

// latentEps is the epsilon of the norms of latents, whatever RMSNormEps says.
const latentEps = 1e-6

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	turn, err := family.Turn(c.SharedDim, c.Rope.Full)
	turn.Interleaved = c.Interleaved
	m := &Model{scale: c.Rope.Full.ScoreScale() / math.Sqrt(float64(c.PlainDim+c.SharedDim)), turn: turn,
		Trunk: family.NewTrunk[Layer](c.NumLayers + c.NumNext)}
	m.route = graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: c.Normalize, Factor: c.Factor, Groups: c.Groups,
		Kept: c.KeptGroups}
	switch {
	case c.Scoring == "sigmoid" && c.Method == "noaux_tc":
		m.route.Weigh, m.route.Best, c.Biased = graph.SigmoidEach, 2, true
	case c.Scoring == "softmax" && c.Method == "greedy":
		m.route.Groups = 1
	case c.Scoring != "softmax" || c.Method != "group_limited_greedy":
		return nil, fmt.Errorf("scoring_func %q with topk_method %q, supported are sigmoid with noaux_tc and "+
			"softmax with greedy or group_limited_greedy", c.Scoring, c.Method)
	}
	m.Config = c
	for i := range m.Layers {
		if i >= c.NumLayers {
			m.Layers[i].Next = new(family.Next)
		}
		m.Layers[i].Choose(i < c.FirstDense || c.NumExperts == 0)
	}
	return m, errors.Join(err, m.addIndexers())
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node { return m.Decoder().Forward(g) }

// Decoder implements family.Predictor.
func (m *Model) Decoder() *family.Decoder {
	var chosen *graph.Node // in the last layer with an indexer
	d := &family.Decoder{Embed: m.Embed, Norm: m.Norm, Output: m.Output, Vocab: m.VocabSize, Hidden: m.HiddenSize,
		Layers: m.NumLayers, Eps: m.RMSNormEps, KV: m.KV,
		Layer: func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node {
			return m.Layers[kv.Layer].forward(g, x, kv, m, &chosen)
		}}
	if m.NumNext > 0 {
		d.Next = m.Layers[m.NumLayers].Next
	}
	return d
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model,
	chosen **graph.Node) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, m, chosen))
	x := g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0)
	if l.MLP != nil {
		x = l.MLP.Forward(g, x, m.Act, m.IntermediateSize, m.HiddenSize)
	} else {
		x = l.MoE.forward(g, x, m)
	}
	return g.Name(g.Add(h, x), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model,
	chosen **graph.Node) *graph.Node {
	qDim := m.PlainDim + m.SharedDim
	from, w := x, a.Q
	if w == nil {
		from, w = g.RMSNorm(a.QANorm, g.Linear(a.QA, x, m.QueryRank), latentEps, 0), a.QB // [T, qRank]
	}
	q := g.Heads(g.Linear(w, from, m.NumHeads*qDim), qDim)                // [T, heads, plain + turning]
	plain := g.HeadLinear(a.KeyB, g.Slice(q, 0, m.PlainDim), m.Rank)      // [T, heads, rank]
	turning := g.RoPE("q", g.Slice(q, m.PlainDim, m.SharedDim), m.turn)   // [T, heads, turning]
	both := g.Linear(a.KVA, x, kv.Dim)                                    // [T, rank + turning]
	latent := g.RMSNorm(a.KVNorm, g.Slice(both, 0, m.Rank), latentEps, 0) // [T, rank]
	k := g.RoPE("k", g.Heads(g.Slice(both, m.Rank, m.SharedDim), m.SharedDim), m.turn)
	g.StoreKV(kv, g.Concat(g.Heads(latent, m.Rank), k), nil)
	if a.Indexer != nil {
		*chosen = a.Indexer.forward(g, x, from, m.index[kv.Layer], m)
	}
	y := g.Attention(g.Concat(plain, turning), kv, m.scale) // [T, heads·rank]
	if *chosen != nil {
		y = g.Over(y, *chosen)
	}
	return g.Linear(a.O, g.HeadLinear(a.ValueB, g.Heads(y, m.Rank), m.ValueDim), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	route := g.RouteWith(g.Linear(e.Router, x, m.NumExperts), m.TopK, m.route, nil, e.Bias)
	y := e.Experts.Forward(g, x, route, m.Act, m.NumExperts, m.ExpertSize)
	if e.SharedUp == nil {
		return y
	}
	gate, up := g.Linear(e.SharedGate, x, m.NumShared*m.ExpertSize), g.Linear(e.SharedUp, x, m.NumShared*m.ExpertSize)
	y = g.Add(y, g.Linear(e.SharedDown, g.GLU(m.Act, gate, up), m.HiddenSize))
	return g.Name(y, "ffn_out", "mlp.out")
}

// Indexer chooses the positions that attention sees, by small heads of queries that share a key. Its first features
// turn. (DeepSeek-V3.2; the publisher's code also turns queries and keys by a Hadamard matrix, for 8 bits, without
// effect on products.)
type Indexer struct {
	Q       *graph.Weight `gguf:"indexer.attn_q_b" hf:"wq_b"`
	K       *graph.Weight `gguf:"indexer.attn_k" hf:"wk"`
	KNorm   *graph.Weight `gguf:"indexer.k_norm" hf:"k_norm"`
	KBias   *graph.Weight `gguf:"indexer.k_norm.bias" hf:"k_norm.bias"`
	Weights *graph.Weight `gguf:"indexer.proj" hf:"weights_proj"` // of the heads
}

// addIndexers gives layers their indexers. The layer behind the last has one.
func (m *Model) addIndexers() error {
	if n := len(m.IndexTypes); n > 0 && n != m.NumLayers {
		return fmt.Errorf("indexer_types of %d layers in a model of %d", n, m.NumLayers)
	}
	m.index = make([]*graph.KV, len(m.Layers))
	for i := range m.Layers {
		kind := "full"
		if i < len(m.IndexTypes) {
			kind = m.IndexTypes[i]
		}
		switch {
		case m.IndexTopK == 0 || kind == "shared" && i > 0:
			continue
		case kind != "full":
			return fmt.Errorf("layer %d has an indexer that is %q, supported are full and, behind a layer, shared", i,
				kind)
		}
		m.index[i] = &graph.KV{Layer: i, Heads: 1, Dim: m.IndexDim, Latent: true, Index: true}
		if m.Layers[i].Next != nil {
			m.index[i].Skip = 1
		}
		m.Layers[i].Attn.Indexer = new(Indexer)
	}
	return nil
}

// forward returns the positions chosen for the rows of x, by the latent of their queries.
func (ix *Indexer) forward(g graph.Builder, x, latent *graph.Node, keys *graph.KV, m *Model) *graph.Node {
	turn := m.turn
	turn.Dim, turn.Interleaved = m.SharedDim, m.IndexInterleaved
	k := g.LayerNorm(ix.KNorm, ix.KBias, g.Linear(ix.K, x, m.IndexDim), latentEps) // [T, dim]
	g.StoreKV(keys, g.RoPE("index_k", g.Heads(k, m.IndexDim), turn), nil)
	q := g.Heads(g.Linear(ix.Q, latent, m.IndexHeads*m.IndexDim), m.IndexDim) // [T, heads, dim]
	w := g.Linear(ix.Weights, x, m.IndexHeads)                                // [T, heads]
	return g.Choose(g.RoPE("index_q", q, turn), w, keys, m.IndexTopK)
}
