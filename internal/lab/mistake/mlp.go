package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// activations that engines have in the place of others.
var activations = []struct {
	name string
	f    func(float64) float64
}{
	{"silu", reference.SiLU},
	{"gelu_tanh", reference.GELUTanh},
	{"gelu_erf", reference.GELUErf},
	{"gelu_quick", func(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) }},
	{"relu", func(x float64) float64 { return max(x, 0) }},
	{"relu_squared", reference.ReLUSquared},
	{"sigmoid", reference.Sigmoid},
	{"tanh", math.Tanh},
	{"identity", func(x float64) float64 { return x }},
}

func activationHypotheses(n *graph.Node) []*Hypothesis {
	attr, _ := n.Activates()
	right := attr.Act.String()
	all := append(limitHypotheses(n, attr), constantHypotheses(n, attr.Act)...)
	for _, a := range activations {
		if a.name != right {
			all = append(all, edit("activation", n, "activates by "+a.name+", not by "+right, detail{"activation": a.name, "right": right}, func(s *reference.Spec) { s.Act = a.f }))
		}
	}
	return all
}

// constantHypotheses returns other constants in GELU by tanh: digits exchanged, lost, or the root before it rounded.
func constantHypotheses(n *graph.Node, act graph.Activation) []*Hypothesis {
	if act != graph.GELUTanh {
		return nil
	}
	const cubic = 0.044715
	root := math.Sqrt(2 / math.Pi)
	wrong := func(of string, right float64, guesses []float64, gelu func(c, x float64) float64) *Hypothesis {
		return unlikely(0.2, fitting("gelu_constant", n, Fit{Right: right, Least: right / 4, Most: right * 4, Guesses: guesses, Make: func(v float64) *Hypothesis {
			return edit("gelu_constant", n, fmt.Sprintf("computes GELU with %s %.5g, not %.5g", of, v, right), detail{"constant": v, "right": right}, func(s *reference.Spec) {
				s.Act = func(x float64) float64 { return x / 2 * (1 + math.Tanh(gelu(v, x))) }
			})
		}}))
	}
	return []*Hypothesis{
		wrong("the constant", cubic, []float64{0.047415, 0.044175, 0.04475, 0.0447, 0.44715, 0.0044715}, func(c, x float64) float64 { return root * (x + c*x*x*x) }),
		wrong("the factor", root, []float64{2 / math.Pi, math.Sqrt(1 / math.Pi), math.Sqrt(math.Pi / 2), 0.8}, func(c, x float64) float64 { return c * (x + cubic*x*x*x) }),
	}
}

func gluHypotheses(n *graph.Node) []*Hypothesis {
	all := activationHypotheses(n)
	if len(n.In) == 2 {
		cause := "gate_up_swapped"
		all = append(all, edit(cause, n, "activates the second factor, not the gate", detail{}, func(s *reference.Spec) { s.In = []*graph.Node{n.In[1], n.In[0]} }))
	}
	return all
}

func (p *Proposer) expertsHypotheses(n *graph.Node) []*Hypothesis {
	attr, _ := n.Attr.(graph.ExpertsAttr)
	all := append(activationHypotheses(n), formHypotheses(n, attr)...)
	if attr.Form != graph.Ungated {
		all = append(all, edit("gate_up_swapped", n, "takes the halves of the experts' fused weight in the other order", detail{}, func(s *reference.Spec) { s.SwapHalves = true }))
	}
	count := n.W[0].Shape[0]
	for _, shift := range []int{1, count - 1} {
		all = append(all, edit("expert_order", n, fmt.Sprintf("runs expert (e + %d) mod %d for e", shift, count), detail{"order": fmt.Sprintf("+%d", shift)},
			func(s *reference.Spec) { s.Expert = func(e int) int { return (e + shift) % count } }))
	}
	all = append(all, edit("expert_order", n, "counts the experts from the last", detail{"order": "reversed"}, func(s *reference.Spec) { s.Expert = func(e int) int { return count - 1 - e } }))
	return append(append(all, p.expertWeights(n)...), exchangedExperts(n, count)...)
}

// expertWeights returns other weights than the experts' own: of other layers, zeros, and those
// whose blocks have other scales.
func (p *Proposer) expertWeights(n *graph.Node) []*Hypothesis {
	all := []*Hypothesis{unlikely(0.5, edit("weight_missing", n, "gives zeros for all experts", detail{"weight": "zero"}, func(s *reference.Spec) { s.Times = 0 }))}
	parts := expertParts(n)
	for _, x := range p.Siblings(n) {
		if !slices.EqualFunc(x.W, n.W, func(a, b *graph.Weight) bool { return slices.Equal(a.Shape, b.Shape) }) {
			continue
		}
		for _, of := range parts {
			all = append(all, unlikely(0.1*math.Abs(float64(x.Layer-n.Layer)), edit("weight_wrong_layer", n, fmt.Sprintf("takes %s from layer %d", of.what, x.Layer),
				detail{"apart": float64(x.Layer - n.Layer), "of": of.what}, func(s *reference.Spec) {
					s.W = slices.Clone(s.W)
					for _, i := range of.which {
						s.W[i] = x.W[i]
					}
				})))
		}
	}
	for _, of := range parts {
		if of.alter == nil {
			continue
		}
		scaled := func(what string, d detail, scale func(v float64) reference.Edit) *Hypothesis {
			return unlikely(0.5, fitting("weight_scale", n, Fit{Right: 1, Least: 1e-3, Most: 1e3, Guesses: []float64{0.5, 2, -1}, Make: func(v float64) *Hypothesis {
				return edit("weight_scale", n, fmt.Sprintf("takes %s %.6g times as large%s", of.what, v, what), d, scale(v))
			}}))
		}
		all = append(all, scaled("", detail{"of": of.what}, of.scale),
			scaled(" in sub-blocks 4 to 7", detail{"of": of.what, "blocks": "4 to 7"}, func(v float64) reference.Edit { return of.alter(secondHalves(v)) }),
			edit("weight_transposed", n, "reads the bytes of "+of.what+" as those of their transpose", detail{"of": of.what}, of.alter(transposed)))
	}
	return all
}

// secondHalves multiplies the second half of each Superblock.
func secondHalves(by float64) change {
	return func(w []float64, _, _ int) []float64 {
		y := slices.Clone(w)
		for at := Superblock / 2; at < len(y); at += Superblock {
			for j := range y[at:min(at+Superblock/2, len(y))] {
				y[at+j] *= by
			}
		}
		return y
	}
}

// change makes another matrix of w.
type change = func(w []float64, rows, cols int) []float64

// expertPart is some of the weights of Experts, and how they are changed; nil if no loader has them apart.
type expertPart struct {
	what  string
	which []int
	alter func(c change) reference.Edit
}

// scale multiplies what the part gives.
func (p expertPart) scale(by float64) reference.Edit {
	return func(s *reference.Spec) {
		for _, i := range p.which {
			s.Gains[i] *= by
		}
	}
}

// expertParts returns all of the weights of Experts, with their biases, and the separately stored ones.
func expertParts(n *graph.Node) []expertPart {
	matrices, _ := n.ExpertWeights()
	last := len(matrices) - 1
	every, firsts := make([]int, len(n.W)), make([]int, last)
	for i := range every {
		every[i] = i
	}
	copy(firsts, every)
	first := func(c change) reference.Edit { return func(s *reference.Spec) { s.Alter = c } }
	down := func(c change) reference.Edit { return func(s *reference.Spec) { s.AlterDown = c } }
	parts := []expertPart{{"all of the experts' weights", every, nil}}
	if last < 2 {
		return append(parts, expertPart{"the experts' first weight", firsts, first}, expertPart{"the experts' second weight", []int{last}, down})
	}
	return append(parts,
		expertPart{"the experts' gate", []int{0}, first},
		expertPart{"the experts' up", []int{1}, func(c change) reference.Edit { return func(s *reference.Spec) { s.AlterUp = c } }},
		expertPart{"the experts' gate and up", firsts, func(c change) reference.Edit { return func(s *reference.Spec) { s.Alter, s.AlterUp = c, c } }},
		expertPart{"the experts' down", []int{last}, down})
}

// exchangedExperts returns two experts in each other's place, and neighbours in each other's.
func exchangedExperts(n *graph.Node, count int) []*Hypothesis {
	all := []*Hypothesis{edit("expert_order", n, "exchanges neighbouring experts", detail{"order": "neighbours"}, func(s *reference.Spec) { s.Expert = func(e int) int { return min(e^1, count-1) } })}
	for i := range min(count, 16) {
		for j := range i {
			all = append(all, unlikely(0.2, edit("expert_order", n, fmt.Sprintf("exchanges experts %d and %d", j, i), detail{"order": fmt.Sprintf("%d<->%d", j, i)}, func(s *reference.Spec) {
				s.Expert = func(e int) int {
					switch e {
					case i:
						return j
					case j:
						return i
					}
					return e
				}
			})))
		}
	}
	return all
}

func routeHypotheses(n *graph.Node) []*Hypothesis {
	attr, _ := n.Attr.(graph.RouteAttr)
	if attr.Weigh != graph.SoftmaxChosen || attr.Biased || attr.Groups > 1 {
		return ruleHypotheses(n, attr)
	}
	k, count := n.Shape[0], n.In[0].Shape.Size()
	routed := func(cause, computed string, d detail, weigh func(scores []float64, order []int, scale []float64) []float64) *Hypothesis {
		return edit(cause, n, computed, d, chosenBy(k, 1, weigh))
	}
	all := []*Hypothesis{
		routed("router_norm", "takes the softmax over all experts, and does not renormalize those chosen", detail{"over": "all"}, func(x []float64, order []int, scale []float64) []float64 {
			p := slices.Clone(x)
			reference.Softmax(p)
			return pick(p, order, scale)
		}),
		routed("router_softmax", "takes the sigmoid of each score", detail{"over": "sigmoid"}, func(x []float64, order []int, scale []float64) []float64 {
			return pick(sigmoids(x), order, scale)
		}),
		routed("router_softmax", "divides the sigmoids of the chosen experts by their sum", detail{"over": "sigmoids"}, func(x []float64, order []int, scale []float64) []float64 {
			p, sum := sigmoids(x), 0.0
			for _, i := range order {
				sum += p[i]
			}
			for i := range p {
				p[i] /= sum
			}
			return pick(p, order, scale)
		}),
		routed("router_softmax", "takes the softmax of probabilities", detail{"over": "probabilities"}, func(x []float64, order []int, scale []float64) []float64 {
			p := slices.Clone(x)
			reference.Softmax(p)
			return among(p, order, scale)
		}),
		routed("router_softmax", "weighs the experts by the scores themselves", detail{"over": "none"}, pick),
		routed("router_softmax", "weighs all chosen experts alike", detail{"over": "uniform"}, func(x []float64, order []int, scale []float64) []float64 {
			p := make([]float64, len(x))
			for i := range p {
				p[i] = 1 / float64(k)
			}
			return pick(p, order, scale)
		}),
		routed("weight_missing", "leaves out the experts' own scales", detail{"weight": "one"}, func(x []float64, order []int, scale []float64) []float64 {
			return among(x, order, slices.Repeat([]float64{1}, count))
		}),
	}
	for fewer := 1; fewer < k; fewer++ {
		all = append(all, routed("router_topk", fmt.Sprintf("chooses %d experts, not %d", fewer, k), detail{"k": float64(fewer), "right": float64(k)}, func(x []float64, order []int, scale []float64) []float64 {
			return append(among(x, order[:fewer], scale), make([]float64, k-fewer)...)
		}), routed("router_topk", fmt.Sprintf("uses %d of the %d experts chosen", fewer, k), detail{"used": float64(fewer), "right": float64(k)}, func(x []float64, order []int, scale []float64) []float64 {
			return append(among(x, order, scale)[:fewer], make([]float64, k-fewer)...)
		}))
	}
	all = append(all, ruleHypotheses(n, attr)...)
	return append(all, edit("router_topk", n, "chooses the experts with the lowest scores", detail{"k": "lowest"}, chosenBy(k, -1, among)))
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

// chosenBy makes a Route choose the k experts with the largest sign·score, and weigh them by a function.
func chosenBy(k int, sign float64, weigh func(scores []float64, order []int, scale []float64) []float64) reference.Edit {
	return func(s *reference.Spec) {
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			return routes(e, s, rows, k, sign, weigh)
		}
	}
}

// routes returns pairs of index and weight for each row, weighed by a function of the scores
// and the k chosen: those with the largest sign·score.
func routes(e *reference.Eval, s *reference.Spec, rows []int, k int, sign float64, weigh func(scores []float64, order []int, scale []float64) []float64) ([]float64, error) {
	scores, err := e.Value(s.In[0], rows)
	if err != nil {
		return nil, err
	}
	scale := slices.Repeat([]float64{1}, s.In[0].Shape.Size())
	if len(s.W) > 0 {
		if scale, err = reference.Vector(s.W[0]); err != nil {
			return nil, err
		}
	}
	var y []float64
	for t := range rows {
		x := scores[t*len(scale) : (t+1)*len(scale)]
		order := make([]int, len(x))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case sign*x[a] > sign*x[b]:
				return -1
			case sign*x[b] > sign*x[a]:
				return 1
			}
			return 0
		})
		w := weigh(x, order[:k], scale)
		for j, i := range order[:k] {
			y = append(y, float64(i), w[j])
		}
	}
	return y, nil
}

// upActivated returns the second factor activated, not the gate, where the activation and the product are nodes.
func (p *Proposer) upActivated(n *graph.Node) []*Hypothesis {
	for _, x := range p.Readers(n) {
		if n.Op == graph.Act && x.Op == graph.Mul && len(x.In) == 2 && x.In[0] == n {
			h := edit("gate_up_swapped", n, "activates the second factor, not the gate", detail{}, reads(0, x.In[1]))
			h.Edits[x] = []reference.Edit{reads(1, n.In[0])}
			return []*Hypothesis{h}
		}
	}
	return nil
}
