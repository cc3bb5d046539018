package mistake

import (
	"fmt"
	"math"

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
	{"exp_less", reference.ExpLess},
	{"sigmoid", reference.Sigmoid},
	{"tanh", math.Tanh},
	{"identity", func(x float64) float64 { return x }},
}

// activates returns a node that activates in another way.
func activates(f func(float64) float64) reference.Edit { return func(s *reference.Spec) { s.Act = f } }

// otherActivations lists other activations.
func otherActivations(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	attr, _ := n.Activates()
	right := attr.Act.String()
	for _, a := range activations {
		if a.name != right {
			all = append(all, edit(n, "activates by "+a.name+", not by "+right,
				detail{"activation": a.name, "right": right}, activates(a.f)))
		}
	}
	return all
}

// otherConstants lists other constants in GELU by tanh: digits exchanged, lost, or the root before it rounded.
func otherConstants(_ *Proposer, n *graph.Node) []*Hypothesis {
	if attr, _ := n.Activates(); attr.Act != graph.GELUTanh {
		return nil
	}
	const cubic = 0.044715
	root := math.Sqrt(2 / math.Pi)
	wrong := func(of string, right float64, guesses []float64, gelu func(c, x float64) float64) *Hypothesis {
		return unlikely(0.2, fitting(n, Fit{Right: right, Least: right / 4, Most: right * 4, Guesses: guesses,
			Make: func(v float64) *Hypothesis {
				return edit(n, fmt.Sprintf("computes GELU with %s %.5g, not %.5g", of, v, right),
					detail{"constant": v, "right": right},
					activates(func(x float64) float64 { return x / 2 * (1 + math.Tanh(gelu(v, x))) }))
			}}))
	}
	return []*Hypothesis{
		wrong("the constant", cubic, []float64{0.047415, 0.044175, 0.04475, 0.0447, 0.44715, 0.0044715},
			func(c, x float64) float64 { return root * (x + c*x*x*x) }),
		wrong("the factor", root, []float64{2 / math.Pi, math.Sqrt(1 / math.Pi), math.Sqrt(math.Pi / 2), 0.8},
			func(c, x float64) float64 { return c * (x + cubic*x*x*x) }),
	}
}

// swappedGates lists gates and ups that are exchanged: in the operation, in the weights of products, or where the
// activation and the product are nodes of their own.
func swappedGates(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	const computed = "activates the second factor, not the gate"
	switch n.Op {
	case graph.GLU:
		if len(n.In) == 2 {
			all = append(all, edit(n, computed, detail{},
				func(s *reference.Spec) { s.In = []*graph.Node{n.In[1], n.In[0]} }))
		}
	case graph.Experts:
		if n.Attr.(graph.ExpertsAttr).Form != graph.Ungated {
			all = append(all, edit(n, "takes the halves of the experts' fused weight in the other order", detail{},
				func(s *reference.Spec) { s.Experts.Swapped = true }))
		}
	case graph.Linear:
		for _, x := range p.g.Nodes {
			if x.Op == graph.Linear && n.Layer >= 0 && x.Layer == n.Layer && isPair(n, x) && alikeWeights(x, n) {
				all = append(all, edit(n, "multiplies by the weight of "+Role(x), detail{}, hasWeights(x)))
			}
		}
	case graph.Act:
		for _, x := range p.Readers(n) {
			if x.Op == graph.Mul && len(x.In) == 2 && x.In[0] == n {
				return []*Hypothesis{edited(n, computed, detail{},
					reference.Edits{n: {reads(0, x.In[1])}, x: {reads(1, n.In[0])}})}
			}
		}
	}
	return all
}

// lostLimits lists gates and ups without their limit, factor or offset.
func lostLimits(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	a, _ := n.Activates()
	lost := func(what string, value float64, change func(a *graph.ActAttr)) {
		if value != 0 {
			all = append(all, edit(n, fmt.Sprintf("leaves out the %s of %.6g", what, value),
				detail{"without": what, "right": value}, func(s *reference.Spec) { change(&s.Limits) }))
		}
	}
	lost("limit", a.Limit, func(a *graph.ActAttr) { a.Limit = 0 })
	lost("alpha", a.Alpha, func(a *graph.ActAttr) { a.Alpha = 0 })
	lost("plus", a.Plus, func(a *graph.ActAttr) { a.Plus = 0 })
	if len(all) == 3 {
		all = append(all, edit(n, "multiplies act(gate) and up as they are", detail{"without": "all"},
			func(s *reference.Spec) { s.Limits = graph.ActAttr{} }))
	}
	return all
}

// lostGates lists products of two values that are a single value.
func lostGates(_ *Proposer, n *graph.Node) []*Hypothesis {
	if len(n.W) > 0 {
		return nil
	}
	return []*Hypothesis{edit(n, "passes on the first factor alone", detail{"lost": "second"}, passes(0)),
		edit(n, "passes on the second factor alone", detail{"lost": "first"}, passes(1))}
}
