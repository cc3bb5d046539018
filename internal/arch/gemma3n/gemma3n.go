// Package gemma3n is the Gemma 3n text decoder (E2B, E4B).
//
// Differences from Gemma 4 with per-layer embeddings: a layer predicts four streams by weights of a row's own (AltUp),
// computes with one, and corrects all by what was wrong; a product of low rank stands beside attention (LAuReL); the
// per-layer embedding enters the streams behind the first; gates of the first layers keep what exceeds a bound.
// Streams begin as products of the embedding, and their mean, at one size, is the state that makes logits.
//
// Source: transformers, models/gemma3n/modular_gemma3n.py; llama.cpp, src/models/gemma3n.cpp (divides the variance of
// gates by a number less); Baykal and others 2023, arXiv:2301.13310. published.json:
// E4B's values, of transformers' class Gemma3nTextConfig.
package gemma3n

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
	MLPSize       int              `json:"intermediate_size"`
	LayerTypes    []string         `json:"layer_types"`
	SlidingWindow int              `json:"sliding_window"`
	NumKVShared   int              `json:"num_kv_shared_layers"`
	PLESize       int              `json:"hidden_size_per_layer_input"`
	PLEVocabSize  int              `json:"vocab_size_per_layer_input"`
	Streams       int              `json:"altup_num_inputs"`
	Active        int              `json:"altup_active_idx"`
	LaurelRank    int              `json:"laurel_rank"`
	Sparsity      []float64        `json:"activation_sparsity_pattern"` // share of gates below the bound, by layer
	RMSNormEps    float32          `json:"rms_norm_eps"`
	Tied          bool             `json:"tie_word_embeddings"`
	Act           graph.Activation `json:"hidden_activation"`
	Softcap       float64          `json:"final_logit_softcapping"`
	Rope          rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	full, sliding       graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
	PLE                 *graph.Weight `gguf:"per_layer_token_embd" hf:"model.embed_tokens_per_layer"`
	PLEProj             *graph.Weight `gguf:"per_layer_model_proj" hf:"model.per_layer_model_projection"`
	PLENorm             *graph.Weight `gguf:"per_layer_proj_norm" hf:"model.per_layer_projection_norm"`
	Spread              *graph.Weight `gguf:"altup_proj" hf:"model.altup_projections"`
	Gather              *graph.Weight `gguf:"altup_unembd_proj" hf:"model.altup_unembed_projections"`
}

// Layer is a decoder layer.
type Layer struct {
	AltUp        AltUp         `gguf:"" hf:"altup"`
	AttnNorm     *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn         Attention     `gguf:"" hf:"self_attn"`
	PostAttnNorm *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	LaurelLeft   *graph.Weight `gguf:"laurel_l" hf:"laurel.linear_left"`
	LaurelRight  *graph.Weight `gguf:"laurel_r" hf:"laurel.linear_right"`
	LaurelNorm   *graph.Weight `gguf:"laurel_post_norm" hf:"laurel.post_laurel_norm"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"pre_feedforward_layernorm"`
	MLP          family.MLP    `gguf:"" hf:"mlp"`
	PostMLPNorm  *graph.Weight `gguf:"post_ffw_norm" hf:"post_feedforward_layernorm"`
	PLEGate      *graph.Weight `gguf:"inp_gate" hf:"per_layer_input_gate"`
	PLEProj      *graph.Weight `gguf:"proj" hf:"per_layer_projection"`
	PostPLENorm  *graph.Weight `gguf:"post_norm" hf:"post_per_layer_input_norm"`
}

// AltUp predicts and corrects streams.
type AltUp struct {
	Norm    *graph.Weight `gguf:"altup_router_norm" hf:"router_norm"`
	Router  *graph.Weight `gguf:"altup_router" hf:"modality_router"`
	Predict *graph.Weight `gguf:"altup_predict_coef" hf:"prediction_coefs"`
	Correct *graph.Weight `gguf:"altup_correct_coef" hf:"correction_coefs"`
	Scale   *graph.Weight `gguf:"altup_correct_scale" hf:"correct_output_scale"`
}

// Attention is grouped-query attention over normed queries, keys and values.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj" optional:"ignored in layers that share keys and values"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj" optional:"ignored in layers that share keys and values"`
	O     *graph.Weight `gguf:"attn_output" hf:"o_proj"`
	QNorm *graph.Weight `gguf:"attn_q_norm" hf:"q_norm"`
	KNorm *graph.Weight `gguf:"attn_k_norm" hf:"k_norm" optional:"ignored in layers that share keys and values"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.Streams < 2 || c.Active < 0 || c.Active >= c.Streams || len(c.Sparsity) != c.NumLayers {
		return nil, fmt.Errorf("altup_num_inputs %d, altup_active_idx %d and %d values of activation_sparsity_pattern,"+
			" want two streams or more, one of them, and a value for each layer", c.Streams, c.Active, len(c.Sparsity))
	}
	full, sliding, err := family.TurnBoth(c.HeadDim, c.Rope)
	return &Model{Config: c, full: full, sliding: sliding, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// matchEps is the least mean square that a stream is divided by.
const matchEps = 1e-5

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	n, d := m.NumLayers*m.PLESize, m.HiddenSize
	h := g.Embed(m.Embed, m.VocabSize, d, float32(math.Sqrt(float64(d))))
	whole := g.Linear(m.PLEProj, h, n)
	whole.HF = "" // the reference scales the module's output in place
	x := g.Name(g.Scale(whole, 1/math.Sqrt(float64(d))), "per_layer_proj", "model.per_layer_model_projection.out")
	x = g.RMSNorm(m.PLENorm, g.Heads(x, m.PLESize), m.RMSNormEps, 0)
	e := g.Embed(m.PLE, m.PLEVocabSize, n, float32(math.Sqrt(float64(m.PLESize))))
	ple := g.Scale(g.Add(x, g.Heads(e, m.PLESize)), 1/math.Sqrt2) // [T, layers, PLESize]

	others := g.HeadLinear(m.Spread, g.Heads(repeat(g, h, m.Streams-1), d), d)
	s := join(g, h, g.Match(others, h, matchEps)) // [T, streams, hidden]
	stores := map[string]*graph.KV{}              // of the last layer of a kind
	for i := range m.Layers {
		s = m.Layers[i].forward(g.Layer(i), s, g.Head(ple, i), stores, m, i)
	}
	s = g.Outputs(s)
	h = g.Head(s, 0)
	others = g.Match(g.HeadLinear(m.Gather, rest(g, s), d), h, matchEps)
	for i := range m.Streams - 1 {
		h = g.Add(h, g.Head(others, i))
	}
	h = g.RMSNorm(m.Norm, g.Scale(h, 1/float64(m.Streams)), m.RMSNormEps, 0)
	h = family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
	if m.Softcap > 0 {
		h = g.Softcap(h, m.Softcap)
	}
	return h
}

// repeat returns so many of x, side by side.
func repeat(g graph.Builder, x *graph.Node, n int) *graph.Node {
	all := x
	for range n - 1 {
		all = g.Concat(all, x)
	}
	return all
}

// join puts the first stream before the others.
func join(g graph.Builder, first, others *graph.Node) *graph.Node {
	d := first.Shape.Size()
	return g.Heads(g.Concat(g.Heads(first, d), g.Heads(others, others.Shape.Size())), d)
}

// rest returns the streams behind the first.
func rest(g graph.Builder, s *graph.Node) *graph.Node {
	d, all := s.Shape.Last(), s.Shape.Size()
	return g.Heads(g.Slice(g.Heads(s, all), d, all-d), d)
}

// ways returns a row's own numbers for its streams, of the computing one.
func (a *AltUp) ways(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	norm := g.RMSNorm(a.Norm, x, m.RMSNormEps, 0)
	r := g.Linear(a.Router, g.Scale(norm, 1/float64(m.HiddenSize)), m.Streams)
	norm.HF, r.HF = "", "" // the modules are called twice
	return g.Act(graph.Tanh, r)
}

func (l *Layer) forward(g graph.Builder, s, ple *graph.Node, stores map[string]*graph.KV, m *Model, i int) *graph.Node {
	eps, d, n := m.RMSNormEps, m.HiddenSize, m.Streams
	p := g.Linear(l.AltUp.Predict, l.AltUp.ways(g, g.Head(s, m.Active), m), n*n)
	predicted := g.Add(g.Mix(p, s, n, 0), s) // [T, streams, hidden]
	h := g.Head(predicted, m.Active)
	x := g.RMSNorm(l.AttnNorm, h, eps, 0)
	left := g.Linear(l.LaurelRight, g.Linear(l.LaurelLeft, x, m.LaurelRank), d)
	laurel := g.Name(g.Add(x, g.RMSNorm(l.LaurelNorm, left, eps, 0)), "laurel_out", "laurel.out")
	attn := g.RMSNorm(l.PostAttnNorm, l.Attn.forward(g, x, stores, m, i), eps, 0)
	y := g.Scale(g.Add(g.Add(h, attn), laurel), 1/math.Sqrt2)

	x = g.RMSNorm(l.MLPNorm, y, eps, 0)
	gate := g.Linear(l.MLP.Gate, x, m.MLPSize)
	if m.Sparsity[i] > 0 {
		gate = g.Above(gate, float64(deviations(m.Sparsity[i])))
	}
	x = g.Linear(l.MLP.Down, g.GLU(m.Act, gate, g.Linear(l.MLP.Up, x, m.MLPSize)), d)
	y = g.Add(y, g.RMSNorm(l.PostMLPNorm, x, eps, 0))

	wrong := g.Heads(g.Add(y, g.Scale(h, -1)), d) // [T, 1, hidden]
	c := g.Linear(l.AltUp.Correct, l.AltUp.ways(g, y, m), n)
	s = g.Add(g.Mix(c, wrong, n, 1), predicted)
	x = g.MulWeight(l.AltUp.Scale, g.Head(s, m.Active), d)
	x = g.Linear(l.PLEProj, g.GLU(m.Act, g.Linear(l.PLEGate, x, m.PLESize), ple), d)
	x = g.RMSNorm(l.PostPLENorm, x, eps, 0)
	first := g.Name(g.Head(s, 0), "out", "out")
	return join(g, first, g.Add(rest(g, s), g.Heads(repeat(g, x, n-1), d)))
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, stores map[string]*graph.KV, m *Model, i int) *graph.Node {
	kind, turn, window := m.LayerTypes[i], m.full, 0
	if kind != family.FullAttention {
		turn, window = m.sliding, m.SlidingWindow
	}
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*m.HeadDim), m.HeadDim) // [T, heads, dim]
	q = g.RoPE("q", g.RMSNorm(a.QNorm, q, m.RMSNormEps, 0), turn)
	if i < m.NumLayers-m.NumKVShared {
		n := m.NumKVHeads * m.HeadDim
		stores[kind] = &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim, Window: window}
		k := g.Heads(g.Linear(a.K, x, n), m.HeadDim) // [T, kvHeads, dim]
		v := g.Normalize(g.Heads(g.Linear(a.V, x, n), m.HeadDim), m.RMSNormEps)
		v = g.Name(v, "attn_v_norm", "self_attn.v_norm.out")
		g.StoreKV(stores[kind], g.RoPE("k", g.RMSNorm(a.KNorm, k, m.RMSNormEps, 0), turn), v)
	}
	return g.Linear(a.O, g.Attention(q, stores[kind], 1), m.HiddenSize)
}
