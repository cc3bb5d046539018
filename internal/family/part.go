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

// Routed is the gated experts of a mixture, each weight a stack.
type Routed struct {
	Gate *graph.Weight `gguf:"ffn_gate_exps" hf:"gate_proj"`
	Up   *graph.Weight `gguf:"ffn_up_exps" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down_exps" hf:"down_proj"`
}

// Forward records the experts of a route, of n with size features between.
func (e *Routed) Forward(g graph.Builder, x, route *graph.Node, act graph.Activation, n, size int) *graph.Node {
	a := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: act}, Form: graph.Apart}
	y := g.ExpertsWith(a, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, n, size)
	return g.Name(y, "ffn_experts", "mlp.experts.out")
}

// Shared is the MLP of all tokens beside experts.
type Shared struct {
	Gate *graph.Weight `gguf:"ffn_gate_shexp" hf:"gate_proj"`
	Up   *graph.Weight `gguf:"ffn_up_shexp" hf:"up_proj"`
	Down *graph.Weight `gguf:"ffn_down_shexp" hf:"down_proj"`
}

// Forward records what MLP's does, by the name of PyTorch's module.
func (s *Shared) Forward(g graph.Builder, module string, x *graph.Node, act graph.Activation, size,
	hidden int) *graph.Node {
	gate := g.Name(g.Linear(s.Gate, x, size), "ffn_gate_shexp", module+".gate_proj.out")
	up := g.Name(g.Linear(s.Up, x, size), "ffn_up_shexp", module+".up_proj.out")
	return g.Name(g.Linear(s.Down, g.GLU(act, gate, up), hidden), "ffn_down_shexp", module+".down_proj.out")
}
