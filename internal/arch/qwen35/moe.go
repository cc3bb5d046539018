package qwen35

import "github.com/karat-run/karat/internal/graph"

// MoE is the mixture of experts, with a shared expert for all tokens, scored by SharedScore [1, in].
type MoE struct {
	Router      *graph.Weight `gguf:"ffn_gate_inp" hf:"gate"`
	Gate        *graph.Weight `gguf:"ffn_gate_exps" hf:"experts.gate_proj"`
	Up          *graph.Weight `gguf:"ffn_up_exps" hf:"experts.up_proj"`
	Down        *graph.Weight `gguf:"ffn_down_exps" hf:"experts.down_proj"`
	SharedScore *graph.Weight `gguf:"ffn_gate_inp_shexp" hf:"shared_expert_gate"`
	SharedGate  *graph.Weight `gguf:"ffn_gate_shexp" hf:"shared_expert.gate_proj"`
	SharedUp    *graph.Weight `gguf:"ffn_up_shexp" hf:"shared_expert.up_proj"`
	SharedDown  *graph.Weight `gguf:"ffn_down_shexp" hf:"shared_expert.down_proj"`
}

func (e *MoE) forward(g graph.Builder, x *graph.Node, m *Model) *graph.Node {
	scores := g.Linear(e.Router, x, m.NumExperts) // [T, experts]
	route := g.RouteWith(scores, m.TopK, graph.RouteAttr{Weigh: graph.SoftmaxAll, Normalize: true}, nil, nil)
	experts := graph.ExpertsAttr{ActAttr: graph.ActAttr{Act: m.Act}, Form: graph.Apart}
	y := g.ExpertsWith(experts, []*graph.Weight{e.Gate, e.Up, e.Down}, nil, x, route, m.NumExperts, m.ExpertSize)
	y = g.Name(y, "ffn_experts", "mlp.experts.out")
	own := g.RouteWith(g.Linear(e.SharedScore, x, 1), 1, graph.RouteAttr{Weigh: graph.SigmoidEach}, nil, nil)
	shared := []*graph.Weight{single(e.SharedGate), single(e.SharedUp), single(e.SharedDown)}
	weighed := g.Name(g.ExpertsWith(experts, shared, nil, x, own, 1, m.SharedSize), "ffn_shexp",
		"mlp.shared_expert.weighed")
	y = g.Add(y, weighed)
	return g.Name(y, "ffn_out", "mlp.out")
}

// single returns w as the weight of a single expert, for a route to weigh the output.
func single(w *graph.Weight) *graph.Weight {
	one := *w
	if len(w.Shape) == 2 {
		one.Shape = append([]int{1}, w.Shape...)
	}
	return &one
}
