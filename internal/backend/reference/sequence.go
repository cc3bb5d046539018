package reference

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// across reports whether n reads rows of its inputs before the one that it computes.
func across(n *graph.Node) bool {
	return n.Op == graph.Attention || n.Op == graph.Pool || n.State != nil
}

// scan is rows of a node with a state. It runs from position 0 on, or from First.
func (s *Spec) scan(e *Eval, rows []int) ([]float64, error) {
	last := slices.Max(rows)
	all := make([]int, last+1)
	for i := range all {
		all[i] = i
	}
	in := make([][]float64, len(s.In))
	for i, x := range s.In {
		var err error
		if in[i], err = e.Value(x, all); err != nil {
			return nil, err
		}
	}
	n, d := *s.Node, s.Node.Shape.Size()
	n.W = s.W
	run := func(first, to int) ([]float64, error) {
		part := make([][]float64, len(in))
		for i, x := range in {
			size := s.In[i].Shape.Size()
			part[i] = x[first*size : to*size]
		}
		return compute(&n, part)
	}
	y := make([]float64, 0, len(rows)*d)
	made := map[int][]float64{} // by first row
	for _, r := range rows {
		first := 0
		if s.First != nil {
			first = min(max(s.First(e, r), 0), r)
		}
		if made[first] == nil {
			to := last + 1
			for i := first; s.First != nil && i <= last; i++ {
				if s.First(e, i) > first {
					to = i
					break
				}
			}
			var err error
			if made[first], err = run(first, max(to, r+1)); err != nil {
				return nil, err
			}
		}
		y = append(y, made[first][(r-first)*d:(r-first+1)*d]...)
	}
	e.num.store(y)
	return y, nil
}

// pool is, for each row, what the rows up to it make.
func (s *Spec) pool(e *Eval, rows []int) ([]float64, error) {
	d := s.Node.Shape.Size()
	y := make([]float64, 0, len(rows)*d)
	for _, r := range rows {
		var sum []float64
		to := 0
		if s.Pooling == graph.Mean {
			to = r
		}
		for i := range to + 1 {
			x, err := e.Value(s.In[0], []int{i})
			if err != nil {
				return nil, err
			}
			if sum == nil {
				sum = x
				continue
			}
			for j, v := range x {
				sum[j] = e.num.sum(sum[j] + v)
			}
		}
		for j := range sum {
			sum[j] /= float64(to + 1)
		}
		y = append(y, sum...)
	}
	e.num.store(y)
	return y, nil
}
