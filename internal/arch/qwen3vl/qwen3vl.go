// Package qwen3vl is the tower of Qwen 3 VL, and of Qwen 3.5 without its features for the text's first layers.
//
// A still picture is doubled in time, so that a patch has two equal times. Places are learned for a square and
// interpolated between its corners; queries and keys turn by row and column. Four patches become a row. The outputs of
// some layers become rows as well, for the outputs of the text's first layers (deepstack).
//
// Source: transformers 5.17, models/qwen3_vl/modeling_qwen3_vl.py; Bai et al. 2025, arXiv:2511.21631.
package qwen3vl

import (
	"errors"
	"fmt"
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
	Positions        int              `json:"num_position_embeddings"`
	Merge            int              `json:"spatial_merge_size"`
	OutSize          int              `json:"out_hidden_size"`
	DeepLayers       []int            `json:"deepstack_visual_indexes"`
	Theta            float64          `json:"rope_theta"`
	Eps              float32          `json:"layer_norm_eps"`
	Act              graph.Activation `json:"hidden_act"`
}

// Model is the tower.
type Model struct {
	Config
	turn      graph.RoPEAttr
	Patch     *graph.Weight `gguf:"v.patch_embd" hf:"model.visual.patch_embed.proj"`
	PatchBias *graph.Weight `gguf:"v.patch_embd.bias" hf:"model.visual.patch_embed.proj.bias"`
	Places    *graph.Weight `gguf:"v.position_embd" hf:"model.visual.pos_embed"`
	Layers    []Layer       `gguf:"v.blk" hf:"model.visual.blocks"`
	Norm      *graph.Weight `gguf:"v.post_ln" hf:"model.visual.merger.norm"`
	NormBias  *graph.Weight `gguf:"v.post_ln.bias" hf:"model.visual.merger.norm.bias"`
	Up        *graph.Weight `gguf:"mm.0" hf:"model.visual.merger.linear_fc1"`
	UpBias    *graph.Weight `gguf:"mm.0.bias" hf:"model.visual.merger.linear_fc1.bias"`
	Down      *graph.Weight `gguf:"mm.2" hf:"model.visual.merger.linear_fc2"`
	DownBias  *graph.Weight `gguf:"mm.2.bias" hf:"model.visual.merger.linear_fc2.bias"`
	Deep      []Merger      `gguf:"v.deepstack" hf:"model.visual.deepstack_merger_list"`
}

// Layer is a layer of the tower.
type Layer struct {
	Norm1    *graph.Weight `gguf:"ln1" hf:"norm1"`
	Bias1    *graph.Weight `gguf:"ln1.bias" hf:"norm1.bias"`
	QKV      *graph.Weight `gguf:"attn_qkv" hf:"attn.qkv"`
	QKVBias  *graph.Weight `gguf:"attn_qkv.bias" hf:"attn.qkv.bias"`
	O        *graph.Weight `gguf:"attn_out" hf:"attn.proj"`
	OBias    *graph.Weight `gguf:"attn_out.bias" hf:"attn.proj.bias"`
	Norm2    *graph.Weight `gguf:"ln2" hf:"norm2"`
	Bias2    *graph.Weight `gguf:"ln2.bias" hf:"norm2.bias"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"mlp.linear_fc1"`
	UpBias   *graph.Weight `gguf:"ffn_up.bias" hf:"mlp.linear_fc1.bias"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"mlp.linear_fc2"`
	DownBias *graph.Weight `gguf:"ffn_down.bias" hf:"mlp.linear_fc2.bias"`
}

// Merger makes rows of a layer's output.
type Merger struct {
	Norm     *graph.Weight `gguf:"norm" hf:"norm"`
	NormBias *graph.Weight `gguf:"norm.bias" hf:"norm.bias"`
	Up       *graph.Weight `gguf:"fc1" hf:"linear_fc1"`
	UpBias   *graph.Weight `gguf:"fc1.bias" hf:"linear_fc1.bias"`
	Down     *graph.Weight `gguf:"fc2" hf:"linear_fc2"`
	DownBias *graph.Weight `gguf:"fc2.bias" hf:"linear_fc2.bias"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.HiddenSize%(4*c.NumHeads) != 0 {
		return nil, errors.New("the hidden size is no multiple of four times the number of heads")
	}
	if family.Root(c.Positions) < 1 || len(c.DeepLayers) > c.NumLayers || !slices.IsSorted(c.DeepLayers) ||
		len(slices.Compact(slices.Clone(c.DeepLayers))) < len(c.DeepLayers) ||
		len(c.DeepLayers) > 0 && (c.DeepLayers[0] < 0 || c.DeepLayers[len(c.DeepLayers)-1] >= c.NumLayers) {
		return nil, errors.New("num_position_embeddings is no square, or deepstack_visual_indexes no layers in order")
	}
	dim := c.HiddenSize / c.NumHeads
	freqs := rope.New(c.Theta, dim/2)
	return &Model{Config: c, Layers: make([]Layer, c.NumLayers), Deep: make([]Merger, len(c.DeepLayers)),
		turn: graph.RoPEAttr{Freqs: slices.Concat(freqs, freqs), Sections: [3]int{0, dim / 4, dim / 4}}}, nil
}

// Sight implements family.Eye.
func (m *Model) Sight() family.Sight { return family.Sight{Patch: m.PatchSize, Side: m.Merge} }

// Forward records the pass from patches to rows of the text's width, the features for its first layers behind.
func (m *Model) Forward(g graph.Builder) *graph.Node {
	x := g.Linear(m.Patch.Flat(m.HiddenSize), g.Patches(3*m.Times*m.PatchSize*m.PatchSize), m.HiddenSize)
	x = g.Name(g.Bias(m.PatchBias, x), "v.patch_embd", "model.visual.patch_embed.out")
	side := family.Root(m.Positions)
	places := g.Interpolate(m.Places, graph.PlaceAttr{Rule: graph.Corners, Height: side, Width: side}, m.HiddenSize)
	x = g.Name(g.Add(x, places), "v.inp", "")
	kv := &graph.KV{Heads: m.NumHeads, Dim: m.HiddenSize / m.NumHeads}
	var deep []*graph.Node
	for i := range m.Layers {
		x = m.Layers[i].forward(g.Block("v.blk", "model.visual.blocks", i), x, kv, m)
		if at := slices.Index(m.DeepLayers, i); at >= 0 {
			y := m.Deep[at].forward(g, x, m)
			deep = append(deep, g.Name(y, fmt.Sprintf("v.deepstack.%d", at),
				fmt.Sprintf("model.visual.deepstack_merger_list.%d.out", at)))
		}
	}
	x = g.Fold(graph.Joined, m.Merge*m.Merge, g.LayerNorm(m.Norm, m.NormBias, x, m.Eps))
	x = g.Act(graph.GELUErf, g.Bias(m.UpBias, g.Linear(m.Up, x, x.Shape.Size())))
	x = g.Name(g.Bias(m.DownBias, g.Linear(m.Down, x, m.OutSize)), "mm", "model.visual.merger.out")
	for _, y := range deep {
		x = g.Concat(x, y)
	}
	return x
}

func (l *Layer) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	d := m.HiddenSize
	qkv := g.Bias(l.QKVBias, g.Linear(l.QKV, g.LayerNorm(l.Norm1, l.Bias1, x, m.Eps), 3*d)) // [T, 3·heads·dim]
	part := func(i int) *graph.Node { return g.Heads(g.Slice(qkv, i*d, d), kv.Dim) }
	g.StoreKV(kv, g.RoPE("k", part(1), m.turn), part(2))
	y := g.AttentionWith(g.RoPE("q", part(0), m.turn),
		graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(kv.Dim)), Bidirectional: true}, nil)
	x = g.Add(x, g.Name(g.Bias(l.OBias, g.Linear(l.O, y, d)), "attn_out", "attn.out"))
	up := g.Bias(l.UpBias, g.Linear(l.Up, g.LayerNorm(l.Norm2, l.Bias2, x, m.Eps), m.IntermediateSize))
	down := g.Name(g.Bias(l.DownBias, g.Linear(l.Down, g.Act(m.Act, up), d)), "ffn_down", "mlp.out")
	return g.Name(g.Add(x, down), "out", "out")
}

func (p *Merger) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	x = g.LayerNorm(p.Norm, p.NormBias, g.Fold(graph.Joined, m.Merge*m.Merge, x), m.Eps)
	x = g.Act(graph.GELUErf, g.Bias(p.UpBias, g.Linear(p.Up, x, x.Shape.Size())))
	return g.Bias(p.DownBias, g.Linear(p.Down, x, m.OutSize))
}
