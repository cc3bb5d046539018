// Package modernbert is the ModernBERT encoder.
//
// Differences from Llama: all of a text is seen from everywhere, and from sliding layers half a window on
// each side; the first layer is full and every n-th after it; norms are LayerNorms without bias, with a norm
// right behind the embeddings, the input of the first layer; a projection makes queries, keys and values,
// another gate and up, the activated half first; each kind of layer has its own rotary base; no head.
//
// Source: transformers, models/modernbert/modeling_modernbert.py; Warner et al. 2024, arXiv:2412.13663.
package modernbert

import (
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	VocabSize        int              `json:"vocab_size"`
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	HeadDim          int              `json:"head_dim"`
	LayerTypes       []string         `json:"layer_types"`
	SlidingWindow    int              `json:"sliding_window"`
	NormEps          float32          `json:"rms_norm_eps"`
	Act              graph.Activation `json:"hidden_activation"`
	Rope             rope.Kinds       `json:"rope_parameters"`
}

// Model is the whole encoder.
type Model struct {
	Config
	full, sliding graph.RoPEAttr
	Embed         *graph.Weight `gguf:"token_embd" hf:"model.embeddings.tok_embeddings"`
	EmbedNorm     *graph.Weight `gguf:"token_embd_norm" hf:"model.embeddings.norm"`
	Layers        []Layer       `gguf:"blk" hf:"model.layers"`
	Norm          *graph.Weight `gguf:"output_norm" hf:"model.final_norm"`
}

// Layer is an encoder layer.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"attn_norm" hf:"attn_norm" optional:"the first layer reads the embeddings' norm"`
	QKV      *graph.Weight `gguf:"attn_qkv" hf:"attn.Wqkv"`
	O        *graph.Weight `gguf:"attn_output" hf:"attn.Wo"`
	MLPNorm  *graph.Weight `gguf:"ffn_norm" hf:"mlp_norm"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"mlp.Wi"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"mlp.Wo"`
}

// layerConfig holds the settings of a layer.
type layerConfig struct {
	kv   *graph.KV
	turn graph.RoPEAttr
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	full, sliding, err := family.TurnBoth(c.HeadDim, c.Rope)
	return &Model{Config: c, full: full, sliding: sliding, Layers: make([]Layer, c.NumLayers)}, err
}

func (m *Model) layer(i int) layerConfig {
	kv := &graph.KV{Layer: i, Heads: m.NumHeads, Dim: m.HeadDim}
	if m.LayerTypes[i] == "full_attention" {
		return layerConfig{kv, m.full}
	}
	kv.Window = m.SlidingWindow/2 + 1 // on either side, itself included
	return layerConfig{kv, m.sliding}
}

// Forward records the pass from the step's tokens to rows [outputs, hidden].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.LayerNorm(m.EmbedNorm, nil, g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1), m.NormEps)
	for i := range m.Layers {
		h = m.Layers[i].forward(g.Layer(i), h, m.layer(i), m, i)
	}
	return g.LayerNorm(m.Norm, nil, g.Outputs(h), m.NormEps)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, lc layerConfig, m *Model, i int) *graph.Node {
	x := h
	if i > 0 {
		x = g.LayerNorm(l.AttnNorm, nil, h, m.NormEps)
	} else {
		g.Refuse(l.AttnNorm, "the first layer reads the embeddings' norm")
	}
	h = g.Add(h, l.attention(g, x, lc, m))
	h = g.Add(h, l.mlp(g, g.LayerNorm(l.MLPNorm, nil, h, m.NormEps), m))
	return g.Name(h, "out", "out")
}

func (l *Layer) attention(g graph.Builder, x *graph.Node, lc layerConfig, m *Model) *graph.Node {
	d := m.HiddenSize
	qkv := g.Linear(l.QKV, x, 3*d) // [T, 3·heads·dim]
	part := func(i int) *graph.Node { return g.Heads(g.Slice(qkv, i*d, d), m.HeadDim) }
	q := g.RoPE("q", part(0), lc.turn) // [T, heads, dim]
	g.StoreKV(lc.kv, g.RoPE("k", part(1), lc.turn), part(2))
	x = g.AttentionWith(q, graph.AttentionAttr{KV: lc.kv, Scale: 1 / math.Sqrt(float64(m.HeadDim)),
		Bidirectional: true}, nil)
	return g.Linear(l.O, x, d)
}

func (l *Layer) mlp(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := g.Linear(l.Up, x, 2*m.IntermediateSize)
	gate := g.Slice(up, 0, m.IntermediateSize)
	return g.Linear(l.Down, g.GLU(m.Act, gate, g.Slice(up, m.IntermediateSize, m.IntermediateSize)), m.HiddenSize)
}
