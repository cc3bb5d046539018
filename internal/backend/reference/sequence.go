package reference

import (
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

// across reports whether n reads earlier rows of inputs.
func across(n *graph.Node) bool {
	return n.Op == graph.Attention || n.Op == graph.Choose || n.Op == graph.Pool || n.State != nil
}

// scan returns rows of a node with a state. The scan runs from position 0 on, or from the first position seen.
func (s *Spec) scan(e *Eval, rows []int) ([]float64, error) {
	last := slices.Max(rows)
	all := upTo(last + 1)
	in, err := e.inputs(s.In, all)
	if err != nil {
		return nil, err
	}
	n, d := *s.Node, s.Node.Shape.Size()
	n.W = s.W
	run := func(first, to int) ([]float64, error) {
		part := make([][]float64, len(in))
		for i, x := range in {
			size := s.In[i].Shape.Size()
			part[i] = x[first*size : to*size]
		}
		state := make([]float64, n.State.Size)
		return e.recur(&n, part, nil, &s.Sequence, func(int) []float64 { return state })
	}
	start := func(r int) int {
		if s.Seen == nil {
			return 0
		}
		first, _ := s.Seen(e, r, 0, r)
		return min(max(first, 0), r)
	}
	y := make([]float64, 0, len(rows)*d)
	made := map[int][]float64{} // by first row
	for _, r := range rows {
		first := start(r)
		if made[first] == nil {
			to := last + 1
			for i := first; s.Seen != nil && i <= last; i++ {
				if start(i) > first {
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

// recycle puts the recycled node's values of the rows before in place of rows of y. These come from evaluations of
// the prompt up to there, since the node itself is being computed.
func recycle(s *Spec, e *Eval, rows []int, y []float64) error {
	d, n := s.Node.Shape.Size(), s.Sequence.Recycled
	for i, at := range rows {
		if at == 0 || !s.Sequence.Recycles(e, at) {
			continue
		}
		before, m := e, e.memo[n]
		if !e.Known(n, at-1) && (at > len(m) || m[at-1] == nil) {
			m = append(m, make(values, len(e.ids)-len(m))...)
			cut := *e
			cut.ids, cut.under = e.ids[:at], nil
			before = fresh(&cut)
			before.memo[n], e.memo[n] = m, m
		}
		x, err := before.Value(n, []int{at - 1})
		if err != nil {
			return err
		}
		copy(y[i*d:(i+1)*d], x)
	}
	return nil
}

// pool returns, for each row, what Pool makes of the rows up to it: all, or as many as it counts.
func (s *Spec) pool(e *Eval, rows []int) ([]float64, error) {
	d := s.In[0].Shape.Size()
	y := make([]float64, 0, len(rows)*s.Node.Shape.Size())
	for _, r := range rows {
		first := 0
		if n := s.Pool.Count; n > 0 { // all rows of a run have the run's value
			first = r - r%n
			r = min(first+n, e.Len()) - 1
		}
		upTo := []int{first}
		for i := first + 1; i <= r && s.Pool.Pooling != graph.First; i++ {
			upTo = append(upTo, i)
		}
		x, err := e.Value(s.In[0], upTo)
		if err != nil {
			return nil, err
		}
		if x = pooled(e.num, s.Pool.Pooling, x, d); len(x) != s.Node.Shape.Size() {
			return nil, errNoInput
		}
		y = append(y, x...)
	}
	e.num.store(y)
	return y, nil
}
