package mistake

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// seenHypotheses leave something out of attention's scores and masks.
func seenHypotheses(n *graph.Node, a graph.AttentionAttr) []*Hypothesis {
	var all []*Hypothesis
	if len(n.W) > 0 {
		all = append(all, edit("attention_sink", n, "leaves out the sinks", detail{"sinks": "none"}, func(s *reference.Spec) { s.Sinks = nil }))
	}
	if a.Cap != 0 {
		all = append(all, edit("attention_cap", n, fmt.Sprintf("does not cap the scores at %.6g", a.Cap), detail{"cap": "none", "right": a.Cap}, func(s *reference.Spec) { s.Cap = 0 }))
	}
	if a.Bidirectional {
		all = append(all, edit("mask", n, "hides later positions, which the model sees", detail{"mask": "causal"}, func(s *reference.Spec) { s.Ahead = 0 }))
		if a.KV.Window > 0 {
			all = append(all, edit("mask", n, "lets queries see all later positions, not those of the window alone", detail{"mask": "window of earlier ones"}, func(s *reference.Spec) { s.Ahead = 1 << 30 }))
		}
	}
	if a.KV.Latent && a.KV.Values() < a.KV.Dim {
		all = append(all, edit("latent_part", n, fmt.Sprintf("takes the last %d elements of keys for the values, not the first", a.KV.Values()), detail{"part": "last"}, func(s *reference.Spec) { s.Tail = true }))
	}
	if a.KV.Chunked {
		all = append(all, edit("chunk_missing", n, "sees all earlier positions, without chunks", detail{"chunk": "none", "right": float64(a.KV.Window)}, func(s *reference.Spec) { s.Chunk = 0 }),
			edit("chunk_missing", n, fmt.Sprintf("sees the last %d positions, not its own chunk of that length", a.KV.Window), detail{"chunk": "window", "right": float64(a.KV.Window)},
				func(s *reference.Spec) { s.Chunk, s.Window = 0, a.KV.Window }))
	}
	return all
}

// limitHypotheses leave out a limit, a factor or an offset of gate and up before they meet.
func limitHypotheses(n *graph.Node, a graph.ActAttr) []*Hypothesis {
	var all []*Hypothesis
	without := func(what string, value float64, change reference.Edit) {
		if value != 0 {
			all = append(all, edit("activation_limit", n, fmt.Sprintf("leaves out the %s of %.6g", what, value), detail{"without": what, "right": value}, change))
		}
	}
	without("limit", a.Limit, func(s *reference.Spec) { s.Limits.Limit = 0 })
	without("alpha", a.Alpha, func(s *reference.Spec) { s.Limits.Alpha = 0 })
	without("plus", a.Plus, func(s *reference.Spec) { s.Limits.Plus = 0 })
	if a.Limit != 0 && a.Alpha != 0 && a.Plus != 0 {
		all = append(all, edit("activation_limit", n, "multiplies act(gate) and up as they are", detail{"without": "all"}, func(s *reference.Spec) { s.Limits = graph.ActAttr{} }))
	}
	return all
}

// formHypotheses returns hypotheses about how experts are made.
func formHypotheses(n *graph.Node, a graph.ExpertsAttr) []*Hypothesis {
	var all []*Hypothesis
	if a.Biased {
		all = append(all, edit("bias_missing", n, "leaves out the experts' biases", detail{}, func(s *reference.Spec) { s.Experts.Biased = false }))
	}
	switch a.Form {
	case graph.Interleaved:
		all = append(all, edit("gate_up_layout", n, "reads gate and up as halves of a weight that interleaves their rows", detail{"layout": "halves"}, func(s *reference.Spec) { s.Experts.Form = graph.Fused }))
	case graph.Fused:
		all = append(all, edit("gate_up_layout", n, "reads gate and up from alternate rows instead of halves", detail{"layout": "interleaved"}, func(s *reference.Spec) { s.Experts.Form = graph.Interleaved }))
	}
	side := "what an expert gives"
	if !a.OnInput {
		side = "what an expert reads"
	}
	return append(all, edit("expert_input", n, "multiplies "+side+" by its weight", detail{"weight": side}, func(s *reference.Spec) { s.Experts.OnInput = !a.OnInput }))
}

// ruleHypotheses returns other rules of a Route than a's.
func ruleHypotheses(n *graph.Node, a graph.RouteAttr) []*Hypothesis {
	var all []*Hypothesis
	other := func(cause, computed string, d detail, change func(a *graph.RouteAttr)) {
		b := a
		change(&b)
		all = append(all, edit(cause, n, computed, d, func(s *reference.Spec) {
			b := b
			b.Biased = b.Biased && s.Route.Biased // another hypothesis may have taken the bias
			s.Route = b
		}))
	}
	if a.Factor != 0 && a.Factor != 1 {
		other("router_factor", fmt.Sprintf("leaves out the factor of %.6g", a.Factor), detail{"factor": 1.0, "right": a.Factor}, func(b *graph.RouteAttr) { b.Factor = 0 })
	}
	if a.Normalize && a.Eps > 0 {
		other("router_eps", fmt.Sprintf("divides the weights by their sum, without %.6g", a.Eps), detail{"eps": 0.0, "right": a.Eps}, func(b *graph.RouteAttr) { b.Eps = 0 })
	}
	if a.Groups > 1 {
		other("router_groups", "chooses among all experts, without groups", detail{"groups": 1.0, "right": float64(a.Groups)}, func(b *graph.RouteAttr) { b.Groups, b.Kept, b.Best = 0, 0, 0 })
		if a.Best > 1 {
			other("router_groups", "ranks a group by its best expert alone", detail{"best": 1.0, "right": float64(a.Best)}, func(b *graph.RouteAttr) { b.Best = 0 })
		}
	}
	if a.Biased {
		all = append(all, edit("router_bias", n, "chooses without the bias", detail{"bias": "none"}, func(s *reference.Spec) {
			if s.Route.Biased { // another hypothesis may have taken it
				s.Route.Biased, s.W = false, s.W[:len(s.W)-1]
			}
		}),
			edit("router_bias", n, "adds the bias to the weights, too", detail{"bias": "in weights"}, func(s *reference.Spec) { s.BiasWeighs = true }))
	}
	switch {
	case a.Weigh == graph.SoftmaxChosen:
		return all // routeHypotheses has its others
	case a.Normalize:
		other("router_norm", "does not divide the chosen weights by their sum", detail{"normalize": false}, func(b *graph.RouteAttr) { b.Normalize = false })
	default:
		other("router_norm", "divides the chosen weights by their sum", detail{"normalize": true}, func(b *graph.RouteAttr) { b.Normalize = true })
	}
	for _, w := range []graph.Weigh{graph.SoftmaxAll, graph.SigmoidEach} {
		if w != a.Weigh {
			other("router_softmax", fmt.Sprintf("makes weights by %v, not by %v", w, a.Weigh), detail{"over": w.String()}, func(b *graph.RouteAttr) { b.Weigh = w })
			sum := map[bool]string{true: "does not divide them by their sum", false: "divides them by their sum"}[a.Normalize]
			other("router_softmax", fmt.Sprintf("makes weights by %v, not by %v, and %s", w, a.Weigh, sum), detail{"over": w.String(), "normalize": !a.Normalize}, func(b *graph.RouteAttr) { b.Weigh, b.Normalize = w, !a.Normalize })
		}
	}
	all = append(all, edit("router_softmax", n, "takes the softmax of the chosen probabilities", detail{"over": "probabilities"}, func(s *reference.Spec) { s.Reweigh = softmaxOfProbabilities(cmp.Or(a.Factor, 1)) }))
	for fewer := 1; fewer < n.Shape[0]; fewer++ {
		all = append(all, edit("router_topk", n, fmt.Sprintf("chooses %d experts, not %d", fewer, n.Shape[0]), detail{"k": float64(fewer), "right": float64(n.Shape[0])}, func(s *reference.Spec) { s.Reweigh = fewerExperts(fewer, a) }))
	}
	if a.Weigh == graph.SigmoidEach { // of a softmax of all scores it is router_norm
		other("router_softmax", "takes the softmax of the chosen scores", detail{"over": "chosen"}, func(b *graph.RouteAttr) { b.Weigh = graph.SoftmaxChosen })
	}
	return all
}

// moreExperts returns numbers of chosen experts that are larger than the model's: what reads the choice runs more of
// them.
func (p *Proposer) moreExperts(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	k, count := n.Shape[0], n.In[0].Shape.Size()
	for _, more := range []int{k + 1, k + 2, 2 * k, 4, 8} {
		if more <= k || more > count || slices.ContainsFunc(all, func(h *Hypothesis) bool { return h.Detail["k"] == float64(more) }) {
			continue
		}
		h := &Hypothesis{Cause: "router_topk", Node: n, Computed: fmt.Sprintf("chooses %d experts, not %d", more, k), Detail: detail{"k": float64(more), "right": float64(k)}, Edits: reference.Edits{}}
		for _, x := range p.Readers(n) {
			if x.Op == graph.Experts {
				h.Edits[x] = []reference.Edit{func(s *reference.Spec) { s.Chosen = more }}
			}
		}
		if len(h.Edits) > 0 {
			all = append(all, h)
		}
	}
	return all
}

// softmaxOfProbabilities weighs what a Route has chosen by the softmax of the scores' softmax.
func softmaxOfProbabilities(factor float64) func(scores, routes []float64) {
	return func(scores, routes []float64) {
		p := slices.Clone(scores)
		reference.Softmax(p)
		var chosen []float64
		for i := 0; i < len(routes); i += 2 {
			chosen = append(chosen, p[int(routes[i])])
		}
		reference.Softmax(chosen)
		for i, w := range chosen {
			routes[2*i+1] = factor * w
		}
	}
}

// fewerExperts takes the last ones of a Route's choices, which come in order, out of the sum.
func fewerExperts(fewer int, a graph.RouteAttr) func(scores, routes []float64) {
	return func(_, routes []float64) {
		all, sum := 0.0, 0.0
		for i := 1; i < len(routes); i += 2 {
			if all += routes[i]; i < 2*fewer {
				sum += routes[i]
			} else {
				routes[i] = 0
			}
		}
		for i := 1; a.Normalize && i < 2*fewer; i += 2 {
			routes[i] *= all / sum
		}
	}
}
