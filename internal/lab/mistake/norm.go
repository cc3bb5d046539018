package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

func (p *Proposer) normHypotheses(n *graph.Node) []*Hypothesis {
	a := n.Attr.(graph.NormAttr)
	missing := p.MissingNorm(n)
	all := []*Hypothesis{
		edit(missing, n, "leaves the norm out", detail{}, passes(0)),
		unlikely(0.6, edit("norm_extra", n, "norms twice", detail{}, func(s *reference.Spec) { s.Func = twice })),
		unlikely(0.1, fitting("norm_eps", n, Fit{Right: float64(a.Eps), Least: 1e-12, Most: 1, Guesses: []float64{1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2},
			Make: func(v float64) *Hypothesis {
				return edit("norm_eps", n, fmt.Sprintf("adds %.3g to the mean square, not %.3g", v, a.Eps), detail{"eps": v, "right": float64(a.Eps)},
					func(s *reference.Spec) { s.Eps = v })
			}})),
	}
	all = append(all, p.orders(n)...)
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
		unlikely(0.5, fitting("weight_scale", n, Fit{Right: 1, Least: 1e-3, Most: 1e3, Guesses: []float64{2, 0.5}, Make: func(v float64) *Hypothesis {
			return edit("weight_scale", n, fmt.Sprintf("multiplies by %.6g times the weight", v), detail{"factor": v}, func(s *reference.Spec) { s.Offset, s.Times = s.Offset/v, v })
		}})),
		unlikely(0.5, edit(missing, n, "multiplies by the weight without norming", detail{"kept": "weight"}, func(s *reference.Spec) { s.Func = weightOnly })))
	if a.Offset == 0 {
		all = append(all, unlikely(0.3, edit("weight_missing", n, "multiplies by zeros", detail{"weight": "zero"}, func(s *reference.Spec) { s.Times = 0 })))
	}
	for _, x := range p.g.Nodes {
		if x == n || x.Op != graph.RMSNorm || len(x.W) == 0 || !slices.Equal(x.W[0].Shape, n.W[0].Shape) {
			continue
		}
		change := func(s *reference.Spec) { s.W = x.W }
		switch {
		case Role(x) == Role(n) && x.Layer >= 0:
			all = append(all, unlikely(0.1*math.Abs(float64(x.Layer-n.Layer)), edit("weight_wrong_layer", n, fmt.Sprintf("has the weight of layer %d", x.Layer),
				detail{"apart": float64(x.Layer - n.Layer)}, change)))
		case x.Layer == n.Layer:
			all = append(all, edit("norm_wrong_weight", n, "has the weight of "+Role(x), detail{"tensor": Role(x)}, change))
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

// orders returns norms at another place: after the sum instead of before it, and after
// the rotation instead of before it.
func (p *Proposer) orders(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	all = append(all, p.postNorms(n)...)
	for _, x := range p.Readers(n) {
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
			h.Edits[x] = []reference.Edit{passes(1)}
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
			h.Edits[x] = []reference.Edit{passes(0)}
			all = append(all, h, p.exchanged(n, x))
		}
	}
	return all
}

// exchanged returns norm n behind rope x, each with its own tap.
func (p *Proposer) exchanged(n, x *graph.Node) *Hypothesis {
	h := unlikely(0.1, edit("qk_norm_after_rope", n, "turns first and norms then", detail{}, reads(0, x)))
	h.Edits[x] = []reference.Edit{reads(0, n.In[0])}
	for _, y := range p.Readers(x) {
		for i, in := range y.In {
			if in == x {
				h.Edits[y] = append(h.Edits[y], reads(i, n))
			}
		}
	}
	return h
}

// postNorms returns the norm before a half of the layer, or before one of its branches, at work behind it:
// that reads the bare stream, and what it gives is normed, before or after a norm that it has there.
func (p *Proposer) postNorms(n *graph.Node) []*Hypothesis {
	if len(n.In) != 1 || n.Layer < 0 {
		return nil
	}
	behind := func(at *graph.Node, value *graph.Node) *Hypothesis {
		h := edit("norm_order", n, "norms what the half of the layer behind it gives, not what that reads", detail{"place": "behind"}, reads(0, value))
		for _, x := range p.Readers(n) {
			for i, in := range x.In {
				if in == n {
					h.Edits[x] = append(h.Edits[x], reads(i, n.In[0]))
				}
			}
		}
		for i, in := range at.In {
			if in == value {
				h.Edits[at] = []reference.Edit{reads(i, n)}
			}
		}
		return h
	}
	for _, sum := range p.Readers(n.In[0]) {
		if sum.Op != graph.Add || len(sum.In) != 2 || sum.In[0] != n.In[0] || sum.ID < n.ID {
			continue
		}
		var all []*Hypothesis
		for at, value := sum, sum.In[1]; value != nil; at, value = value, ends(value, n) {
			all = append(all, behind(at, value))
		}
		return all
	}
	return nil
}

// ends returns what a norm or a factor reads that a half of a layer ends with, or of a sum the branch that norm n is
// before; nil for others.
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

// extraNorm returns a norm without a weight somewhere in what n computes. Its epsilon is
// the model's, or a usual one.
func (p *Proposer) extraNorm(n *graph.Node, what string, compute func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error)) *Hypothesis {
	return unlikely(0.3, fitting("norm_extra", n, Fit{Guesses: []float64{p.eps(), 1e-6, 1e-5, 1e-12}, Make: func(eps float64) *Hypothesis {
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
	x, y, err := reference.Both(e, rows, a, b)
	for i := range y {
		x[i] += y[i]
	}
	return x, err
}

// SkippedNorms returns norms that are computed, as their taps show, but whose readers go on
// with what was before the norm.
func (p *Proposer) SkippedNorms(n *graph.Node) []*Hypothesis {
	var all []*Hypothesis
	for _, x := range n.In {
		x = Behind(x)
		if x.Op != graph.RMSNorm || !p.Tapped(x) {
			continue
		}
		h := &Hypothesis{Cause: p.MissingNorm(x), Node: x, Detail: detail{}, Computed: "leaves the norm out", Edits: reference.Edits{}}
		for _, y := range p.Readers(x) {
			for i, in := range y.In {
				if in == x {
					h.Edits[y] = append(h.Edits[y], reads(i, x.In[0]))
				}
			}
		}
		all = append(all, h)
	}
	return all
}

// normed returns a node whose result is normed besides.
func (p *Proposer) normed(n *graph.Node) *Hypothesis {
	return p.extraNorm(n, "the result", func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
		y, err := s.Plain(e, rows)
		return norm(y), err
	})
}
