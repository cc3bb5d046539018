package sim

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/graph"
)

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
	kv := s.Store.Attr.(*graph.KV)
	v := s.latent(k, kv)
	if !kv.Latent {
		if v, err = e.Value(store.In[1], all); err != nil {
			return nil, err
		}
	}
	heads, dim, wide := s.In[0].Shape[0], s.In[0].Shape[1], s.Node.Shape.Size()/s.In[0].Shape[0]
	width := s.Store.Shape.Size() // of a position's keys
	k, v = e.num.kv(k), e.num.kv(v)
	if s.Again != nil {
		k, v, width = s.Again(k), s.Again(v), s.Width
	}
	sinks, err := s.sinks(heads)
	if err != nil {
		return nil, err
	}
	y := make([]float64, len(rows)*heads*wide)
	for t, r := range rows {
		from, to := s.seen(e, r, last)
		k, v := k, v
		if s.Only != nil {
			k, v = s.Only(e, k, v, [2]int{width, width / dim * wide}, r)
		}
		for h := range heads {
			at, g := t*heads+h, s.Group(h)
			stride := width / dim * wide // of a position's values
			s.attend(e, y[at*wide:(at+1)*wide], q[at*dim:(at+1)*dim], k[from*width+g*dim:], v[from*stride+g*wide:], width, stride, to-from+1, sinks[h],
				func(i int) bool { return s.Hides != nil && s.Hides(e, r, from+i) })
		}
	}
	e.num.store(y)
	return y, nil
}

// seen is the positions from and to that the query at r sees, of those up to last.
func (s *Spec) seen(e *Eval, r, last int) (from, to int) {
	from, to = 0, min(r+s.Ahead, last)
	if s.Window > 0 {
		from = max(0, r-s.Window+1)
	}
	if s.Chunk > 0 {
		from = r - r%s.Chunk
	}
	if s.Until != nil {
		to = min(to, s.Until(e, r))
	}
	if s.First != nil {
		from = max(from, s.First(e, r))
	}
	to = max(to, from) // a query that would see nothing sees the first
	return from, to
}

// latent is the values that are the first elements of keys, or the last.
func (s *Spec) latent(k []float64, kv *graph.KV) []float64 {
	from := 0
	if s.Tail {
		from = kv.Dim - kv.Values()
	}
	var v []float64
	for ; kv.Latent && len(k) > 0; k = k[kv.Dim:] {
		v = append(v, k[from:from+kv.Values()]...)
	}
	return v
}

// sinks is a score by head that is there besides, -Inf for none.
func (s *Spec) sinks(heads int) ([]float64, error) {
	if s.Sinks != nil {
		return Vector(s.Sinks)
	}
	return slices.Repeat([]float64{math.Inf(-1)}, heads), nil
}

// attend is one head's result y over those of n keys and values, width and stride apart, that are not hidden.
func (s *Spec) attend(e *Eval, y, q, k, v []float64, width, stride, n int, sink float64, hidden func(i int) bool) {
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
		e.num.softmax(p, sink)
	}
	e.num.store(p)
	for i, w := range p {
		for j, x := range v[i*stride:][:len(y)] {
			y[j] = e.num.sum(y[j] + w*x)
		}
	}
}

// Softmax turns scores to weights that sum to 1.
func Softmax(p []float64) { (*Numerics)(nil).softmax(p, math.Inf(-1)) }

// softmax is Softmax beside a score more, whose weight goes to nobody.
func (n *Numerics) softmax(p []float64, sink float64) {
	top, sum := sink, 0.0
	for _, x := range p {
		top = max(top, x)
	}
	for i, x := range p {
		p[i] = math.Exp(x - top)
		sum = n.sum(sum + p[i])
	}
	if !math.IsInf(sink, -1) {
		sum = n.sum(sum + math.Exp(sink-top))
	}
	for i := range p {
		p[i] /= sum
	}
}
