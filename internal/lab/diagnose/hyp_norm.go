package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

func (r *proposer) normHypotheses(n *graph.Node) []*hypothesis {
	a := n.Attr.(graph.NormAttr)
	missing := r.missingNorm(n)
	all := []*hypothesis{
		edit(missing, n, "leaves the norm out", detail{}, passes(0)),
		unlikely(0.6, edit("norm_extra", n, "norms twice", detail{}, func(s *reference.Spec) { s.Func = twice })),
		unlikely(0.1, fitting("norm_eps", n, fit{right: float64(a.Eps), least: 1e-12, most: 1, guesses: []float64{1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2},
			make: func(v float64) *hypothesis {
				return edit("norm_eps", n, fmt.Sprintf("adds %.3g to the mean square, not %.3g", v, a.Eps), detail{"eps": v, "right": float64(a.Eps)},
					func(s *reference.Spec) { s.Eps = v })
			}})),
	}
	all = append(all, r.orders(n)...)
	if len(n.W) == 0 {
		return all
	}
	for _, offset := range []float64{0, 1, 2} {
		if offset != float64(a.Offset) {
			all = append(all, edit("norm_offset", n, fmt.Sprintf("multiplies by the weight plus %g, not plus %g", offset, a.Offset),
				detail{"offset": offset, "right": float64(a.Offset)}, func(s *reference.Spec) { s.Offset = offset }))
		}
	}
	all = append(all,
		unlikely(0.3, edit("weight_missing", n, "norms without the weight", detail{"weight": "one"}, func(s *reference.Spec) { s.W = nil })),
		unlikely(0.5, fitting("weight_scale", n, fit{right: 1, least: 1e-3, most: 1e3, guesses: []float64{2, 0.5}, make: func(v float64) *hypothesis {
			return edit("weight_scale", n, fmt.Sprintf("multiplies by %.6g times the weight", v), detail{"factor": v}, func(s *reference.Spec) { s.Offset, s.Times = s.Offset/v, v })
		}})),
		unlikely(0.5, edit(missing, n, "multiplies by the weight without norming", detail{"kept": "weight"}, func(s *reference.Spec) { s.Func = weightOnly })))
	if a.Offset == 0 {
		all = append(all, unlikely(0.3, edit("weight_missing", n, "multiplies by zeros", detail{"weight": "zero"}, func(s *reference.Spec) { s.Times = 0 })))
	}
	for _, x := range r.g.Nodes {
		if x == n || x.Op != graph.RMSNorm || len(x.W) == 0 || !slices.Equal(x.W[0].Shape, n.W[0].Shape) {
			continue
		}
		change := func(s *reference.Spec) { s.W = x.W }
		switch {
		case role(x) == role(n) && x.Layer >= 0:
			all = append(all, unlikely(0.1*math.Abs(float64(x.Layer-n.Layer)), edit("weight_wrong_layer", n, fmt.Sprintf("has the weight of layer %d", x.Layer),
				detail{"apart": float64(x.Layer - n.Layer)}, change)))
		case x.Layer == n.Layer:
			all = append(all, edit("norm_wrong_weight", n, "has the weight of "+role(x), detail{"tensor": role(x)}, change))
		case x.Layer < 0:
			all = append(all, unlikely(0.5, edit("norm_wrong_weight", n, "has the weight of "+x.Name, detail{"tensor": x.Name}, change)))
		}
	}
	return all
}

// twice applies the norm again to its output.
func twice(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
	y, err := s.Plain(e, rows)
	if err != nil {
		return nil, err
	}
	return s.Norm(e, y)
}

func weightOnly(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
	x, err := e.Value(s.In[0], rows)
	if err != nil {
		return nil, err
	}
	if len(s.W) == 0 {
		return x, nil
	}
	w, err := reference.Vector(s.W[0])
	if err != nil {
		return nil, err
	}
	for i := range x {
		x[i] *= s.Offset + w[i%len(w)]
	}
	return x, nil
}

// orders are norms at another place: after the sum instead of before it, and after
// the rotation instead of before it.
func (r *proposer) orders(n *graph.Node) []*hypothesis {
	var all []*hypothesis
	all = append(all, r.postNorms(n)...)
	for _, x := range r.readers(n) {
		if x.Op == graph.Add && len(x.In) == 2 && x.In[1] == n {
			h := edit("residual_order", n, "norms the sum with the residual, not what is added to it", detail{"place": "after the sum"}, func(s *reference.Spec) {
				s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
					y, err := added(e, rows, n.In[0], x.In[0])
					if err != nil {
						return nil, err
					}
					return s.Norm(e, y)
				}
				s.In = []*graph.Node{n.In[0], x.In[0]}
			})
			h.edits[x] = []reference.Edit{passes(1)}
			all = append(all, h)
		}
		if x.Op == graph.RoPE {
			h := edit("qk_norm_after_rope", n, "turns first and norms then", detail{}, func(s *reference.Spec) {
				s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
					y, err := e.Value(s.In[0], rows)
					if err != nil {
						return nil, err
					}
					return s.Norm(e, e.Spec(x).Rotate(e, y, rows))
				}
			})
			h.edits[x] = []reference.Edit{passes(0)}
			all = append(all, h, r.exchanged(n, x))
		}
	}
	return all
}

// exchanged is norm n behind rope x, each with its own tap.
func (r *proposer) exchanged(n, x *graph.Node) *hypothesis {
	h := unlikely(0.1, edit("qk_norm_after_rope", n, "turns first and norms then", detail{}, reads(0, x)))
	h.edits[x] = []reference.Edit{reads(0, n.In[0])}
	for _, y := range r.readers(x) {
		for i, in := range y.In {
			if in == x {
				h.edits[y] = append(h.edits[y], reads(i, n))
			}
		}
	}
	return h
}

// postNorms are the norm before a half of the layer, or before one of its branches, at work behind it:
// that reads the bare stream, and what it gives is normed, before or after a norm that it has there.
func (r *proposer) postNorms(n *graph.Node) []*hypothesis {
	if len(n.In) != 1 || n.Layer < 0 {
		return nil
	}
	behind := func(at *graph.Node, value *graph.Node) *hypothesis {
		h := edit("norm_order", n, "norms what the half of the layer behind it gives, not what that reads", detail{"place": "behind"}, reads(0, value))
		for _, x := range r.readers(n) {
			for i, in := range x.In {
				if in == n {
					h.edits[x] = append(h.edits[x], reads(i, n.In[0]))
				}
			}
		}
		for i, in := range at.In {
			if in == value {
				h.edits[at] = []reference.Edit{reads(i, n)}
			}
		}
		return h
	}
	for _, sum := range r.readers(n.In[0]) {
		if sum.Op != graph.Add || len(sum.In) != 2 || sum.In[0] != n.In[0] || sum.ID < n.ID {
			continue
		}
		var all []*hypothesis
		for at, value := sum, sum.In[1]; value != nil; at, value = value, ends(value, n) {
			all = append(all, behind(at, value))
		}
		return all
	}
	return nil
}

// ends is what a norm or a factor reads that a half of a layer ends with, or of a sum the branch that norm n is before; nil for others.
func ends(x, n *graph.Node) *graph.Node {
	switch {
	case x != n && (x.Op == graph.RMSNorm || x.Op == graph.Scale):
		return x.In[0]
	case x.Op == graph.Add && len(x.In) == 2:
		for i, y := range x.In {
			if follows(y, n) && !follows(x.In[1-i], n) {
				return y
			}
		}
	}
	return nil
}

// follows reports whether x is computed from n, of the same layer.
func follows(x, n *graph.Node) bool {
	return x == n || x.ID > n.ID && slices.ContainsFunc(x.In, func(y *graph.Node) bool { return follows(y, n) })
}

// extraNorm is a norm without a weight somewhere in what n computes. Its epsilon is
// the model's, or a usual one.
func (r *proposer) extraNorm(n *graph.Node, what string, compute func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error)) *hypothesis {
	return unlikely(0.3, fitting("norm_extra", n, fit{guesses: []float64{r.eps(), 1e-6, 1e-5, 1e-12}, make: func(eps float64) *hypothesis {
		return edit("norm_extra", n, "norms "+what+", without a weight", detail{"of": what}, func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				return compute(e, s, rows, func(x []float64) []float64 {
					y, err := (&reference.Spec{Node: n, Eps: eps}).Norm(e, x)
					if err != nil {
						return x // there is no weight that could fail
					}
					return y
				})
			}
		})
	}}))
}

func added(e *reference.Eval, rows []int, a, b *graph.Node) ([]float64, error) {
	x, y, err := both(e, rows, a, b)
	for i := range y {
		x[i] += y[i]
	}
	return x, err
}

// both is rows of two nodes; nothing with an error.
func both(e *reference.Eval, rows []int, a, b *graph.Node) (x, y []float64, err error) {
	if x, err = e.Value(a, rows); err != nil {
		return nil, nil, err
	}
	if y, err = e.Value(b, rows); err != nil {
		return nil, nil, err
	}
	return x, y, nil
}

// skippedNorms are norms that are computed, as their taps show, but whose readers go on
// with what was before the norm.
func (r *proposer) skippedNorms(n *graph.Node) []*hypothesis {
	var all []*hypothesis
	for _, x := range n.In {
		x = behind(x)
		if x.Op != graph.RMSNorm || r.taps[x] == "" {
			continue
		}
		h := &hypothesis{cause: r.missingNorm(x), node: x, detail: detail{}, computed: "leaves the norm out", edits: reference.Edits{}}
		for _, y := range r.readers(x) {
			for i, in := range y.In {
				if in == x {
					h.edits[y] = append(h.edits[y], reads(i, x.In[0]))
				}
			}
		}
		all = append(all, h)
	}
	return all
}

// normed is a node whose result is normed besides.
func (r *proposer) normed(n *graph.Node) *hypothesis {
	return r.extraNorm(n, "the result", func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
		y, err := s.Plain(e, rows)
		return norm(y), err
	})
}
