// Package qwen25vl is the tower of Qwen 2.5 VL.
//
// Differences from Qwen 3 VL's: no learned places; RMSNorm; a gated MLP; most layers see windows of the picture alone;
// the merger's norm is an RMSNorm, and there is no deepstack.
//
// Source: transformers 5.17, models/qwen2_5_vl/modeling_qwen2_5_vl.py; Bai et al. 2025, arXiv:2502.13923.
package qwen25vl

import (
	"errors"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Config holds the settings of the forward pass.
type Config struct {
	HiddenSize       int              `json:"hidden_size"`
	IntermediateSize int              `json:"intermediate_size"`
	NumLayers        int              `json:"num_hidden_layers"`
	NumHeads         int              `json:"num_attention_heads"`
	PatchSize        int              `json:"patch_size"`
	Times            int              `json:"temporal_patch_size"`
	Merge            int              `json:"spatial_merge_size"`
	OutSize          int              `json:"out_hidden_size"`
	Window           int              `json:"window_size"` // in pixels
	Whole            []int            `json:"fullatt_block_indexes"`
	Theta            float64          `json:"rope_theta"`
	Eps              float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
}

// Model is the tower.
type Model struct {
	Config
	turn     graph.RoPEAttr
	Patch    *graph.Weight `gguf:"v.patch_embd" hf:"model.visual.patch_embed.proj"`
	Layers   []Layer       `gguf:"v.blk" hf:"model.visual.blocks"`
	Norm     *graph.Weight `gguf:"v.post_ln" hf:"model.visual.merger.ln_q"`
	Up       *graph.Weight `gguf:"mm.0" hf:"model.visual.merger.mlp.0"`
	UpBias   *graph.Weight `gguf:"mm.0.bias" hf:"model.visual.merger.mlp.0.bias"`
	Down     *graph.Weight `gguf:"mm.2" hf:"model.visual.merger.mlp.2"`
	DownBias *graph.Weight `gguf:"mm.2.bias" hf:"model.visual.merger.mlp.2.bias"`
}

// Layer is a layer of the tower.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"ln1" hf:"norm1"`
	QKV      *graph.Weight `gguf:"attn_qkv" hf:"attn.qkv"`
	QKVBias  *graph.Weight `gguf:"attn_qkv.bias" hf:"attn.qkv.bias"`
	O        *graph.Weight `gguf:"attn_out" hf:"attn.proj"`
	OBias    *graph.Weight `gguf:"attn_out.bias" hf:"attn.proj.bias"`
	MLPNorm  *graph.Weight `gguf:"ln2" hf:"norm2"`
	Gate     *graph.Weight `gguf:"ffn_gate" hf:"mlp.gate_proj"`
	GateBias *graph.Weight `gguf:"ffn_gate.bias" hf:"mlp.gate_proj.bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"mlp.up_proj"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"mlp.up_proj.bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"mlp.down_proj"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"mlp.down_proj.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.HiddenSize%(4*c.NumHeads) != 0 {
		return nil, errors.New("the hidden size is no multiple of four times the number of heads")
	}
	if c.Merge < 1 || c.Window/c.Merge/c.PatchSize < 1 {
		return nil, errors.New("window_size has no block of patches")
	}
	dim := c.HiddenSize / c.NumHeads
	freqs := rope.New(c.Theta, dim/2)
	return &Model{Config: c, Layers: make([]Layer, c.NumLayers),
		turn: graph.RoPEAttr{Freqs: slices.Concat(freqs, freqs), Sections: [3]int{0, dim / 4, dim / 4}}}, nil
}

// Sight implements family.Eye.
func (m *Model) Sight() family.Sight {
	return family.Sight{Patch: m.PatchSize, Side: m.Merge, Window: m.Window / m.Merge / m.PatchSize}
}

// Forward records the pass from patches to rows of the text's width.
func (m *Model) Forward(g graph.Builder) *graph.Node {
	x := g.Linear(m.Patch.Flat(m.HiddenSize), g.Patches(3*m.Times*m.PatchSize*m.PatchSize), m.HiddenSize)
	x = g.Name(x, "v.patch_embd", "model.visual.patch_embed.out")
	kv := &graph.KV{Heads: m.NumHeads, Dim: m.HiddenSize / m.NumHeads}
	for i := range m.Layers {
		x = m.Layers[i].forward(g.Block("v.blk", "model.visual.blocks", i), x, kv, m, !slices.Contains(m.Whole, i))
	}
	x = g.Fold(graph.Joined, m.Merge*m.Merge, g.RMSNorm(m.Norm, x, m.Eps, 0))
	x = g.Act(graph.GELUErf, g.Bias(m.UpBias, g.Linear(m.Up, x, x.Shape.Size())))
	return g.Name(g.Bias(m.DownBias, g.Linear(m.Down, x, m.OutSize)), "mm", "model.visual.merger.out")
}

func (l *Layer) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model, windowed bool) *graph.Node {
	d := m.HiddenSize
	qkv := g.Bias(l.QKVBias, g.Linear(l.QKV, g.RMSNorm(l.AttnNorm, x, m.Eps, 0), 3*d)) // [T, 3·heads·dim]
	part := func(i int) *graph.Node { return g.Heads(g.Slice(qkv, i*d, d), kv.Dim) }
	g.StoreKV(kv, g.RoPE("k", part(1), m.turn), part(2))
	y := g.AttentionWith(g.RoPE("q", part(0), m.turn), graph.AttentionAttr{KV: kv,
		Scale: 1 / math.Sqrt(float64(kv.Dim)), Bidirectional: true, Grouped: windowed}, nil)
	x = g.Add(x, g.Name(g.Bias(l.OBias, g.Linear(l.O, y, d)), "attn_out", "attn.out"))
	y = g.RMSNorm(l.MLPNorm, x, m.Eps, 0)
	gate := g.Bias(l.GateBias, g.Linear(l.Gate, y, m.IntermediateSize))
	up := g.Bias(l.UpBias, g.Linear(l.Up, y, m.IntermediateSize))
	down := g.Bias(l.DownBias, g.Linear(l.Down, g.GLU(m.Act, gate, up), d))
	return g.Name(g.Add(x, g.Name(down, "ffn_down", "mlp.out")), "out", "out")
}
