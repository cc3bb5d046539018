// Package gemma4 is the Gemma 4 text decoder in its forms: with per-layer embeddings and shared keys and values (E2B,
// E4B), dense with K=V (31B), and with experts beside the MLP (26B-A4B).
//
// Differences from Gemma 3: norms scale by w, not 1+w; attention is unscaled, since queries and keys are
// normed; values are normed too, without a weight; full-attention layers have their own head size and turn
// only the first part of their pairs; each layer ends in a learned scalar; logits are capped.
//
// Source: transformers, models/gemma4/modeling_gemma4.py.
package gemma4

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	family.Sizes
	family.Mixture
	IntermediateSize int                 `json:"intermediate_size"`
	DoubleWide       bool                `json:"use_double_wide_mlp"` // in layers without keys and values of their own
	PerLayer         map[string]Override `json:"per_layer_config"`
	LayerTypes       []string            `json:"layer_types"`
	SlidingWindow    int                 `json:"sliding_window"`
	NumKVShared      int                 `json:"num_kv_shared_layers"`
	KEqV             bool                `json:"attention_k_eq_v"` // in full layers
	PLESize          int                 `json:"hidden_size_per_layer_input"`
	PLEVocabSize     int                 `json:"vocab_size_per_layer_input"`
	MoE              bool                `json:"enable_moe_block"`
	RMSNormEps       float32             `json:"rms_norm_eps"`
	Tied             bool                `json:"tie_word_embeddings"`
	Act              graph.Activation    `json:"hidden_activation"`
	Softcap          float64             `json:"final_logit_softcapping"`
	Rope             rope.Kinds          `json:"rope_parameters"`
}

// Override holds the settings in which a layer differs; zero in all other layers.
type Override struct {
	HeadDim          int `json:"head_dim"`
	NumKVHeads       int `json:"num_key_value_heads"`
	IntermediateSize int `json:"intermediate_size"`
}

// Model is the whole decoder.
type Model struct {
	Config
	layers              []layerConfig
	family.Trunk[Layer] `gguf:"" hf:""`
	PerLayer            PerLayer `gguf:"" hf:"model"`
}

// PerLayer makes the vector added in each layer (E2B, E4B).
type PerLayer struct {
	Embed *graph.Weight `gguf:"per_layer_token_embd" hf:"embed_tokens_per_layer" if:"hidden_size_per_layer_input"`
	Proj  *graph.Weight `gguf:"per_layer_model_proj" hf:"per_layer_model_projection" if:"hidden_size_per_layer_input"`
	Norm  *graph.Weight `gguf:"per_layer_proj_norm" hf:"per_layer_projection_norm" if:"hidden_size_per_layer_input"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm     *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn         Attention     `gguf:"" hf:"self_attn"`
	PostAttnNorm *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"pre_feedforward_layernorm"`
	MLP          family.MLP    `gguf:"" hf:"mlp"`
	PostMLPNorm  *graph.Weight `gguf:"post_ffw_norm" hf:"post_feedforward_layernorm"`
	MoE          MoE           `gguf:"" hf:""`
	PLEGate      *graph.Weight `gguf:"inp_gate" hf:"per_layer_input_gate" if:"hidden_size_per_layer_input"`
	PLEProj      *graph.Weight `gguf:"proj" hf:"per_layer_projection" if:"hidden_size_per_layer_input"`
	PostPLENorm  *graph.Weight `gguf:"post_norm" hf:"post_per_layer_input_norm" if:"hidden_size_per_layer_input"`
	Scalar       *graph.Weight `gguf:"layer_output_scale" hf:"layer_scalar"`
}

// Attention is grouped-query attention over normed queries, keys and values.
type Attention struct {
	Q     *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K     *graph.Weight `gguf:"attn_k" hf:"k_proj" optional:"ignored in layers that share keys and values"`
	V     *graph.Weight `gguf:"attn_v" hf:"v_proj" optional:"likewise, and absent where K serves as V"`
	O     *graph.Weight `gguf:"attn_output" hf:"o_proj"`
	QNorm *graph.Weight `gguf:"attn_q_norm" hf:"q_norm"`
	KNorm *graph.Weight `gguf:"attn_k_norm" hf:"k_norm" optional:"ignored in layers that share keys and values"`
}

// MoE is the mixture of experts beside the MLP (26B-A4B).
type MoE struct {
	RouterScale *graph.Weight `gguf:"ffn_gate_inp.scale" hf:"router.scale" if:"enable_moe_block"`
	Router      *graph.Weight `gguf:"ffn_gate_inp" hf:"router.proj" if:"enable_moe_block"`
	ExpertScale *graph.Weight `gguf:"ffn_down_exps.scale" hf:"router.per_expert_scale" if:"enable_moe_block"`
	GateUp      *graph.Weight `gguf:"ffn_gate_up_exps" hf:"experts.gate_up_proj" if:"enable_moe_block"`
	Down        *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj" if:"enable_moe_block"`
	Norm        *graph.Weight `gguf:"pre_ffw_norm_2" hf:"pre_feedforward_layernorm_2" if:"enable_moe_block"`
	PostMLPNorm *graph.Weight `gguf:"post_ffw_norm_1" hf:"post_feedforward_layernorm_1" if:"enable_moe_block"`
	PostNorm    *graph.Weight `gguf:"post_ffw_norm_2" hf:"post_feedforward_layernorm_2" if:"enable_moe_block"`
}

// layerConfig holds the settings of a layer.
type layerConfig struct {
	kv               *graph.KV
	turn             graph.RoPEAttr
	headDim          int
	intermediateSize int
	shared           bool // reads an earlier layer's keys and values
	kIsV             bool // the key projection serves as the value's
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	layers, err := c.layers()
	return &Model{Config: c, layers: layers, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// layers resolves the configuration. The last NumKVShared layers read the keys
// and values of the last earlier layer of their own kind.
func (c *Config) layers() ([]layerConfig, error) {
	ls, last := make([]layerConfig, c.NumLayers), map[string]*graph.KV{}
	turns := map[string]graph.RoPEAttr{} // shared by layers of a kind
	for i, kind := range c.LayerTypes {
		l, o := &ls[i], c.PerLayer[strconv.Itoa(i)]
		l.shared = i >= c.NumLayers-c.NumKVShared
		l.headDim = cmp.Or(o.HeadDim, c.HeadDim)
		l.intermediateSize = c.IntermediateSize
		if c.DoubleWide && l.shared {
			l.intermediateSize *= 2
		}
		l.intermediateSize = cmp.Or(o.IntermediateSize, l.intermediateSize)

		params, window := c.Rope.Sliding, c.SlidingWindow
		if kind == "full_attention" {
			params, window, l.kIsV = c.Rope.Full, 0, c.KEqV
		}
		alike := fmt.Sprint(kind, l.headDim)
		if turns[alike].Freqs == nil {
			var err error
			if turns[alike], err = family.Turn(l.headDim, params); err != nil {
				return nil, fmt.Errorf("layer %d: %w", i, err)
			}
		}
		l.turn = turns[alike]
		if !l.shared {
			last[kind] = &graph.KV{Layer: i, Heads: cmp.Or(o.NumKVHeads, c.NumKVHeads), Dim: l.headDim, Window: window}
		}
		l.kv = last[kind]
	}
	return ls, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, float32(math.Sqrt(float64(m.HiddenSize))))
	var ple *graph.Node // [T, layers, PLESize]
	if m.PLESize > 0 {
		ple = m.PerLayer.forward(g, h, m)
	}
	m.refuseKeys(g)
	for i := range m.Layers {
		h = m.Layers[i].forward(g.Layer(i), h, ple, m.layers[i], m, i)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	h = family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
	if m.Softcap > 0 {
		h = g.Softcap(h, m.Softcap)
	}
	return h
}

// refuseKeys notes an error where some, not all, of the layers with shared keys and values hold weights of
// keys. Files hold these weights for all such layers, as published files do, or for none. Otherwise the
// number of layers is another model's.
func (m *Model) refuseKeys(g graph.Builder) {
	held := 0
	for i := range m.Layers {
		if m.layers[i].shared && m.Layers[i].Attn.K.There() {
			held++
		}
	}
	for i := range m.Layers {
		if l := &m.Layers[i]; held < m.NumKVShared && m.layers[i].shared {
			g.Refuse(l.Attn.K, fmt.Sprintf("the last %d layers share keys (num_kv_shared_layers), of which only %d "+
				"hold any", m.NumKVShared, held))
		}
	}
}

func (p *PerLayer) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	n := m.NumLayers * m.PLESize
	e := g.Embed(p.Embed, m.PLEVocabSize, n, float32(math.Sqrt(float64(m.PLESize))))
	x := g.Scale(g.Linear(p.Proj, h, n), 1/math.Sqrt(float64(m.HiddenSize)))
	x = g.RMSNorm(p.Norm, g.Heads(x, m.PLESize), m.RMSNormEps, 0)
	return g.Scale(g.Add(x, g.Heads(e, m.PLESize)), 1/math.Sqrt2)
}

func (l *Layer) forward(g graph.Builder, h, ple *graph.Node, lc layerConfig, m *Model, i int) *graph.Node {
	eps := m.RMSNormEps
	x := l.Attn.forward(g, g.RMSNorm(l.AttnNorm, h, eps, 0), lc, m)
	h = g.Add(h, g.RMSNorm(l.PostAttnNorm, x, eps, 0))

	x = l.MLP.Forward(g, g.RMSNorm(l.MLPNorm, h, eps, 0), m.Act, lc.intermediateSize, m.HiddenSize)
	if m.MoE {
		x = g.Add(g.RMSNorm(l.MoE.PostMLPNorm, x, eps, 0), l.MoE.forward(g, h, m))
	}
	h = g.Add(h, g.RMSNorm(l.PostMLPNorm, x, eps, 0))

	if m.PLESize > 0 {
		x = g.GLU(m.Act, g.Linear(l.PLEGate, h, m.PLESize), g.Head(ple, i))
		x = g.Linear(l.PLEProj, x, m.HiddenSize)
		h = g.Add(h, g.RMSNorm(l.PostPLENorm, x, eps, 0))
	}
	return g.Name(g.MulWeight(l.Scalar, h, 1), "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, lc layerConfig, m *Model) *graph.Node {
	q := g.Heads(g.Linear(a.Q, x, m.NumHeads*lc.headDim), lc.headDim) // [T, heads, dim]
	q = g.RoPE("q", g.RMSNorm(a.QNorm, q, m.RMSNormEps, 0), lc.turn)
	if !lc.shared {
		n := lc.kv.Heads * lc.headDim
		k := g.Heads(g.Linear(a.K, x, n), lc.headDim) // [T, kvHeads, dim]
		v := k                                        // unnormed
		if lc.kIsV {
			g.Refuse(a.V, "attention_k_eq_v is true")
		} else {
			v = g.Heads(g.Linear(a.V, x, n), lc.headDim)
		}
		v = g.Name(g.Normalize(v, m.RMSNormEps), "attn_v_norm", "self_attn.v_norm.out")
		g.StoreKV(lc.kv, g.RoPE("k", g.RMSNorm(a.KNorm, k, m.RMSNormEps, 0), lc.turn), v)
	}
	// An image's rows see each other in models without per-layer embeddings: use_bidirectional_attention is "vision" in
	// these alone, and GGUF has no key for it.
	slides := lc.kv != nil && lc.kv.Window > 0
	seen := graph.AttentionAttr{KV: lc.kv, Scale: 1, Grouped: m.PLESize == 0 && slides}
	return g.Linear(a.O, g.AttentionWith(q, seen, nil), m.HiddenSize)
}

func (e *MoE) forward(g graph.Builder, h *graph.Node, m *Model) *graph.Node {
	x := g.Name(g.Normalize(h, m.RMSNormEps), "ffn_gate_inp_norm", "router.norm.out")
	x = g.Scale(g.MulWeight(e.RouterScale, x, m.HiddenSize), 1/math.Sqrt(float64(m.HiddenSize)))
	route := g.Route(g.Linear(e.Router, x, m.NumExperts), e.ExpertScale, m.TopK)
	x = g.RMSNorm(e.Norm, h, m.RMSNormEps, 0)
	x = g.Experts(m.Act, e.GateUp, e.Down, x, route, m.NumExperts, m.ExpertSize)
	return g.RMSNorm(e.PostNorm, g.Name(x, "ffn_experts", "experts.out"), m.RMSNormEps, 0)
}
