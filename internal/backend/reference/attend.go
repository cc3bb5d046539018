package reference

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/simd"
)

// Attend returns softmax(q·kᵀ·scale)·v for the queries of rows, over the keys and values of all positions seen by each.
func (s *Spec) Attend(e *Eval, rows []int) ([]float64, error) {
	set := &s.Attention
	if set.Store == nil {
		return nil, errNoInput
	}
	q, err := e.Value(s.In[0], rows)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, r := range rows {
		_, newest := set.sight(e, r, len(e.ids)-1)
		last = max(last, r, newest)
	}
	all := upTo(last + 1)
	store := e.Spec(set.Store)
	k, err := e.Value(store.In[0], all)
	if err != nil {
		return nil, err
	}
	kv := set.Store.Attr.(*graph.KV)
	v := set.latent(k, kv)
	if !kv.Latent {
		if v, err = e.Value(store.In[1], all); err != nil {
			return nil, err
		}
	}
	k, v = e.num.keep(k, kv.Dim, false), e.num.keep(v, kv.Values(), true)
	count, heads, size := len(all), s.In[0].Shape[0], s.In[0].Shape.Size()
	a := attending{s: s, e: e}
	if a.sinks, err = set.sinks(e, heads); err != nil {
		return nil, err
	}
	in := [][]float64{q}
	if len(s.In) > 1 {
		if q, err = e.Value(s.In[1], rows); err != nil {
			return nil, err
		}
		in, q = append(in, q), in[0]
	}
	y := make([]float64, 0, len(rows)*s.Node.Shape.Size())
	for t, r := range rows {
		older := hasOlder(e.num, kv)
		if set.Read != nil || t == 0 || older && backend.RecentPage(r) != backend.RecentPage(rows[t-1]) {
			keys, values := k, v
			if older {
				keys, values = e.num.older(kv, k, v, 0, r)
			}
			if set.Read != nil {
				keys, values = set.Read(e, keys, values, count, r)
			}
			a.keys, a.v, a.stride = e.num.keys(keys, len(keys)/count, s.In[0].Shape[1]), values, len(values)/count
		}
		from, to := s.seen(e, r, last)
		a.chosen = chosenOf(s.Node, in, t)
		y = append(y, a.row(q[t*size:(t+1)*size], r, from, to)...)
	}
	e.num.store(y)
	return y, nil
}

// attending is attention over keys and values in memory.
type attending struct {
	s      *Spec
	e      *Eval
	keys   *headKeys
	v      []float64    // rows of values
	stride int          // length of a row of values
	first  int          // position of the first key
	sinks  []float64    // by head
	chosen map[int]bool // the positions seen; nil for all
}

// row returns the result of the query q at a position, over the positions from and to.
func (a attending) row(q []float64, at, from, to int) []float64 {
	s, dim := a.s, a.s.In[0].Shape[1]
	wide := s.Node.Shape.Size() / s.In[0].Shape[0]
	y := make([]float64, s.Node.Shape.Size())
	for h := range s.In[0].Shape[0] {
		p, g := make([]float64, to-from+1), s.Attention.Group(h)
		a.keys.scores(p, q[h*dim:(h+1)*dim], g, from-a.first)
		for i := range p {
			if a.chosen != nil && !a.chosen[from+i] {
				p[i] = math.Inf(-1)
			}
		}
		s.Attention.weigh(a.e, p, a.sinks[h], at, from)
		a.e.num.combine(y[h*wide:(h+1)*wide], p, a.v[(from-a.first)*a.stride+g*wide:], a.stride)
	}
	return y
}

// chosenOf returns the positions chosen for the t-th row, nil where attention sees all.
func chosenOf(n *graph.Node, in [][]float64, t int) map[int]bool {
	if len(in) < 2 {
		return nil
	}
	k, seen := n.In[1].Shape.Size(), map[int]bool{}
	for _, p := range in[1][t*k:][:k] {
		seen[int(p)] = true
	}
	return seen
}

// headKeys are the keys of all positions, head after head, each [T, dim].
type headKeys struct {
	*Numerics
	dim    int
	wide   [][]float64
	narrow [][]float32 // in place of wide where sums are float32
}

// keys returns k, rows of a width, by head.
func (n *Numerics) keys(k []float64, width, dim int) *headKeys {
	all := &headKeys{Numerics: n, dim: dim}
	for g := range width / dim {
		head := k
		if width > dim {
			head = make([]float64, 0, len(k)/width*dim)
			for at := g * dim; at+dim <= len(k); at += width {
				head = append(head, k[at:at+dim]...)
			}
		}
		if n.exact() {
			all.wide = append(all.wide, head)
		} else {
			all.narrow = append(all.narrow, narrow(head))
		}
	}
	return all
}

// scores sets p to the products of q with the keys of head g from a position on.
func (k *headKeys) scores(p, q []float64, g, from int) {
	from, to := from*k.dim, (from+len(p))*k.dim
	if k.exact() {
		simd.DotsF64(p, 1, k.wide[g][from:to], q, k.dim)
	} else {
		k.dots(p, 1, narrow(q), k.narrow[g][from:to], k.dim)
	}
}

// seen returns the positions from and to for the query at r, up to last.
func (s *Spec) seen(e *Eval, r, last int) (from, to int) {
	from, to = s.Attention.sight(e, r, last)
	if s.Seen != nil {
		from, to = s.Seen(e, r, from, to)
	}
	return from, max(to, from) // no query sees nothing
}

// sight returns the positions from and to for the query at r, up to last, without edits of them.
func (s *Attention) sight(e *Eval, r, last int) (from, to int) {
	from, to = min(s.Skip, r), min(r+s.Ahead, last)
	if s.Window > 0 {
		from = max(0, r-s.Window+1)
	}
	if s.Chunk > 0 {
		from = r - r%s.Chunk
	}
	if s.Grouped && r < len(e.groups) && e.groups[r].End > 0 {
		if to = min(int(e.groups[r].End)-1, last); s.Apart {
			from = int(e.groups[r].First)
		}
	}
	return from, to
}

// latent returns the values among the elements of keys: the first, or the last.
func (s *Attention) latent(k []float64, kv *graph.KV) []float64 {
	switch {
	case !kv.Latent:
		return nil
	case s.Tail:
		return parts(k, kv.Dim, kv.Dim-kv.Values(), kv.Values())
	}
	return parts(k, kv.Dim, 0, kv.Values())
}

// sinks returns a further score by head, -Inf for none.
func (s *Attention) sinks(e *Eval, heads int) ([]float64, error) {
	if s.Sinks != nil {
		return e.vector(s.Sinks)
	}
	return slices.Repeat([]float64{math.Inf(-1)}, heads), nil
}

// weigh makes weights of the scores of the query at r with the keys from a position on.
func (s *Attention) weigh(e *Eval, p []float64, sink float64, r, from int) {
	e.num.store(p)
	for i := range p {
		p[i] *= s.Scale
		if s.Cap > 0 {
			p[i] = s.Cap * math.Tanh(p[i]/s.Cap)
		}
		if s.Hides != nil && s.Hides(e, r, from+i) {
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
}

// combine adds rows of v, a stride apart, to y by the weights p.
func (n *Numerics) combine(y, p, v []float64, stride int) {
	exact := n.exact()
	for i, w := range p {
		for j, x := range v[i*stride:][:len(y)] {
			if y[j] += float64(w * x); !exact {
				y[j] = float64(float32(y[j]))
			}
		}
	}
}

// Softmax turns scores to weights with a sum of 1.
func Softmax(p []float64) { (*Numerics)(nil).softmax(p, math.Inf(-1)) }

// softmax computes Softmax beside a further score, the sink, without a weight in the result.
func (n *Numerics) softmax(p []float64, sink float64) {
	top, sum := sink, 0.0
	for _, x := range p {
		top = max(top, x)
	}
	for i, x := range p {
		p[i] = math.Exp(x - top)
		sum = n.round(sum + p[i])
	}
	if !math.IsInf(sink, -1) {
		sum = n.round(sum + math.Exp(sink-top))
	}
	for i := range p {
		p[i] /= sum
	}
}
