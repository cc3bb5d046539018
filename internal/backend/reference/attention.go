package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
)

// keep stores the keys and values of the step's rows, in being both, or keys of which
// values are a part.
func (a *arith) keep(k *graph.KV, in [][]float64, s *backend.Step) error {
	to, err := s.Cache.(*cache).find(k)
	if err != nil {
		return err
	}
	key, val := in[0], in[len(in)-1]
	if k.Latent {
		val = nil
		for h := range len(s.Pos) * k.Heads {
			val = append(val, key[h*k.Dim:][:k.Values()]...)
		}
	}
	if f := a.class.KV; f != "" {
		key, val = slices.Clone(key), slices.Clone(val)
		f.Round(key)
		f.Round(val)
	}
	for t, p := range s.Pos {
		to.put(to.slot(s.Seqs[t], int(p)), key[t*to.width:(t+1)*to.width], val[t*to.wide:(t+1)*to.wide])
	}
	return nil
}

func (a *arith) attention(n *graph.Node, q []float64, s *backend.Step) ([]float64, error) {
	attr := n.Attr.(graph.AttentionAttr)
	c, kv, heads := s.Cache.(*cache), attr.KV, n.In[0].Shape[0]
	from, err := c.find(kv)
	if err != nil {
		return nil, err
	}
	var sinks []float64
	if len(n.W) > 0 {
		if sinks, err = a.weight(n.W[0]); err != nil {
			return nil, err
		}
	}
	d, dv := kv.Dim, kv.Values()
	y := make([]float64, len(s.Pos)*heads*dv)
	for t, p := range s.Pos {
		first, last := kv.Oldest(int(p)), attr.Newest(int(p), s.Seqs[t].Len())
		if !s.Seqs[t].Holds(from.class, first) {
			return nil, fmt.Errorf("position %d, which row %d at position %d sees, is no longer held", first, t, p)
		}
		var slots []int
		for i := first; i <= last; i++ {
			slots = append(slots, from.slot(s.Seqs[t], i))
			from.reach(slots[i-first]) // a kernel may have stored nothing
		}
		for h := range heads {
			g := h * kv.Heads / heads
			keys, values := make([][]float64, len(slots)), make([][]float64, len(slots))
			for i, slot := range slots {
				keys[i], values[i] = from.k[(slot*kv.Heads+g)*d:][:d], from.v[(slot*kv.Heads+g)*dv:][:dv]
			}
			sink := math.Inf(-1)
			if sinks != nil {
				sink = sinks[h]
			}
			a.attend(y[(t*heads+h)*dv:][:dv], q[(t*heads+h)*d:][:d], keys, values, attr, sink)
		}
	}
	return a.storeAll(y), nil
}

// attend is y = softmax(q·kᵀ·scale)·v, the sink being a score more.
func (a *arith) attend(y, q []float64, k, v [][]float64, attr graph.AttentionAttr, sink float64) {
	p, top, sum := make([]float64, len(k)), sink, 0.0
	for i := range p {
		p[i] = a.store(a.store(a.dot(q, k[i])) * attr.Scale)
		if attr.Cap > 0 {
			p[i] = a.store(attr.Cap * a.store(math.Tanh(a.store(p[i]/attr.Cap))))
		}
		top = max(top, p[i])
	}
	for i := range p {
		p[i] = a.calc(math.Exp(a.calc(p[i] - top)))
		sum = a.calc(sum + p[i])
	}
	if !math.IsInf(sink, -1) {
		sum = a.calc(sum + a.calc(math.Exp(a.calc(sink-top))))
	}
	for i := range p {
		w := a.store(p[i] / sum)
		for j, x := range v[i] {
			y[j] = a.calc(y[j] + a.calc(w*x))
		}
	}
}
