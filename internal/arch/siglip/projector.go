package siglip

import (
	"errors"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
)

// Averaged is the tower of Gemma 3: patches become fewer by means, and are normed before the projection.
// (models/gemma3/modeling_gemma3.py)
type Averaged struct {
	Config
	Encoder    `gguf:"v" hf:"model.vision_tower"`
	SoftNorm   *graph.Weight `gguf:"mm.soft_emb_norm" hf:"model.multi_modal_projector.mm_soft_emb_norm"`
	Projection *graph.Weight `gguf:"mm.input_projection" hf:"model.multi_modal_projector.mm_input_projection_weight"`
}

// NewAveraged makes a model with unbound weights.
func NewAveraged(c Config) (m *Averaged, err error) {
	m = &Averaged{Config: c}
	if m.Encoder, err = m.encoder(); err == nil && (family.Root(c.Tokens) < 1 || c.side()%family.Root(c.Tokens) != 0) {
		err = errors.New("mm_tokens_per_image is no square, or its side no divisor of the patches of a side")
	}
	return m, err
}

// Sight implements family.Eye.
func (m *Averaged) Sight() family.Sight {
	return family.Sight{Patch: m.PatchSize, Side: m.side() / family.Root(m.Tokens)}
}

// Forward records the pass from patches to rows of the text's width.
func (m *Averaged) Forward(g graph.Builder) *graph.Node {
	side := m.Sight().Side
	x := m.forward(g, "model.vision_tower", graph.Lookup, &m.Config)
	x = g.RMSNorm(m.SoftNorm, g.Fold(graph.Mean, side*side, x), m.Eps, 1)
	return g.Name(g.Linear(m.Projection.Turned(), x, m.OutSize), "mm", "model.multi_modal_projector.out")
}

// Shuffled is the tower of SmolVLM and Idefics 3: a block's patches lie side by side in a row.
// (models/smolvlm/modeling_smolvlm.py)
type Shuffled struct {
	Config
	Encoder    `gguf:"v" hf:"model.vision_model"`
	Projection *graph.Weight `gguf:"mm.model.fc" hf:"model.connector.modality_projection.proj"`
}

// NewShuffled makes a model with unbound weights.
func NewShuffled(c Config) (m *Shuffled, err error) {
	m = &Shuffled{Config: c}
	m.Encoder, err = m.encoder()
	return m, err
}

// Sight implements family.Eye.
func (m *Shuffled) Sight() family.Sight { return family.Sight{Patch: m.PatchSize, Side: m.Merge} }

// Forward records the pass from patches to rows of the text's width.
func (m *Shuffled) Forward(g graph.Builder) *graph.Node {
	x := g.Fold(graph.Joined, m.Merge*m.Merge, m.forward(g, "model.vision_model", graph.Lookup, &m.Config))
	return g.Name(g.Linear(m.Projection, x, m.OutSize), "mm", "model.connector.out")
}

// Resized is the tower of LFM2 VL: SigLIP 2 with places resized for each tile, and a block's patches side by side.
// (models/lfm2_vl/modeling_lfm2_vl.py)
type Resized struct {
	Config
	Encoder   `gguf:"v" hf:"model.vision_tower"`
	Projector `gguf:"mm" hf:"model.multi_modal_projector"`
}

// Projector is an MLP behind a norm.
type Projector struct {
	Norm     *graph.Weight `gguf:"input_norm" hf:"layer_norm" if:"projector_use_layernorm"`
	NormBias *graph.Weight `gguf:"input_norm.bias" hf:"layer_norm.bias" if:"projector_use_layernorm"`
	Up       *graph.Weight `gguf:"1" hf:"linear_1"`
	UpBias   *graph.Weight `gguf:"1.bias" hf:"linear_1.bias" if:"projector_bias"`
	Down     *graph.Weight `gguf:"2" hf:"linear_2"`
	DownBias *graph.Weight `gguf:"2.bias" hf:"linear_2.bias" if:"projector_bias"`
}

// NewResized makes a model with unbound weights.
func NewResized(c Config) (m *Resized, err error) {
	m = &Resized{Config: c}
	m.Encoder, err = m.encoder()
	return m, err
}

// Sight implements family.Eye.
func (m *Resized) Sight() family.Sight { return family.Sight{Patch: m.PatchSize, Side: m.Merge} }

// Forward records the pass from patches to rows of the text's width.
func (m *Resized) Forward(g graph.Builder) *graph.Node {
	x := g.Fold(graph.Joined, m.Merge*m.Merge, m.forward(g, "model.vision_tower", graph.Area, &m.Config))
	p := &m.Projector
	if m.HasNorm {
		x = g.LayerNorm(p.Norm, p.NormBias, x, 1e-5) // LayerNorm's own
	}
	x = g.Linear(p.Up, x, m.Width)
	if m.HasBias {
		x = g.Bias(p.UpBias, x)
	}
	if x = g.Linear(p.Down, g.Act(m.Between, x), m.OutSize); m.HasBias {
		x = g.Bias(p.DownBias, x)
	}
	return g.Name(x, "mm", "model.multi_modal_projector.out")
}
