package reference

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// route gives, for each row, k pairs of an expert's index and its weight.
// Equal scores go to the lower index; a NaN counts as the lowest score.
func (a *arith) route(n *graph.Node, scores []float64) ([]float64, error) {
	attr, _ := n.Attr.(graph.RouteAttr)
	count := n.In[0].Shape.Size()
	of, bias, err := a.routeWeights(n)
	if err != nil {
		return nil, err
	}
	y := make([]float64, 0, len(scores)/count*n.Shape.Size())
	for r := 0; r < len(scores); r += count {
		s := scores[r : r+count]
		p := a.weigh(attr.Weigh, s)
		by := s // the choice's score: p rises with it
		if bias != nil || attr.Best > 1 {
			by = slices.Clone(p)
			for i, b := range bias {
				by[i] = a.calc(by[i] + b)
			}
		}
		chosen := a.choose(by, attr)[:n.Shape[0]]
		for i, w := range a.weights(s, p, chosen, attr) {
			if of != nil {
				w *= of[chosen[i]]
			}
			y = append(y, float64(chosen[i]), a.store(w))
		}
	}
	return y, nil
}

// routeWeights are a Route's scale by expert and its bias, nil where there is none.
func (a *arith) routeWeights(n *graph.Node) (of, bias []float64, err error) {
	scale, b := n.RouteWeights()
	if scale != nil {
		of, err = a.weight(scale)
	}
	if b != nil && err == nil {
		bias, err = a.weight(b)
	}
	return of, bias, err
}

// weigh is what weights are made of: a function of each score.
func (a *arith) weigh(by graph.Weigh, s []float64) []float64 {
	switch by {
	case graph.SigmoidEach:
		p := make([]float64, len(s))
		for i, v := range s {
			p[i] = a.calc(sigmoid(v))
		}
		return p
	case graph.SoftmaxAll:
		return a.softmax(s)
	}
	return s
}

// softmax is that of s.
func (a *arith) softmax(s []float64) []float64 {
	p, top, sum := make([]float64, len(s)), s[0], 0.0
	for _, v := range s {
		top = max(top, v)
	}
	for i, v := range s {
		p[i] = a.calc(math.Exp(v - top))
		sum = a.calc(sum + p[i])
	}
	for i := range p {
		p[i] = a.calc(p[i] / sum)
	}
	return p
}

// weights are those of the chosen experts, p being what weigh made of the scores s.
func (a *arith) weights(s, p []float64, chosen []int, attr graph.RouteAttr) []float64 {
	w, sum := make([]float64, len(chosen)), 0.0
	for i, e := range chosen {
		w[i] = p[e]
		sum = a.calc(sum + w[i])
	}
	switch {
	case attr.Weigh == graph.SoftmaxChosen:
		w = a.softmax(w)
	case attr.Normalize:
		sum = a.calc(sum + attr.Eps)
		for i := range w {
			w[i] = a.calc(w[i] / sum)
		}
	}
	if attr.Factor != 0 {
		for i := range w {
			w[i] = a.calc(w[i] * attr.Factor)
		}
	}
	return w
}

// choose is the experts by falling s, those of groups that are not kept at the end.
func (a *arith) choose(s []float64, attr graph.RouteAttr) []int {
	if attr.Groups <= 1 {
		return falling(s)
	}
	size := len(s) / attr.Groups
	sums := make([]float64, attr.Groups)
	for g := range sums {
		group := s[g*size : (g+1)*size]
		for _, e := range falling(group)[:max(attr.Best, 1)] {
			sums[g] = a.calc(sums[g] + group[e])
		}
	}
	kept := falling(sums)[:attr.Kept]
	order := falling(s)
	slices.SortStableFunc(order, func(i, j int) int {
		in, jn := slices.Contains(kept, i/size), slices.Contains(kept, j/size)
		switch {
		case in && !jn:
			return -1
		case jn && !in:
			return 1
		}
		return 0
	})
	return order
}

// falling is the numbers of s's elements from the largest on.
func falling(s []float64) []int {
	order := make([]int, len(s))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case s[i] > s[j] || s[j] != s[j] && s[i] == s[i]:
			return -1
		case s[j] > s[i] || s[i] != s[i] && s[j] == s[j]:
			return 1
		}
		return 0
	})
	return order
}
