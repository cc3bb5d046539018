package fault

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/ref"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
)

var routeSpecs = []*spec{
	{id: "router_softmax", pick: ops(graph.Route), values: []string{"sigmoid"}, apply: func(p *plan, n *graph.Node, value string) (string, error) {
		switch value {
		case "":
			p.route(n, func(scores []float64, chosen []int) []float64 { return among(probabilities(scores), chosen) })
			return "softmax of the probabilities", nil
		case "sigmoid":
			p.route(n, sigmoids)
			return "sigmoids, divided by their sum", nil
		}
		return "", odd(value, "sigmoid")
	}},
	{id: "router_norm", pick: ops(graph.Route), apply: plain(func(p *plan, n *graph.Node) (string, error) {
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

// route makes the weights of the chosen experts by another function of all scores.
func (p *plan) route(n *graph.Node, weigh func(scores []float64, chosen []int) []float64) {
	p.kernels[n] = func(c *ref.Call) ([]float64, error) {
		scale, err := widen(n.W[0])
		if err != nil {
			return nil, err
		}
		k, count := n.Shape[0], len(scale)
		var y []float64
		for r := 0; r < len(c.In[0]); r += count {
			scores := c.In[0][r : r+count]
			chosen := best(scores)[:k]
			for i, w := range weigh(scores, chosen) {
				y = append(y, float64(chosen[i]), w*scale[chosen[i]])
			}
		}
		return y, nil
	}
}

// best are the experts by falling score, of equals the lower number first.
func best(scores []float64) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return order
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
		v.Data = make([]byte, 0, len(w.Data))
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
