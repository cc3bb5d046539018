// Package apertus is the Apertus decoder.
//
// Differences from Llama: the MLP has no gate, and xIELU, whose two numbers are learned in each layer; norms of each
// head of queries and keys.
//
// Source: transformers, models/apertus/modeling_apertus.py; Apertus Team 2025, arXiv:2509.14233; Huang and Schlag
// 2024, arXiv:2411.13010. published.json: Apertus-8B-Instruct-2509.
package apertus

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
	IntermediateSize int        `json:"intermediate_size"`
	RMSNormEps       float32    `json:"rms_norm_eps"`
	Tied             bool       `json:"tie_word_embeddings"`
	AlphaP           []float64  `json:"xielu.alpha_p"` // of each layer, as the files have it, behind softplus
	AlphaN           []float64  `json:"xielu.alpha_n"`
	Beta             []float64  `json:"xielu.beta"`
	Eps              []float64  `json:"xielu.eps"`
	Rope             rope.Kinds `json:"rope_parameters"`
}

// Model is the whole decoder.
type Model struct {
	Config
	turn                graph.RoPEAttr
	family.Trunk[Layer] `gguf:"" hf:""`
}

// Layer is a decoder layer.
type Layer struct {
	AttnNorm *graph.Weight          `gguf:"attn_norm" hf:"attention_layernorm"`
	Attn     family.NormedAttention `gguf:"" hf:"self_attn"`
	MLPNorm  *graph.Weight          `gguf:"ffn_norm" hf:"feedforward_layernorm"`
	MLP      MLP                    `gguf:"" hf:"mlp"`
}

// MLP is the feed-forward part, without a gate.
type MLP struct {
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// New makes a model with unbound weights.
func New(c Config) (*Model, error) {
	for _, list := range [][]float64{c.AlphaP, c.AlphaN, c.Beta, c.Eps} {
		if len(list) != c.NumLayers {
			return nil, fmt.Errorf("%d numbers of xIELU for %d layers", len(list), c.NumLayers)
		}
	}
	for _, eps := range c.Eps {
		if math.Abs(eps+1e-6) > 1e-8 {
			return nil, fmt.Errorf("xielu.eps %v, only -1e-6 is supported", eps)
		}
	}
	turn, err := family.Turn(c.HeadDim, c.Rope.Full)
	return &Model{Config: c, turn: turn, Trunk: family.NewTrunk[Layer](c.NumLayers)}, err
}

// Forward records the pass from the step's tokens to logits [outputs, vocab].
func (m *Model) Forward(g graph.Builder) *graph.Node {
	h := g.Embed(m.Embed, m.VocabSize, m.HiddenSize, 1)
	for i := range m.Layers {
		kv := &graph.KV{Layer: i, Heads: m.NumKVHeads, Dim: m.HeadDim}
		h = m.Layers[i].forward(g.Layer(i), h, kv, m, i)
	}
	h = g.RMSNorm(m.Norm, g.Outputs(h), m.RMSNormEps, 0)
	return family.Logits(g, m.Output, m.Embed, h, m.VocabSize)
}

func (l *Layer) forward(g graph.Builder, h *graph.Node, kv *graph.KV, m *Model, i int) *graph.Node {
	h = g.Add(h, l.Attn.Forward(g, g.RMSNorm(l.AttnNorm, h, m.RMSNormEps, 0), kv, &m.Sizes, m.RMSNormEps, &m.turn))
	x := g.Linear(l.MLP.Up, g.RMSNorm(l.MLPNorm, h, m.RMSNormEps, 0), m.IntermediateSize)
	x = g.Linear(l.MLP.Down, m.activate(g, x, i), m.HiddenSize)
	return g.Name(g.Add(h, x), "out", "out")
}

// activate records xIELU as a sum: p·max(x, 0)² + n·(e^x - 1 - x, of a negative x) + beta·x.
func (m *Model) activate(g graph.Builder, x *graph.Node, i int) *graph.Node {
	p, n := softplus(m.AlphaP[i]), m.Beta[i]+softplus(m.AlphaN[i])
	y := g.Add(g.Scale(g.Act(graph.ReLUSquared, x), p), g.Scale(g.Act(graph.ExpLess, x), n))
	return g.Name(g.Add(y, g.Scale(x, m.Beta[i])), "ffn_act", "mlp.act_fn.out")
}

func softplus(x float64) float64 { return rope.Ln(1 + rope.Exp(x)) }
