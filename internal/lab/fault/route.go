package fault

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
)

var routeSpecs = []*spec{
	{id: "router_softmax", pick: having(graph.Route, func(_ *plan, n *graph.Node) bool { return n.In[0].Shape.Size() > 1 }), values: []string{"sigmoid"}, apply: func(p *plan, n *graph.Node, value string) (string, error) {
		switch value {
		case "":
			if n.Shape[0] == 1 {
				return "", same("one expert is chosen: its weight of 1 is router_norm")
			}
			p.route(n, func(scores []float64, chosen []int) []float64 { return among(probabilities(scores), chosen) })
			return "softmax of the probabilities", nil
		case "sigmoid":
			if a, _ := n.Attr.(graph.RouteAttr); a.Weigh == graph.SigmoidEach {
				return "", same("weights are sigmoids: whether they are divided by their sum is router_norm")
			}
			p.route(n, sigmoids)
			return "sigmoids, divided by their sum", nil
		}
		return "", odd(value, "sigmoid")
	}},
	{id: "router_norm", pick: ops(graph.Route), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		if a, _ := n.Attr.(graph.RouteAttr); a.Weigh != graph.SoftmaxChosen {
			return routerNorm(n, a)
		}
		if n.Shape[0] == n.In[0].Shape.Size() {
			return "", same("all experts are chosen")
		}
		p.route(n, func(scores []float64, chosen []int) []float64 {
			all, w := probabilities(scores), make([]float64, len(chosen))
			for i, e := range chosen {
				w[i] = all[e]
			}
			return w
		})
		return "probabilities among all experts", nil
	})},
	{id: "router_topk", pick: ops(graph.Route), apply: routerTopK},
	{id: "expert_order", pick: ops(graph.Experts), apply: expertOrder, values: []string{"reverse"}},
}

// routerNorm divides the chosen weights by their sum, or does not, where the model has it
// the other way.
func routerNorm(n *graph.Node, a graph.RouteAttr) (string, error) {
	if n.Shape[0] == n.In[0].Shape.Size() && a.Weigh == graph.SoftmaxAll {
		return "", same("all experts are chosen")
	}
	a.Normalize = !a.Normalize
	n.Attr = a
	if a.Normalize {
		return "weights divided by their sum", nil
	}
	return "weights not divided by their sum", nil
}

// route makes the weights of the chosen experts by another function of all scores.
func (p *plan) route(n *graph.Node, weigh func(scores []float64, chosen []int) []float64) {
	p.kernels[n] = func(c *reference.Call) ([]float64, error) {
		k, count := n.Shape[0], n.In[0].Shape.Size()
		a, _ := n.Attr.(graph.RouteAttr)
		factor := cmp.Or(a.Factor, 1)
		scale := slices.Repeat([]float64{1}, count)
		if of, _ := n.RouteWeights(); of != nil {
			var err error
			if scale, err = widen(of); err != nil {
				return nil, err
			}
		}
		y, err := c.Default(n)
		if err != nil {
			return nil, err
		}
		y = slices.Clone(y)
		for r := range len(y) / (2 * k) {
			pairs, chosen := y[r*2*k:(r+1)*2*k], make([]int, k)
			for i := range chosen {
				chosen[i] = int(pairs[2*i])
			}
			for i, w := range weigh(c.In[0][r*count:(r+1)*count], chosen) {
				pairs[2*i+1] = w * factor * scale[chosen[i]]
			}
		}
		return y, nil
	}
}

func probabilities(scores []float64) []float64 {
	p := slices.Clone(scores)
	softmax(p, 0)
	return p
}

// among is the softmax of the chosen scores.
func among(scores []float64, chosen []int) []float64 {
	w := make([]float64, len(chosen))
	for i, e := range chosen {
		w[i] = scores[e]
	}
	softmax(w, 0)
	return w
}

func sigmoids(scores []float64, chosen []int) []float64 {
	w, sum := make([]float64, len(chosen)), 0.0
	for i, e := range chosen {
		w[i] = 1 / (1 + math.Exp(-scores[e]))
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

func routerTopK(_ *plan, n *graph.Node, value string) (string, error) {
	was, count := n.Shape[0], n.In[0].Shape.Size()
	usual := was - 1
	if was == 1 {
		usual = 2
	}
	k, err := number(value, float64(usual))
	switch {
	case err != nil:
		return "", err
	case k != math.Trunc(k) || k < 1 || int(k) > count:
		return "", fmt.Errorf("%g of %d experts", k, count)
	case int(k) == was:
		return "", same(fmt.Sprintf("%d are chosen", was))
	}
	n.Shape[0] = int(k)
	return fmt.Sprintf("%g experts for %d", k, was), nil
}

func expertOrder(p *plan, n *graph.Node, value string) (string, error) {
	if value != "" && value != "reverse" {
		return "", odd(value, "reverse")
	}
	for i, w := range n.W {
		count := w.Shape[0]
		if count == 1 {
			return "", same("there is one expert")
		}
		if p.dry {
			continue
		}
		v := *w
		v.Data, v.Source = make([]byte, 0, w.Size()), nil
		err := mmap.Guard(func() error {
			for e := range count {
				from := (e + 1) % count
				if value == "reverse" {
					from = count - 1 - e
				}
				v.Data = append(v.Data, w.Matrix(from).Data...)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		n.W[i] = &v
	}
	if value == "reverse" {
		return "in reverse", nil
	}
	return "expert e has the weights of e+1", nil
}
