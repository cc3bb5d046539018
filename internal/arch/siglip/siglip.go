// Package siglip has the towers around SigLIP: of Gemma 3, of SmolVLM and Idefics 3, and of LFM2 VL with SigLIP 2.
//
// An encoder of LayerNorms with biases, learned places and no rotation. SigLIP 2 resizes its places for the picture.
// What follows, up to the text's width, is each family's own.
//
// Source: transformers 5.17, models/siglip/modeling_siglip.py and models/siglip2/modeling_siglip2.py; Zhai et al. 2023,
// arXiv:2303.15343; Tschannen et al. 2025, arXiv:2502.14786.
//
// Files, users before the used: tower.go, projector.go, siglip.go.
package siglip

import (
	"errors"
	"math"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Config holds the settings of all towers.
type Config struct {
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	PatchSize        int              `json:"patch_size"`
	ImageSize        int              `json:"image_size"`
	Positions        int              `json:"num_patches"` // of SigLIP 2
	Eps              float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
	OutSize          int              `json:"out_hidden_size"`
	Tokens           int              `json:"mm_tokens_per_image"`     // of Averaged
	Merge            int              `json:"spatial_merge_size"`      // of Shuffled and Resized
	Width            int              `json:"projector_hidden_size"`   // of Resized
	Between          graph.Activation `json:"projector_hidden_act"`    // likewise
	HasNorm          bool             `json:"projector_use_layernorm"` // likewise
	HasBias          bool             `json:"projector_bias"`          // likewise
}

// Encoder is the part before the projector.
type Encoder struct {
	Patch     *graph.Weight `gguf:"patch_embd" hf:"embeddings.patch_embedding"`
	PatchBias *graph.Weight `gguf:"patch_embd.bias" hf:"embeddings.patch_embedding.bias"`
	Places    *graph.Weight `gguf:"position_embd" hf:"embeddings.position_embedding"`
	Layers    []Layer       `gguf:"blk" hf:"encoder.layers"`
	Norm      *graph.Weight `gguf:"post_ln" hf:"post_layernorm"`
	NormBias  *graph.Weight `gguf:"post_ln.bias" hf:"post_layernorm.bias"`
}

// Layer is a layer of the encoder.
type Layer struct {
	Norm1    *graph.Weight `gguf:"ln1" hf:"layer_norm1"`
	Bias1    *graph.Weight `gguf:"ln1.bias" hf:"layer_norm1.bias"`
	Q        *graph.Weight `gguf:"attn_q" hf:"self_attn.q_proj"`
	QBias    *graph.Weight `gguf:"attn_q.bias" hf:"self_attn.q_proj.bias"`
	K        *graph.Weight `gguf:"attn_k" hf:"self_attn.k_proj"`
	KBias    *graph.Weight `gguf:"attn_k.bias" hf:"self_attn.k_proj.bias"`
	V        *graph.Weight `gguf:"attn_v" hf:"self_attn.v_proj"`
	VBias    *graph.Weight `gguf:"attn_v.bias" hf:"self_attn.v_proj.bias"`
	O        *graph.Weight `gguf:"attn_out" hf:"self_attn.out_proj"`
	OBias    *graph.Weight `gguf:"attn_out.bias" hf:"self_attn.out_proj.bias"`
	Norm2    *graph.Weight `gguf:"ln2" hf:"layer_norm2"`
	Bias2    *graph.Weight `gguf:"ln2.bias" hf:"layer_norm2.bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"mlp.fc1"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"mlp.fc1.bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"mlp.fc2"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"mlp.fc2.bias"`
}

// encoder makes an encoder with unbound weights.
func (c *Config) encoder() (Encoder, error) {
	if c.HiddenSize%c.NumHeads != 0 || c.side() < 1 {
		return Encoder{}, errors.New("the hidden size is no multiple of the number of heads, or there are no places")
	}
	return Encoder{Layers: make([]Layer, c.NumLayers)}, nil
}

// side returns the places along the learned square.
func (c *Config) side() int {
	if c.Positions > 0 {
		return family.Root(c.Positions)
	}
	return c.ImageSize / c.PatchSize
}

// forward records the pass from patches to normed patches. module is the encoder's in PyTorch.
func (e *Encoder) forward(g graph.Builder, module string, rule graph.Rule, c *Config) *graph.Node {
	side, d := c.side(), c.HiddenSize
	x := g.Bias(e.PatchBias, g.Linear(e.Patch.Flat(d), g.Patches(3*c.PatchSize*c.PatchSize), d))
	x = g.Add(x, g.Interpolate(e.Places, graph.PlaceAttr{Rule: rule, Height: side, Width: side}, d))
	x = g.Name(x, "v.inp", module+".embeddings.out")
	kv := &graph.KV{Heads: c.NumHeads, Dim: d / c.NumHeads}
	for i := range e.Layers {
		x = e.Layers[i].forward(g.Block("v.blk", module+".encoder.layers", i), x, kv, c)
	}
	return g.LayerNorm(e.Norm, e.NormBias, x, c.Eps)
}

func (l *Layer) forward(g graph.Builder, x *graph.Node, kv *graph.KV, c *Config) *graph.Node {
	d, y := c.HiddenSize, g.LayerNorm(l.Norm1, l.Bias1, x, c.Eps)
	q := g.Heads(g.Bias(l.QBias, g.Linear(l.Q, y, d)), kv.Dim)
	k := g.Heads(g.Bias(l.KBias, g.Linear(l.K, y, d)), kv.Dim)
	v := g.Heads(g.Bias(l.VBias, g.Linear(l.V, y, d)), kv.Dim)
	g.StoreKV(kv, k, v)
	y = g.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(kv.Dim)), Bidirectional: true}, nil)
	x = g.Add(x, g.Name(g.Bias(l.OBias, g.Linear(l.O, y, d)), "attn_out", "self_attn.out"))
	up := g.Bias(l.UpBias, g.Linear(l.Up, g.LayerNorm(l.Norm2, l.Bias2, x, c.Eps), c.IntermediateSize))
	down := g.Name(g.Bias(l.DownBias, g.Linear(l.Down, g.Act(c.Act, up), d)), "ffn_down", "mlp.out")
	return g.Name(g.Add(x, down), "out", "out")
}
