// Package olmohybrid is the decoder of OLMo Hybrid.
//
// Differences from OLMo 3: three of four layers are gated DeltaNets, as Qwen 3.5's, with a convolution for queries, for
// keys and for values, and shares of a correction of up to 2. Norms come before a DeltaNet and before the MLP behind a
// DeltaNet. Full layers have norms of OLMo 3, and turn only where the configuration has a base.
//
// Source: transformers, models/olmo_hybrid/modular_olmo_hybrid.py; vLLM, model_executor/models/olmo_hybrid.py. Folders
// saved by transformers 5.17 divide the rows of the three convolutions into thirds (shares), published folders and
// testdata into queries, keys and values. published.json: olmo-core's writer of config.json, and a test of
// open-instruct with Olmo-Hybrid-7B's values; open-instruct's pull request 1822 for rope_parameters.
package olmohybrid

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Rotary
	LayerTypes []string `json:"layer_types"`
	KeyHeads   int      `json:"linear_num_key_heads"`
	ValueHeads int      `json:"linear_num_value_heads"`
	KeyDim     int      `json:"linear_key_head_dim"`
	ValueDim   int      `json:"linear_value_head_dim"`
	Kernel     int      `json:"linear_conv_kernel_dim"`
	Negative   bool     `json:"linear_allow_neg_eigval"` // shares of a correction go up to 2
	Positions  string   `json:"position_embedding_type"` // rope, or none
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr // of full layers; nil where nothing turns
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer: a DeltaNet or attention, with norms, and an MLP.
type Layer struct {
	Delta *Delta     `gguf:"" hf:""`
	Full  *Full      `gguf:"" hf:""`
	MLP   family.MLP `gguf:"" hf:"mlp"`
}

// Delta is a gated DeltaNet with the norms before the DeltaNet and before the MLP.
type Delta struct {
	Norm    *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	MLPNorm *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	Q       *graph.Weight `gguf:"attn_q" hf:"linear_attn.q_proj"`
	K       *graph.Weight `gguf:"attn_k" hf:"linear_attn.k_proj"`
	V       *graph.Weight `gguf:"attn_v" hf:"linear_attn.v_proj"`
	QConv   *graph.Weight `gguf:"ssm_conv1d_q" hf:"linear_attn.q_conv1d"`
	KConv   *graph.Weight `gguf:"ssm_conv1d_k" hf:"linear_attn.k_conv1d"`
	VConv   *graph.Weight `gguf:"ssm_conv1d_v" hf:"linear_attn.v_conv1d"`
	Alpha   *graph.Weight `gguf:"ssm_alpha" hf:"linear_attn.a_proj"`
	Beta    *graph.Weight `gguf:"ssm_beta" hf:"linear_attn.b_proj"`
	Gate    *graph.Weight `gguf:"attn_gate" hf:"linear_attn.g_proj"`
	Decay   *graph.Weight `gguf:"ssm_a" hf:"linear_attn.A_log"`
	Bias    *graph.Weight `gguf:"ssm_dt.bias" hf:"linear_attn.dt_bias"`
	OutNorm *graph.Weight `gguf:"ssm_norm" hf:"linear_attn.o_norm"`
	Out     *graph.Weight `gguf:"ssm_out" hf:"linear_attn.o_proj"`
}

// Full is grouped-query attention with the norms after attention and after the MLP.
type Full struct {
	Q       *graph.Weight `gguf:"attn_q" hf:"self_attn.q_proj"`
	K       *graph.Weight `gguf:"attn_k" hf:"self_attn.k_proj"`
	V       *graph.Weight `gguf:"attn_v" hf:"self_attn.v_proj"`
	O       *graph.Weight `gguf:"attn_output" hf:"self_attn.o_proj"`
	QNorm   *graph.Weight `gguf:"attn_q_norm" hf:"self_attn.q_norm"`
	KNorm   *graph.Weight `gguf:"attn_k_norm" hf:"self_attn.k_norm"`
	Norm    *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLPNorm *graph.Weight `gguf:"post_ffw_norm" hf:"post_feedforward_layernorm"`
}

// Epsilons of a DeltaNet: of the output's norm, and of the lengths of queries and keys, whatever RMSNormEps says.
const gatedEps, lengthEps = 1e-5, 1e-6

// New makes a model with unbound weights.
func New(c Config) (m *Model, err error) {
	m = &Model{Config: c, Trunk: family.NewTrunk[Layer](c.NumLayers)}
	for i := range m.Layers {
		if c.LayerTypes[i] == family.FullAttention {
			m.Layers[i].Full = new(Full)
		} else {
			m.Layers[i].Delta = new(Delta)
		}
	}
	if c.Positions == "rope" {
		m.turn, err = family.Turn(c.HeadDim, c.Rope.Full)
	}
	return m, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i, l := range m.Layers {
		g, mlp := g.Layer(i), func(x *graph.Node) *graph.Node {
			return l.MLP.Forward(g.Layer(i), x, m.Act, m.IntermediateSize, m.HiddenSize)
		}
		if d := l.Delta; d != nil {
			h = g.Add(h, d.forward(g, g.RMSNorm(d.Norm, h, m.RMSNormEps, 0), m))
			h = g.Add(h, mlp(g.RMSNorm(d.MLPNorm, h, m.RMSNormEps, 0)))
		} else {
			kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
			h = g.Add(h, g.RMSNorm(l.Full.Norm, l.Full.forward(g, h, kv, m), m.RMSNormEps, 0))
			h = g.Add(h, g.RMSNorm(l.Full.MLPNorm, mlp(h), m.RMSNormEps, 0))
		}
		h = g.Name(h, "out", "out")
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (d *Delta) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	part := func(w, conv *graph.Weight, heads, dim int) *graph.Node { // [T, heads, dim]
		return g.Heads(g.Act(m.Act, g.Conv(conv, nil, g.Linear(w, x, heads*dim), m.Kernel)), dim)
	}
	q, k := part(d.Q, d.QConv, m.KeyHeads, m.KeyDim), part(d.K, d.KConv, m.KeyHeads, m.KeyDim)
	v := part(d.V, d.VConv, m.ValueHeads, m.ValueDim)
	var attr graph.ScanAttr
	if m.Negative {
		attr.Most = 2
	}
	q = g.Scale(g.L2Norm(q, lengthEps), 1/math.Sqrt(float64(m.KeyDim)))
	alpha, beta := g.Linear(d.Alpha, x, m.ValueHeads), g.Linear(d.Beta, x, m.ValueHeads)
	y := g.DeltaScanWith(attr, d.Decay, d.Bias, q, g.L2Norm(k, lengthEps), v, alpha, beta)
	y = g.RMSNorm(d.OutNorm, y, gatedEps, 0)
	y.HF = "" // the module multiplies by the gate
	gate := g.Heads(g.Linear(d.Gate, x, m.ValueHeads*m.ValueDim), m.ValueDim)
	y = g.Name(g.GLU(graph.SiLU, gate, y), "ssm_gated", "linear_attn.o_norm.out")
	return g.Linear(d.Out, y, m.HiddenSize)
}

func (a *Full) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	q := g.RMSNorm(a.QNorm, g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.RMSNormEps, 0)   // [T, heads·dim]
	k := g.RMSNorm(a.KNorm, g.Linear(a.K, x, m.NumKVHeads*m.HeadDim), m.RMSNormEps, 0) // [T, kvHeads·dim]
	v := g.Linear(a.V, x, m.NumKVHeads*m.HeadDim)
	q, k = g.Heads(q, m.HeadDim), g.Heads(k, m.HeadDim)
	if m.turn.Freqs != nil {
		q, k = g.RoPE("q", q, m.turn), g.RoPE("k", k, m.turn)
	}
	g.StoreKV(kv, k, g.Heads(v, m.HeadDim))
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(m.HeadDim))), m.HiddenSize)
}
