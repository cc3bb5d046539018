package family

import (
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Sizes holds the sizes of nearly every decoder, as a part of its configuration.
type Sizes struct {
	VocabSize  int `json:"vocab_size"`
	HiddenSize int `json:"hidden_size"`
	NumLayers  int `json:"num_hidden_layers"`
	NumHeads   int `json:"num_attention_heads"`
	NumKVHeads int `json:"num_key_value_heads"`
	HeadDim    int `json:"head_dim"`
}

// Usual holds the settings of most decoders.
type Usual struct {
	Sizes
	RMSNormEps float32          `json:"rms_norm_eps"`
	Act        graph.Activation `json:"hidden_act"`
	Tied       bool             `json:"tie_word_embeddings"`
}

// Rotary holds the settings of most decoders with an MLP and rotary positions.
type Rotary struct {
	Usual
	IntermediateSize int        `json:"intermediate_size"`
	Rope             rope.Kinds `json:"rope_parameters"`
}

// Mixture holds the sizes of a mixture of experts, as a part of its model's configuration.
type Mixture struct {
	ExpertSize int `json:"moe_intermediate_size"`
	NumExperts int `json:"num_experts"`
	TopK       int `json:"top_k_experts"`
}

// Routing holds the settings of a mixture whose routes have weights of their own.
type Routing struct {
	Mixture
	Normalize bool    `json:"norm_topk_prob"`
	Factor    float64 `json:"routed_scaling_factor"`
}

// Latent holds the settings of decoders with latent attention and a mixture of experts behind the first layers.
type Latent struct {
	VocabSize        int              `json:"vocab_size"`
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	Rank             int              `json:"kv_lora_rank"`
	PlainDim         int              `json:"qk_nope_head_dim"` // features of a head of its own, without rotation
	SharedDim        int              `json:"qk_rope_head_dim"` // features of keys for all heads, which may turn
	ValueDim         int              `json:"v_head_dim"`
	RMSNormEps       float32          `json:"rms_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Tied             bool             `json:"tie_word_embeddings"`
	FirstDense       int              `json:"first_k_dense_replace"`
	NumShared        int              `json:"n_shared_experts"`
	Mixture
}

// KV returns the store of a layer's latents.
func (c *Latent) KV(layer int) *graph.KV {
	return &graph.KV{Layer: layer, Heads: 1, Dim: c.Rank + c.SharedDim, ValueDim: c.Rank, Latent: true}
}

// LatentAttention is the weights of latent attention behind its queries: KeyB [heads, rank, plain] and ValueB [heads,
// value, rank] are kv_b_proj of the paper, its keys' half transposed.
type LatentAttention struct {
	KVA    *graph.Weight `gguf:"attn_kv_a_mqa" hf:"kv_a_proj_with_mqa"`
	KVNorm *graph.Weight `gguf:"attn_kv_a_norm" hf:"kv_a_layernorm"`
	KeyB   *graph.Weight `gguf:"attn_k_b" hf:"k_b_proj"`
	ValueB *graph.Weight `gguf:"attn_v_b" hf:"v_b_proj"`
	O      *graph.Weight `gguf:"attn_output" hf:"o_proj"`
}

// Trunk is the weights of a decoder, with layers of type L.
type Trunk[L any] struct {
	Embed  *graph.Weight `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []L           `gguf:"blk" hf:"model.layers"`
	Norm   *graph.Weight `gguf:"output_norm" hf:"model.norm"`
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// NewTrunk makes a trunk with n layers, without weights.
func NewTrunk[L any](n int) Trunk[L] { return Trunk[L]{Layers: make([]L, n)} }

// Record records the pass from the step's tokens to logits [outputs, vocab]. Function layer records the layer of a
// store, and may give the store a window.
func (t *Trunk[L]) Record(g graph.Builder, c *Usual, layer LayerFunc) *graph.Node {
	return around(t.Embed, t.Norm, t.Output, c, layer).Forward(g)
}

// Predicting returns the decoder of a trunk with its head, if the model has layers behind the last.
func Predicting[L any](t *Trunk[L], c *Usual, layer LayerFunc, next func(*L) *Next) *Decoder {
	d := around(t.Embed, t.Norm, t.Output, c, layer)
	if len(t.Layers) > c.NumLayers {
		d.Next = next(&t.Layers[c.NumLayers])
	}
	return d
}

// around makes a decoder of its weights.
func around(embed, norm, output *graph.Weight, c *Usual, layer LayerFunc) *Decoder {
	heads, dim := c.NumKVHeads, c.HeadDim
	return &Decoder{Embed: embed, Norm: norm, Output: output, Vocab: c.VocabSize, Hidden: c.HiddenSize,
		Layers: c.NumLayers, Eps: c.RMSNormEps, Layer: layer,
		KV: func(i int) *graph.KV { return &graph.KV{Layer: i, Heads: heads, Dim: dim} }}
}

// Layer is a decoder layer with attention A and a feed-forward part F, each behind a norm.
type Layer[A, F any] struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	Attn     A             `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"post_attention_layernorm"`
	MLP      F             `gguf:"" hf:"mlp"`
}

// Record records the layer: each part is added to its input.
func (l *Layer[A, F]) Record(g graph.Builder, h *graph.Node, c *Usual, attn, mlp NodeFunc) *graph.Node {
	h = g.Add(h, attn(g.RMSNorm(l.AttnNorm, h, c.RMSNormEps, 0)))
	h = g.Add(h, mlp(g.RMSNorm(l.MLPNorm, h, c.RMSNormEps, 0)))
	return g.Name(h, "out", "out")
}

// Feed is the feed-forward part of a layer: either an MLP or a mixture E.
type Feed[E any] struct {
	MLP *MLP `gguf:"" hf:"mlp"`
	MoE *E   `gguf:"" hf:"mlp"`
}

// Choose makes the MLP or the mixture.
func (f *Feed[E]) Choose(dense bool) {
	if dense {
		f.MLP = new(MLP)
	} else {
		f.MoE = new(E)
	}
}

// Forward records the MLP, of size features between, or the mixture.
func (f *Feed[E]) Forward(g graph.Builder, x *graph.Node, c *Usual, size int, moe NodeFunc) *graph.Node {
	if f.MLP == nil {
		return moe(x)
	}
	return f.MLP.Forward(g, x, c.Act, size, c.HiddenSize)
}

// LayerFunc records the layer of a store.
type LayerFunc = func(g graph.Builder, x *graph.Node, kv *graph.KV) *graph.Node

// NodeFunc records a part of a layer.
type NodeFunc = func(x *graph.Node) *graph.Node

// Attention is grouped-query attention.
type Attention struct {
	Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
	K *graph.Weight `gguf:"attn_k" hf:"k_proj"`
	V *graph.Weight `gguf:"attn_v" hf:"v_proj"`
	O *graph.Weight `gguf:"attn_output" hf:"o_proj"`
}

// Heads records queries [T, heads, dim], and keys and values [T, kvHeads, dim].
func (a *Attention) Heads(g graph.Builder, x *graph.Node, s *Sizes) (q, k, v *graph.Node) {
	q = g.Heads(g.Linear(a.Q, x, s.NumHeads*s.HeadDim), s.HeadDim)
	k = g.Heads(g.Linear(a.K, x, s.NumKVHeads*s.HeadDim), s.HeadDim)
	v = g.Heads(g.Linear(a.V, x, s.NumKVHeads*s.HeadDim), s.HeadDim)
	return q, k, v
}

// Mix stores keys and values, and records what queries read, behind the last projection.
func (a *Attention) Mix(g graph.Builder, q, k, v *graph.Node, kv *graph.KV, s *Sizes) *graph.Node {
	g.StoreKV(kv, k, v)
	return g.Linear(a.O, g.Attention(q, kv, 1/math.Sqrt(float64(s.HeadDim))), s.HiddenSize)
}

// Forward records attention whose queries and keys turn; without turn they do not.
func (a *Attention) Forward(g graph.Builder, x *graph.Node, kv *graph.KV, s *Sizes, turn *graph.RoPEAttr) *graph.Node {
	q, k, v := a.Heads(g, x, s)
	if turn != nil {
		q, k = g.RoPE("q", q, *turn), g.RoPE("k", k, *turn)
	}
	return a.Mix(g, q, k, v, kv, s)
}

// Biased is grouped-query attention with biases of queries, keys and values where attention_bias says so.
type Biased struct {
	Attention `gguf:"" hf:""`
	QBias     *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
	KBias     *graph.Weight `gguf:"attn_k.bias" hf:"k_proj.bias" if:"attention_bias"`
	VBias     *graph.Weight `gguf:"attn_v.bias" hf:"v_proj.bias" if:"attention_bias"`
}

// Heads records queries [T, heads, dim], and keys and values [T, kvHeads, dim]; queries and keys turn by turn.
func (a *Biased) Heads(g graph.Builder, x *graph.Node, s *Sizes, turn *graph.RoPEAttr) (q, k, v *graph.Node) {
	q = Linear(g, a.Q, a.QBias, x, s.NumHeads*s.HeadDim)   // [T, heads·dim]
	k = Linear(g, a.K, a.KBias, x, s.NumKVHeads*s.HeadDim) // [T, kvHeads·dim]
	v = Linear(g, a.V, a.VBias, x, s.NumKVHeads*s.HeadDim) //
	q = g.RoPE("q", g.Heads(q, s.HeadDim), *turn)
	k = g.RoPE("k", g.Heads(k, s.HeadDim), *turn)
	return q, k, g.Heads(v, s.HeadDim)
}

// Forward hides Attention's, which knows no biases.
func (a *Biased) Forward(g graph.Builder, x *graph.Node, kv *graph.KV, s *Sizes, turn *graph.RoPEAttr) *graph.Node {
	q, k, v := a.Heads(g, x, s, turn)
	return a.Mix(g, q, k, v, kv, s)
}

// NormedAttention is grouped-query attention over normed queries and keys.
type NormedAttention struct {
	Attention `gguf:"" hf:""`
	QNorm     *graph.Weight `gguf:"attn_q_norm" hf:"q_norm"`
	KNorm     *graph.Weight `gguf:"attn_k_norm" hf:"k_norm"`
}

// Forward records attention whose queries and keys turn behind their norms; without turn they do not.
func (a *NormedAttention) Forward(g graph.Builder, x *graph.Node, kv *graph.KV, s *Sizes, eps float32,
	turn *graph.RoPEAttr) *graph.Node {
	q, k, v := a.Heads(g, x, s)
	if q = g.RMSNorm(a.QNorm, q, eps, 0); turn != nil {
		q = g.RoPE("q", q, *turn)
	}
	if k = g.RMSNorm(a.KNorm, k, eps, 0); turn != nil {
		k = g.RoPE("k", k, *turn)
	}
	return a.Mix(g, q, k, v, kv, s)
}
