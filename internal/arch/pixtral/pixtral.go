// Package pixtral is the tower of Pixtral in Mistral 3.
//
// No learned places: queries and keys turn by row and column, by turns of one list of frequencies. RMSNorm and a
// gated MLP, no biases. Four patches become a row, each feature of the four side by side.
//
// Source: transformers 5.17, models/pixtral/modeling_pixtral.py and models/mistral3/modeling_mistral3.py; Agrawal et
// al. 2024, arXiv:2410.07073.
package pixtral

import (
	"errors"
	"math"

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
	HeadDim          int              `json:"head_dim"`
	PatchSize        int              `json:"patch_size"`
	Merge            int              `json:"spatial_merge_size"`
	OutSize          int              `json:"out_hidden_size"`
	FeatureLayer     int              `json:"vision_feature_layer"`
	Theta            float64          `json:"rope_theta"`
	TextEps          float32          `json:"text_rms_norm_eps"` // of the projector's norm
	Act              graph.Activation `json:"hidden_act"`
	Between          graph.Activation `json:"projector_hidden_act"`
	Bias             bool             `json:"multimodal_projector_bias"`
}

// Model is the tower.
type Model struct {
	Config
	turn    graph.RoPEAttr
	Patch   *graph.Weight `gguf:"v.patch_embd" hf:"model.vision_tower.patch_conv"`
	PreNorm *graph.Weight `gguf:"v.pre_ln" hf:"model.vision_tower.ln_pre"`
	Layers  []Layer       `gguf:"v.blk" hf:"model.vision_tower.transformer.layers"`
	Project Projector     `gguf:"mm" hf:"model.multi_modal_projector"`
}

// Projector makes rows of the text's width.
type Projector struct {
	Norm     *graph.Weight `gguf:"input_norm" hf:"norm"`
	Merger   *graph.Weight `gguf:"patch_merger" hf:"patch_merger.merging_layer"`
	Up       *graph.Weight `gguf:"1" hf:"linear_1"`
	UpBias   *graph.Weight `gguf:"1.bias" hf:"linear_1.bias" if:"multimodal_projector_bias"`
	Down     *graph.Weight `gguf:"2" hf:"linear_2"`
	DownBias *graph.Weight `gguf:"2.bias" hf:"linear_2.bias" if:"multimodal_projector_bias"`
}

// Layer is a layer of the tower.
type Layer struct {
	AttnNorm *graph.Weight `gguf:"ln1" hf:"attention_norm"`
	Q        *graph.Weight `gguf:"attn_q" hf:"attention.q_proj"`
	K        *graph.Weight `gguf:"attn_k" hf:"attention.k_proj"`
	V        *graph.Weight `gguf:"attn_v" hf:"attention.v_proj"`
	O        *graph.Weight `gguf:"attn_out" hf:"attention.o_proj"`
	MLPNorm  *graph.Weight `gguf:"ln2" hf:"ffn_norm"`
	Gate     *graph.Weight `gguf:"ffn_gate" hf:"feed_forward.gate_proj"`
	Up       *graph.Weight `gguf:"ffn_up" hf:"feed_forward.up_proj"`
	Down     *graph.Weight `gguf:"ffn_down" hf:"feed_forward.down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	if c.HeadDim == 0 {
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	if c.HeadDim < 4 || c.HeadDim%4 != 0 || c.FeatureLayer != -1 {
		return nil, errors.New("head_dim is no multiple of four, or vision_feature_layer is not -1")
	}
	m := &Model{Config: c, Layers: make([]Layer, c.NumLayers)}
	freqs, n := rope.New(c.Theta, c.HeadDim), c.HeadDim/4
	m.turn = graph.RoPEAttr{Freqs: make([]float64, 2*n), Sections: [3]int{0, n, n}}
	for i := range n {
		m.turn.Freqs[i], m.turn.Freqs[n+i] = freqs[2*i], freqs[2*i+1]
	}
	return m, nil
}

// Sight implements family.Eye.
func (m *Model) Sight() family.Sight { return family.Sight{Patch: m.PatchSize, Side: m.Merge} }

// Forward records the pass from patches to rows of the text's width.
func (m *Model) Forward(g graph.Builder) *graph.Node {
	x := g.Linear(m.Patch.Flat(m.HiddenSize), g.Patches(3*m.PatchSize*m.PatchSize), m.HiddenSize)
	x = g.RMSNorm(m.PreNorm, x, 1e-5, 0)
	kv := &graph.KV{Heads: m.NumHeads, Dim: m.HeadDim}
	for i := range m.Layers {
		x = m.Layers[i].forward(g.Block("v.blk", "model.vision_tower.transformer.layers", i), x, kv, m)
	}
	return g.Name(m.Project.forward(g, x, m), "mm", "model.multi_modal_projector.out")
}

func (p *Projector) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	x = g.Fold(graph.Woven, m.Merge*m.Merge, g.RMSNorm(p.Norm, x, m.TextEps, 0))
	x = g.Name(g.Linear(p.Merger, x, m.HiddenSize), "mm.patch_merger", "model.multi_modal_projector.patch_merger.out")
	if x = g.Linear(p.Up, x, m.OutSize); m.Bias {
		x = g.Bias(p.UpBias, x)
	}
	if x = g.Linear(p.Down, g.Act(m.Between, x), m.OutSize); m.Bias {
		x = g.Bias(p.DownBias, x)
	}
	return x
}

func (l *Layer) forward(g graph.Builder, x *graph.Node, kv *graph.KV, m *Model) *graph.Node {
	d, y := m.HiddenSize, g.RMSNorm(l.AttnNorm, x, 1e-5, 0)
	head := func(w *graph.Weight) *graph.Node { return g.Heads(g.Linear(w, y, kv.Heads*kv.Dim), kv.Dim) }
	q := g.RoPE("q", head(l.Q), m.turn)
	g.StoreKV(kv, g.RoPE("k", head(l.K), m.turn), head(l.V))
	y = g.AttentionWith(q, graph.AttentionAttr{KV: kv, Scale: 1 / math.Sqrt(float64(kv.Dim)), Bidirectional: true}, nil)
	x = g.Add(x, g.Name(g.Linear(l.O, y, d), "attn_out", "attention.out"))
	y = g.RMSNorm(l.MLPNorm, x, 1e-5, 0)
	gate, up := g.Linear(l.Gate, y, m.IntermediateSize), g.Linear(l.Up, y, m.IntermediateSize)
	down := g.Name(g.Linear(l.Down, g.GLU(m.Act, gate, up), d), "ffn_down", "feed_forward.out")
	return g.Name(g.Add(x, down), "out", "out")
}
