package reference

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// route returns k pairs of an expert's index and its weight for each row of scores, by the node's weights w. The rows
// are positions, nil where they do not matter. Equal scores go to the lower index; a NaN counts as the lowest score.
func (s *Spec) route(e *Eval, scores []float64, rows []int, num *Numerics) ([]float64, error) {
	n := *s.Node
	n.W, n.Attr = s.W, s.Route.Rule
	scale, bias, err := e.routeWeights(&n)
	if err != nil {
		return nil, err
	}
	count, k := n.In[0].Shape.Size(), n.Shape[0]
	y := make([]float64, 0, len(scores)/count*n.Shape.Size())
	for i := range len(scores) / count {
		row := scores[i*count : (i+1)*count]
		p := num.weighed(s.Route.Rule.Weigh, row)
		order, at := num.choose(ranked(num, s.Route.Rule, row, p, bias), s.Route), len(y)
		if s.Route.Leans != nil && rows != nil {
			moved := slices.Clone(row)
			s.Route.Leans(rows[i], order, moved)
			order = num.choose(ranked(num, s.Route.Rule, moved, num.weighed(s.Route.Rule.Weigh, moved), bias), s.Route)
		}
		chosen := order[:k]
		for i, w := range num.weights(p, chosen, s.Route.Rule) {
			if scale != nil {
				w *= scale[chosen[i]]
			}
			y = append(y, float64(chosen[i]), w)
			num.store(y[len(y)-1:])
		}
		for i := at; s.Route.BiasWeighs && bias != nil && i < len(y); i += 2 {
			y[i+1] += bias[int(y[i])]
		}
	}
	return y, nil
}

// ranked returns the numbers by which experts are chosen: p, the result of weighed, rises with the scores.
func ranked(num *Numerics, rule graph.RouteAttr, scores, p, bias []float64) []float64 {
	hasTies := num != nil && num.Ties
	if !hasTies && bias == nil && rule.Best <= 1 {
		return scores
	}
	by := slices.Clone(p)
	if hasTies {
		if rule.Weigh == graph.SoftmaxChosen {
			num.softmax(by, math.Inf(-1))
		}
		num.store(by)
	}
	for i, b := range bias {
		by[i] = num.round(by[i] + b)
	}
	return by
}

// routeWeights returns a Route's scale by expert and bias, nil for none.
func (m *Model) routeWeights(n *graph.Node) (scale, bias []float64, err error) {
	of, b := n.RouteWeights()
	if of != nil {
		scale, err = m.vector(of)
	}
	if b != nil && err == nil {
		bias, err = m.vector(b)
	}
	return scale, bias, err
}

// weighed returns the values behind weights: a function of each score.
func (num *Numerics) weighed(by graph.Weigh, s []float64) []float64 {
	if by != graph.SigmoidEach && by != graph.SoftmaxAll {
		return s
	}
	p := slices.Clone(s)
	if by == graph.SoftmaxAll {
		num.softmax(p, math.Inf(-1))
		return p
	}
	for i, v := range s {
		p[i] = num.round(Sigmoid(v))
	}
	return p
}

// weights returns the weights of the chosen experts, p being the result of weighed.
func (num *Numerics) weights(p []float64, chosen []int, attr graph.RouteAttr) []float64 {
	w, sum := make([]float64, len(chosen)), 0.0
	for i, e := range chosen {
		w[i] = p[e]
		sum = num.round(sum + w[i])
	}
	switch {
	case attr.Weigh == graph.SoftmaxChosen:
		num.softmax(w, math.Inf(-1))
	case attr.Weigh == graph.SparseMixer:
		for i, e := range chosen {
			w[i] = num.mix(p, chosen[:i], e, attr.Near)
		}
	case attr.Normalize:
		sum = num.round(sum + attr.Eps)
		for i := range w {
			w[i] = num.round(w[i] / sum)
		}
	}
	if attr.Factor != 0 {
		for i := range w {
			w[i] = num.round(w[i] * attr.Factor)
		}
	}
	return w
}

// mix returns the weight of expert e by graph.SparseMixer, chosen after others.
func (num *Numerics) mix(s []float64, before []int, e int, near float64) float64 {
	p := slices.Clone(s)
	for i, v := range s {
		if slices.Contains(before, i) || s[e]-v > near*max(math.Abs(v), s[e]) {
			p[i] = math.Inf(-1)
		}
	}
	num.softmax(p, math.Inf(-1))
	return p[e]
}

// choose returns the experts by falling s, the experts of dropped groups at the end.
func (num *Numerics) choose(s []float64, r Route) []int {
	attr := r.Rule
	if attr.Groups <= 1 {
		return falling(s)
	}
	size := len(s) / attr.Groups
	sums := make([]float64, attr.Groups)
	for g := range sums {
		group := s[g*size : (g+1)*size]
		for _, e := range falling(group)[:max(attr.Best, 1)] {
			sums[g] = num.round(sums[g] + group[e])
		}
	}
	kept := falling(sums)[:attr.Kept]
	if r.Zeroed {
		s = slices.Clone(s)
		for i := range s {
			if !slices.Contains(kept, i/size) {
				s[i] = 0
			}
		}
		return falling(s)
	}
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
