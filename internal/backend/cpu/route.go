package cpu

import (
	"errors"
	"math"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/simd"
)

// router is a Route node, and its buffers of a row.
type router struct {
	graph.RouteAttr
	scale, bias []float32 // by expert; nil for none

	ids      []int     // chosen
	best     []float32 // by group: its best scores
	p, by    []float32 // of each expert: the basis of its weight, and its score in the choice
	sums     []float32 // of each group
	kept     []int     // groups
	everyone []int     // room for the best of a group
}

// newRouter returns the router of n.
func newRouter(n *graph.Node) (*router, error) {
	attr, _ := n.Attr.(graph.RouteAttr)
	k, count := n.Shape[0], n.In[0].Shape.Size()
	r := &router{RouteAttr: attr, ids: make([]int, k), best: make([]float32, k), p: make([]float32, count),
		by:   make([]float32, count),
		sums: make([]float32, attr.Groups), kept: make([]int, attr.Kept), everyone: make([]int, max(attr.Best, 1))}
	scale, bias := n.RouteWeights()
	var errs [2]error
	if scale != nil {
		r.scale, errs[0] = vector(scale)
	}
	if bias != nil {
		r.bias, errs[1] = vector(bias)
	}
	return r, errors.Join(errs[:]...)
}

// route gives each row's k best experts and their weights, as pairs. Equal
// scores go to the lower index; a NaN counts as the lowest score. Each worker has its router.
func (e *executable) route(n *graph.Node, out, scores []float32, all []*router) func() error {
	k, count := len(all[0].ids), len(all[0].p)
	body := func(worker, from, to int) error {
		for t := from; t < to; t++ {
			all[worker].row(out[t*k*2:(t+1)*k*2], scores[t*count:(t+1)*count])
		}
		return nil
	}
	return func() error { return e.b.pool.run(e.count(n), routeRows, body) }
}

// routeRows is a count of rows that a thread routes sooner than others begin.
const routeRows = 8

func (r *router) row(out, s []float32) {
	p, by := s, s
	switch r.Weigh {
	case graph.SoftmaxAll:
		p = r.p
		simd.Softmax(p, s)
	case graph.SigmoidEach:
		p = r.p
		simd.Sigmoid(p, s)
	}
	if r.bias != nil || r.Best > 1 { // else the choice's score rises with s
		by = r.by
		copy(by, p)
		if r.bias != nil {
			simd.Add(by, by, r.bias)
		}
	}
	r.choose(by)
	for j, id := range r.ids {
		r.best[j] = p[id]
	}
	switch {
	case r.Weigh == graph.SparseMixer:
		for j := range r.ids {
			r.best[j] = r.mix(s, j)
		}
	case r.Weigh == graph.SoftmaxChosen:
		simd.Softmax(r.best, r.best)
	case r.Normalize:
		var sum float32
		for _, v := range r.best {
			sum += v
		}
		sum += float32(r.Eps)
		for j, v := range r.best {
			r.best[j] = v / sum
		}
	}
	for j, id := range r.ids {
		w := r.best[j]
		if r.Factor != 0 {
			w = float32(w * float32(r.Factor))
		}
		if r.scale != nil {
			w *= r.scale[id]
		}
		out[2*j], out[2*j+1] = float32(id), w
	}
}

// mix returns the weight of choice j by graph.SparseMixer.
func (r *router) mix(s []float32, j int) float32 {
	best, near := s[r.ids[j]], float32(r.Near)
	for i, v := range s {
		far := float32(near * max(float32(math.Abs(float64(v))), best))
		if r.p[i] = v; taken(r.ids[:j], i) || float32(best-v) > far {
			r.p[i] = float32(math.Inf(-1))
		}
	}
	simd.Softmax(r.p, r.p)
	return r.p[r.ids[j]]
}

// choose sets ids to the best experts of the kept groups.
func (r *router) choose(s []float32) {
	if r.Groups <= 1 {
		largest(r.ids, s, nil)
		return
	}
	size := len(s) / r.Groups
	for g := range r.sums {
		group := s[g*size : (g+1)*size]
		largest(r.everyone, group, nil)
		r.sums[g] = 0
		for _, id := range r.everyone {
			r.sums[g] += group[id]
		}
	}
	largest(r.kept, r.sums, nil)
	largest(r.ids, s, func(id int) bool { return !taken(r.kept, id/size) })
}

// largest sets ids to the numbers of the largest of s, from the largest on, except for excluded numbers.
func largest(ids []int, s []float32, out func(id int) bool) {
	for j := range ids {
		ids[j] = -1
		for i, v := range s {
			if taken(ids[:j], i) || out != nil && out(i) {
				continue
			}
			if best := ids[j]; best < 0 || v > s[best] || s[best] != s[best] && v == v {
				ids[j] = i
			}
		}
	}
}

func taken(ids []int, i int) bool {
	for _, id := range ids {
		if id == i {
			return true
		}
	}
	return false
}
