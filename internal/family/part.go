package family

import "github.com/karat-run/karat/internal/graph"

// MLP is the gated feed-forward part of most families, by the names of most publishers.
type MLP struct {
	Gate *graph.Weight `gguf:"ffn_gate" hf:"gate_proj"`
	Up   *graph.Weight `gguf:"ffn_up" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down" hf:"down_proj"`
}

// Forward records down·(act(gate·x) · up·x): size features between, hidden ones behind.
func (p *MLP) Forward(g graph.Builder, x *graph.Node, act graph.Activation, size, hidden int) *graph.Node {
	gate, up := g.Linear(p.Gate, x, size), g.Linear(p.Up, x, size)
	return g.Linear(p.Down, g.GLU(act, gate, up), hidden)
}

// Linear records x·wᵀ, plus a bias where the configuration sets a bias.
func Linear(g graph.Builder, w, bias *graph.Weight, x *graph.Node, out int) *graph.Node {
	y := g.Linear(w, x, out)
	if bias == nil {
		return y
	}
	return g.Bias(bias, y)
}

// Logits records the logits of h by output, or by the embedding in models without output.
func Logits(g graph.Builder, output, embed *graph.Weight, h *graph.Node, vocab int) *graph.Node {
	if output == nil {
		return g.Name(g.Linear(embed, h, vocab), "output", "lm_head.out")
	}
	return g.Linear(output, h, vocab)
}
