// Package gpt2 is the GPT-2 decoder.
//
// Differences from Llama: positions are learned and added to the embeddings; norms are LayerNorms, with
// biases, as all projections have; a projection makes queries, keys and values; the MLP has no gate. Hugging
// Face's files hold projections as [in, out].
//
// Source: transformers, models/gpt2/modeling_gpt2.py; Radford et al. 2019.
package gpt2

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of the forward pass.
type Config struct {
	VocabSize        int              `json:"vocab_size"`
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	NumPositions     int              `json:"max_position_embeddings"`
	LayerNormEps     float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	Tied             bool             `json:"tie_word_embeddings"`
	Scaled           bool             `json:"scale_attn_weights"`
	ScaledByLayer    bool             `json:"scale_attn_by_inverse_layer_idx"`
}

// Model is the whole decoder.
type Model struct {
	Config
	Embed     *graph.Weight `gguf:"token_embd" hf:"transformer.wte"`
	Positions *graph.Weight `gguf:"position_embd" hf:"transformer.wpe"`
	Layers    []Layer       `gguf:"blk" hf:"transformer.h"`
	Norm      *graph.Weight `gguf:"output_norm" hf:"transformer.ln_f"`
	NormBias  *graph.Weight `gguf:"output_norm.bias" hf:"transformer.ln_f.bias"`
	Output    *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm     *graph.Weight `gguf:"attn_norm" hf:"ln_1"`
	AttnNormBias *graph.Weight `gguf:"attn_norm.bias" hf:"ln_1.bias"`
	Attn         Attention     `gguf:"" hf:"attn"`
	MLPNorm      *graph.Weight `gguf:"ffn_norm" hf:"ln_2"`
	MLPNormBias  *graph.Weight `gguf:"ffn_norm.bias" hf:"ln_2.bias"`
	MLP          MLP           `gguf:"" hf:"mlp"`
}

// Attention is multi-head attention, of a single projection.
type Attention struct {
	QKV     *graph.Weight `gguf:"attn_qkv" hf:"c_attn"`
	QKVBias *graph.Weight `gguf:"attn_qkv.bias" hf:"c_attn.bias"`
	O       *graph.Weight `gguf:"attn_output" hf:"c_proj"`
	OBias   *graph.Weight `gguf:"attn_output.bias" hf:"c_proj.bias"`
}

// MLP is the feed-forward part, without a gate.
type MLP struct {
	Up       *graph.Weight `gguf:"ffn_up" hf:"c_fc"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"c_fc.bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"c_proj"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"c_proj.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.NumHeads < 1 || c.HiddenSize%c.NumHeads != 0 {
		return nil, fmt.Errorf("a hidden size of %d for %d heads", c.HiddenSize, c.NumHeads)
	}
	if !c.Scaled || c.ScaledByLayer {
		return nil, fmt.Errorf("scale_attn_weights %v and scale_attn_by_inverse_layer_idx %v, only scores divided "+
			"by the root of the head size are supported", c.Scaled, c.ScaledByLayer)
	}
	return &Model{Config: c, Layers: make([]Layer, c.NumLayers)}, nil
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Add(g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1), g.EmbedPos(m.Positions, m.NumPositions, m.HiddenSize))
	h = g.Name(h, "inp_embd", "transformer.drop.out")
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumHeads, Dim: m.HiddenSize / m.NumHeads}
		h = m.Layers[i].forward(g.LayerAs("transformer.h", i), h, kv, m)
	}
	h = g.LayerNorm(m.Norm, m.NormBias, g.Outputs(h), m.LayerNormEps)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	h = g.Add(h, l.Attn.forward(g, g.LayerNorm(l.AttnNorm, l.AttnNormBias, h, m.LayerNormEps), kv, m))
	h = g.Add(h, l.MLP.forward(g, g.LayerNorm(l.MLPNorm, l.MLPNormBias, h, m.LayerNormEps), m))
	return g.Name(h, "out", "out")
}

func (a *Attention) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	d := m.HiddenSize
	qkv := g.Bias(a.QKVBias, g.Linear(a.QKV, x, 3*d)) // [T, 3·heads·dim]
	part := func(i int) *graph.Node { return g.Heads(g.Slice(qkv, i*d, d), kv.Dim) }
	g.StoreKV(kv, part(1), part(2)) // [T, heads, dim]
	y := g.Attention(part(0), kv, 1/math.Sqrt(float64(kv.Dim)))
	return g.Bias(a.OBias, g.Linear(a.O, y, d))
}

func (p *MLP) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	up := g.Name(g.Act(m.Act, g.Bias(p.UpBias, g.Linear(p.Up, x, m.IntermediateSize))), "ffn_act", "mlp.act.out")
	return g.Bias(p.DownBias, g.Linear(p.Down, up, m.HiddenSize))
}
