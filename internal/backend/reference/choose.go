package reference

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// choose returns the positions chosen for the queries of rows, over the keys of all positions up to each.
func (s *Spec) choose(e *Eval, rows []int) ([]float64, error) {
	if s.Attention.Store == nil {
		return nil, errNoInput
	}
	in, err := e.inputs(s.In, rows)
	if err != nil {
		return nil, err
	}
	all := upTo(slices.Max(rows) + 1)
	k, err := e.Value(e.Spec(s.Attention.Store).In[0], all)
	if err != nil {
		return nil, err
	}
	k = e.num.keep(k, s.In[0].Shape.Last(), false)
	y, q, w := []float64(nil), s.In[0].Shape.Size(), s.In[1].Shape.Size()
	first := s.Node.Attr.(graph.ChooseAttr).Index.Skip
	for t, r := range rows {
		y = s.Attention.Index.best(y, s.Node.Shape[0], in[0][t*q:][:q], in[1][t*w:][:w], k, min(first, r), r+1)
	}
	return y, nil
}

// best appends the positions from first on, before an end, that a query's heads choose by the keys of all, and then -1
// up to size.
func (x *Index) best(y []float64, size int, q, weights, keys []float64, first, end int) []float64 {
	dim := len(q) / len(weights)
	scores := make([]float64, end-first) // from the last position on: of equal scores the later is the better
	for i := range scores {
		key := keys[(end-1-i)*dim:][:dim]
		for h, w := range weights {
			product := 0.0
			for j, v := range q[h*dim:][:dim] {
				product += v * key[j]
			}
			if x.Even {
				w = 1
			}
			if x.Linear || !(product <= 0) {
				scores[i] += w * product
			}
		}
	}
	chosen := falling(scores)
	chosen = chosen[:min(len(chosen), x.K, size)]
	slices.Sort(chosen)
	for i := len(chosen) - 1; i >= 0; i-- {
		y = append(y, float64(end-1-chosen[i]))
	}
	for range size - len(chosen) {
		y = append(y, -1)
	}
	return y
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// falling returns the numbers of s's elements from the largest on.
func falling(s []float64) []int {
	order := upTo(len(s))
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
