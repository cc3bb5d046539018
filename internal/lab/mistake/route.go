package mistake

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// weigh makes weights of a row's scores for the chosen experts, in their order; scale is by expert.
type weigh = func(scores []float64, chosen []int, scale []float64) []float64

// isPlain reports whether a Route weighs the chosen experts by the softmax of their scores, with nothing besides.
func isPlain(n *graph.Node) bool {
	a := n.Attr.(graph.RouteAttr)
	return a.Weigh == graph.SoftmaxChosen && !a.Biased && a.Groups <= 1
}

// weighs returns a Route with other weights of the experts chosen.
func weighs(n *graph.Node, computed string, d detail, by weigh) *Hypothesis {
	return edit(n, computed, d, weighed(by))
}

// weighed gives the experts that a Route has chosen other weights.
func weighed(by weigh) reference.Edit {
	return after(func(e *reference.Eval, s *reference.Spec, at int, row []float64) error {
		scores, err := e.Value(s.In[0], []int{at})
		if err != nil {
			return err
		}
		n, scale := *s.Node, slices.Repeat([]float64{1}, len(scores))
		n.W, n.Attr = s.W, s.Route.Rule // of which another mistake may have taken the bias
		if w, _ := n.RouteWeights(); w != nil {
			if scale, err = reference.Vector(w); err != nil {
				return err
			}
		}
		var chosen []int
		for i := 0; i < len(row); i += 2 {
			chosen = append(chosen, int(row[i]))
		}
		for i, w := range by(scores, chosen, scale) {
			row[2*i+1] = w
		}
		return nil
	})
}

// lowest makes a Route choose the experts with the lowest scores.
func lowest(s *reference.Spec) {
	ofInputs(func(e *reference.Eval, s *reference.Spec, _ []int, in [][]float64) ([]float64, error) {
		for i, v := range in[0] {
			in[0][i] = -v
		}
		return s.RouteBy(e, in[0])
	})(s)
	weighed(among)(s)
}

// ruled returns a Route by another rule.
func ruled(n *graph.Node, computed string, d detail, change func(a *graph.RouteAttr)) *Hypothesis {
	b := n.Attr.(graph.RouteAttr)
	change(&b)
	return edit(n, computed, d, func(s *reference.Spec) {
		b := b
		b.Biased = b.Biased && s.Route.Rule.Biased // another hypothesis may have taken the bias
		s.Route.Rule = b
	})
}

// otherNormalizations lists routes whose weights are divided by their sum, or are not.
func otherNormalizations(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	if n.Op != graph.Route {
		return lostNorms("router_norm")(p, n)
	}
	a := n.Attr.(graph.RouteAttr)
	if isPlain(n) {
		all = append(all, weighs(n, "takes the softmax over all experts, and does not renormalize those chosen",
			detail{"over": "all"}, func(x []float64, order []int, scale []float64) []float64 {
				return pick(softmax(x), order, scale)
			}))
	}
	if a.Weigh == graph.SoftmaxChosen {
		return all
	}
	computed := "divides the chosen weights by their sum"
	if a.Normalize {
		computed = "does not divide the chosen weights by their sum"
	}
	if a.Weigh == graph.SparseMixer { // by no sum
		return all
	}
	return append(all, ruled(n, computed, detail{"normalize": !a.Normalize},
		func(b *graph.RouteAttr) { b.Normalize = !a.Normalize }))
}

// otherWeights lists routes whose weights are made of the scores by another function.
func otherWeights(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	a := n.Attr.(graph.RouteAttr)
	if n.In[0].Shape.Size() == 1 {
		return nil // any function of one score, normalized, is 1: that is router_norm
	}
	if isPlain(n) {
		all = []*Hypothesis{
			weighs(n, "takes the sigmoid of each score", detail{"over": "sigmoid"},
				func(x []float64, order []int, scale []float64) []float64 { return pick(sigmoids(x), order, scale) }),
			weighs(n, "divides the sigmoids of the chosen experts by their sum", detail{"over": "sigmoids"},
				func(x []float64, order []int, scale []float64) []float64 {
					p, sum := sigmoids(x), 0.0
					for _, i := range order {
						sum += p[i]
					}
					for i := range p {
						p[i] /= sum
					}
					return pick(p, order, scale)
				}),
			weighs(n, "takes the softmax of probabilities", detail{"over": "probabilities"},
				func(x []float64, order []int, scale []float64) []float64 {
					return among(softmax(x), order, scale)
				}),
			weighs(n, "weighs the experts by the scores themselves", detail{"over": "none"}, pick),
			weighs(n, "weighs all chosen experts alike", detail{"over": "uniform"},
				func(x []float64, order []int, scale []float64) []float64 {
					return pick(slices.Repeat([]float64{1 / float64(len(order))}, len(x)), order, scale)
				}),
		}
	}
	if a.Weigh == graph.SoftmaxChosen {
		return all
	}
	sum := map[bool]string{true: "does not divide them by their sum", false: "divides them by their sum"}[a.Normalize]
	for _, w := range []graph.Weigh{graph.SoftmaxAll, graph.SigmoidEach} {
		if w != a.Weigh {
			computed := fmt.Sprintf("makes weights by %v, not by %v", w, a.Weigh)
			all = append(all, ruled(n, computed, detail{"over": w.String()}, func(b *graph.RouteAttr) { b.Weigh = w }),
				ruled(n, computed+", and "+sum, detail{"over": w.String(), "normalize": !a.Normalize},
					func(b *graph.RouteAttr) { b.Weigh, b.Normalize = w, !a.Normalize }))
		}
	}
	all = append(all, weighs(n, "takes the softmax of the chosen probabilities", detail{"over": "probabilities"},
		func(x []float64, order []int, _ []float64) []float64 {
			return among(softmax(x), order, slices.Repeat([]float64{cmp.Or(a.Factor, 1)}, len(x)))
		}))
	if a.Weigh == graph.SparseMixer {
		all = append(all, ruled(n, "takes the softmax over all experts left for each choice", detail{"over": "left"},
			func(b *graph.RouteAttr) { b.Near = 1e30 }))
	}
	if a.Weigh != graph.SoftmaxAll { // of a softmax of all scores it is router_norm
		all = append(all, ruled(n, "takes the softmax of the chosen scores", detail{"over": "chosen"},
			func(b *graph.RouteAttr) { b.Weigh = graph.SoftmaxChosen }))
	}
	return all
}

// lostScales lists routes without the experts' own scales.
func lostScales(n *graph.Node) []*Hypothesis {
	if !isPlain(n) {
		return nil
	}
	return []*Hypothesis{weighs(n, "leaves out the experts' own scales", detail{"weight": "one"},
		func(x []float64, order []int, _ []float64) []float64 {
			return among(x, order, slices.Repeat([]float64{1}, len(x)))
		})}
}

// otherCounts lists other numbers of experts for a row: fewer, more, which what reads the choice runs, and the same
// number of those with the lowest scores.
func otherCounts(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	a, k, count := n.Attr.(graph.RouteAttr), n.Shape[0], n.In[0].Shape.Size()
	chosen := func(k, right int) (string, detail) {
		return fmt.Sprintf("chooses %d experts, not %d", k, right), detail{"k": float64(k), "right": float64(right)}
	}
	for fewer := 1; fewer < k; fewer++ {
		computed, d := chosen(fewer, k)
		none := make([]float64, k-fewer)
		if isPlain(n) {
			all = append(all, weighs(n, computed, d, func(x []float64, order []int, scale []float64) []float64 {
				return append(among(x, order[:fewer], scale), none...)
			}), weighs(n, fmt.Sprintf("uses %d of the %d experts chosen", fewer, k),
				detail{"used": float64(fewer), "right": float64(k)},
				func(x []float64, order []int, scale []float64) []float64 {
					return append(among(x, order, scale)[:fewer], none...)
				}))
		}
		if !isPlain(n) {
			all = append(all, edit(n, computed, d, then(fewerExperts(fewer, a))))
		}
	}
	if isPlain(n) {
		all = append(all, edit(n, "chooses the experts with the lowest scores", detail{"k": "lowest"}, lowest))
	}
	tried := []int{k}
	for _, more := range []int{k + 1, k + 2, 2 * k, 4, 8} {
		if more <= k || more > count || slices.Contains(tried, more) {
			continue
		}
		tried = append(tried, more)
		computed, d := chosen(more, k)
		h := edited(n, computed, d, reference.Edits{})
		for _, x := range p.Readers(n) {
			if x.Op == graph.Experts {
				h.Edits[x] = []reference.Edit{func(s *reference.Spec) {
					s.Experts.Routes = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
						return e.Spec(s.In[1]).Choose(e, rows, more)
					}
				}}
			}
		}
		if len(h.Edits) > 0 {
			all = append(all, h)
		}
	}
	return all
}

// lostFactors lists routes without the factor of their weights.
func lostFactors(_ *Proposer, n *graph.Node) []*Hypothesis {
	right := n.Attr.(graph.RouteAttr).Factor
	if right == 0 || right == 1 {
		return nil
	}
	return []*Hypothesis{ruled(n, fmt.Sprintf("leaves out the factor of %.6g", right),
		detail{"factor": 1.0, "right": right}, func(b *graph.RouteAttr) { b.Factor = 0 })}
}

// lostEpsilons lists routes without the epsilon of their sum.
func lostEpsilons(_ *Proposer, n *graph.Node) []*Hypothesis {
	a := n.Attr.(graph.RouteAttr)
	if !a.Normalize || a.Eps <= 0 {
		return nil
	}
	return []*Hypothesis{ruled(n, fmt.Sprintf("divides the weights by their sum, without %.6g", a.Eps),
		detail{"eps": 0.0, "right": a.Eps}, func(b *graph.RouteAttr) { b.Eps = 0 })}
}

// otherExpertGroups lists routes without groups, or with groups ranked in another way.
func otherExpertGroups(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	a := n.Attr.(graph.RouteAttr)
	if a.Groups <= 1 {
		return nil
	}
	all = append(all, ruled(n, "chooses among all experts, without groups",
		detail{"groups": 1.0, "right": float64(a.Groups)},
		func(b *graph.RouteAttr) { b.Groups, b.Kept, b.Best = 0, 0, 0 }),
		edit(n, "gives experts of dropped groups the score 0, not minus infinity", detail{"groups": "zero"},
			func(s *reference.Spec) { s.Route.Zeroed = true }))
	if a.Best > 1 {
		all = append(all, ruled(n, "ranks a group by its best expert alone",
			detail{"best": 1.0, "right": float64(a.Best)}, func(b *graph.RouteAttr) { b.Best = 0 }))
	}
	return all
}

// otherBiases lists routes whose bias does not choose, or weighs as well.
func otherBiases(_ *Proposer, n *graph.Node) []*Hypothesis {
	if !n.Attr.(graph.RouteAttr).Biased {
		return nil
	}
	return []*Hypothesis{edit(n, "chooses without the bias", detail{"bias": "none"}, func(s *reference.Spec) {
		if s.Route.Rule.Biased { // another hypothesis may have taken the bias
			s.Route.Rule.Biased, s.W = false, s.W[:len(s.W)-1]
		}
	}), edit(n, "adds the bias to the weights, too", detail{"bias": "in weights"},
		func(s *reference.Spec) { s.Route.BiasWeighs = true })}
}

// fewerExperts takes the last ones of a Route's choices, which come in order, out of the sum.
func fewerExperts(fewer int, a graph.RouteAttr) func(routes []float64) {
	return func(routes []float64) {
		all, sum := 0.0, 0.0
		for i := 1; i < len(routes); i += 2 {
			if all += routes[i]; i < 2*fewer {
				sum += routes[i]
			} else {
				routes[i] = 0
			}
		}
		for i := 1; (a.Normalize || a.Weigh == graph.SoftmaxChosen) && i < 2*fewer; i += 2 {
			routes[i] *= all / sum
		}
	}
}

func softmax(x []float64) []float64 {
	p := slices.Clone(x)
	reference.Softmax(p)
	return p
}

func sigmoids(x []float64) []float64 {
	p := slices.Clone(x)
	for i, v := range p {
		p[i] = 1 / (1 + math.Exp(-v))
	}
	return p
}

// pick returns each chosen expert's p, scaled.
func pick(p []float64, order []int, scale []float64) []float64 {
	var out []float64
	for _, i := range order {
		out = append(out, p[i]*scale[i])
	}
	return out
}

// among returns the softmax of the chosen experts' scores among each other, scaled.
func among(x []float64, order []int, scale []float64) []float64 {
	var p []float64
	for _, i := range order {
		p = append(p, x[i])
	}
	reference.Softmax(p)
	for j, i := range order {
		p[j] *= scale[i]
	}
	return p
}
