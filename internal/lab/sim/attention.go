package sim

import "math"

// Attend is softmax(q·kᵀ·scale)·v for the queries of rows, over the keys and
// values of all positions that each sees.
func (s *Spec) Attend(e *Eval, rows []int) ([]float64, error) {
	if s.Store == nil {
		return nil, errNoInput
	}
	q, err := e.Value(s.In[0], rows)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, r := range rows {
		last = max(last, r, min(r+s.Ahead, len(e.ids)-1))
	}
	all := make([]int, last+1)
	for i := range all {
		all[i] = i
	}
	store := e.Spec(s.Store)
	k, err := e.Value(store.In[0], all)
	if err != nil {
		return nil, err
	}
	v, err := e.Value(store.In[1], all)
	if err != nil {
		return nil, err
	}
	heads, dim := s.In[0].Shape[0], s.In[0].Shape[1]
	width := s.Store.Shape.Size() // of a position's keys
	k, v = e.num.kv(k), e.num.kv(v)
	if s.Again != nil {
		k, v, width = s.Again(k), s.Again(v), s.Width
	}
	y := make([]float64, len(q))
	for t, r := range rows {
		from, to := 0, min(r+s.Ahead, last)
		if s.Window > 0 {
			from = max(0, r-s.Window+1)
		}
		if s.Until != nil {
			to = min(to, s.Until(e, r))
		}
		if s.First != nil {
			from = max(from, s.First(e, r))
		}
		to = max(to, from) // a query that would see nothing sees the first
		k, v := k, v
		if s.Only != nil {
			k, v = s.Only(e, k, v, width, r)
		}
		for h := range heads {
			at := (t*heads + h) * dim
			g := s.Group(h) * dim
			s.attend(e, y[at:at+dim], q[at:at+dim], k[from*width+g:], v[from*width+g:], width, to-from+1, func(i int) bool { return s.Hides != nil && s.Hides(e, r, from+i) })
		}
	}
	e.num.store(y)
	return y, nil
}

// attend is one head's result y over those of n keys and values, width apart, that are not hidden.
func (s *Spec) attend(e *Eval, y, q, k, v []float64, width, n int, hidden func(i int) bool) {
	p := make([]float64, n)
	for i := range p {
		p[i] = e.num.dot(q, k[i*width:][:len(q)])
	}
	e.num.store(p)
	for i := range p {
		p[i] *= s.Scale
		if s.Cap > 0 {
			p[i] = s.Cap * math.Tanh(p[i]/s.Cap)
		}
		if hidden(i) {
			p[i] = math.Inf(-1)
		}
	}
	e.num.store(p)
	if s.Soft != nil {
		s.Soft(p)
	} else {
		e.num.softmax(p)
	}
	e.num.store(p)
	for i, w := range p {
		for j, x := range v[i*width:][:len(q)] {
			y[j] = e.num.sum(y[j] + w*x)
		}
	}
}

// Softmax turns scores to weights that sum to 1.
func Softmax(p []float64) { (*Numerics)(nil).softmax(p) }

func (n *Numerics) softmax(p []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, x := range p {
		top = max(top, x)
	}
	for i, x := range p {
		p[i] = math.Exp(x - top)
		sum = n.sum(sum + p[i])
	}
	for i := range p {
		p[i] /= sum
	}
}
