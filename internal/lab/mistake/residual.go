package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// addHypotheses returns hypotheses about a bias, or about a sum with the residual stream.
func (p *Proposer) addHypotheses(n *graph.Node) []*Hypothesis {
	if len(n.W) > 0 {
		all := []*Hypothesis{edit("bias_missing", n, "leaves the bias out", detail{}, passes(0))}
		for _, x := range p.Siblings(n) {
			all = append(all, unlikely(0.3, edit("weight_wrong_layer", n, fmt.Sprintf("adds the bias of layer %d", x.Layer), detail{"apart": float64(x.Layer - n.Layer)},
				func(s *reference.Spec) { s.W = x.W })))
		}
		return all
	}
	if n.Layer < 0 {
		return perLayerSum(n)
	}
	branch := n.In[1]
	missing := "residual_missing"
	if isPLE(branch) {
		missing = "ple_missing"
	}
	all := []*Hypothesis{
		edit("residual_missing", n, "passes on the layer's output without the residual stream", detail{"lost": "stream"}, passes(1)),
		edit(missing, n, "passes on the residual stream without the layer's output", detail{"lost": "branch"}, passes(0)),
	}
	if branch.Op == graph.RMSNorm {
		all = append(all, edit(p.MissingNorm(branch), branch, "adds what was not normed", detail{}, reads(0, branch)))
		all[len(all)-1].Edits = reference.Edits{n: {reads(1, branch.In[0])}}
	} else {
		all = append(all, p.extraNorm(n, "what is added", func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
			x, y, err := reference.Both(e, rows, s.In[0], s.In[1])
			if err != nil {
				return nil, err
			}
			for i, v := range norm(y) {
				x[i] += v
			}
			return x, nil
		}))
	}
	if Role(n) == "out" {
		all = append(all, p.normed(n))
	}
	return all
}

func (p *Proposer) mulHypotheses(n *graph.Node) []*Hypothesis {
	if len(n.W) == 0 {
		return []*Hypothesis{edit("gate_missing", n, "passes on the first factor alone", detail{"lost": "second"}, passes(0)),
			edit("gate_missing", n, "passes on the second factor alone", detail{"lost": "first"}, passes(1))}
	}
	if n.W[0].Shape.Size() != 1 {
		return nil
	}
	const cause = "layer_scalar"
	all := []*Hypothesis{p.normed(n), edit(cause, n, "leaves the multiplication out", detail{"scalar": "one"}, passes(0)),
		edit(cause, n, "multiplies by the scalar twice", detail{"scalar": "squared"}, func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				y, err := s.Plain(e, rows)
				if err != nil {
					return nil, err
				}
				w, err := reference.Vector(s.W[0])
				for i := range y {
					y[i] *= w[0]
				}
				return y, err
			}
		})}
	for _, x := range p.Siblings(n) {
		all = append(all, unlikely(0.3, edit(cause, n, fmt.Sprintf("multiplies by the scalar of layer %d", x.Layer), detail{"apart": float64(x.Layer - n.Layer)}, func(s *reference.Spec) { s.W = x.W })))
	}
	// The scalar on what the layer adds, or on its last branch, not on the stream.
	for stream, depth := n.In[0], 0; stream.Op == graph.Add && len(stream.In) == 2 && stream.Layer == n.Layer; stream, depth = stream.In[0], depth+1 {
		start := stream.In[0]
		what := "on the last branch"
		if start.Op != graph.Add || start.Layer != n.Layer {
			what = "on what the layer adds"
		} else if depth > 0 {
			continue
		}
		all = append(all, edit(cause, n, "multiplies "+what[3:]+", not the stream", detail{"scalar": what}, func(s *reference.Spec) {
			s.In = []*graph.Node{n.In[0], start}
			s.Func = scaledDelta
		}))
	}
	return all
}

// scaledDelta returns start + scalar·(stream - start), In being stream and start.
func scaledDelta(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
	y, start, err := reference.Both(e, rows, s.In[0], s.In[1])
	if err != nil {
		return nil, err
	}
	w, err := reference.Vector(s.W[0])
	if err != nil {
		return nil, err
	}
	for i := range y {
		y[i] = start[i] + w[0]*(y[i]-start[i])
	}
	return y, nil
}

// scaleHypotheses returns other factors than the model's own. Those of per-layer embeddings lie outside the layers.
func (p *Proposer) scaleHypotheses(n *graph.Node) []*Hypothesis {
	cause, cost := "scale_factor", 0.4 // what leaves less to chance, such as a scale of scores, comes first
	if n.Layer < 0 && slices.ContainsFunc(p.g.Nodes[1:], func(x *graph.Node) bool { return x.Op == graph.Embed }) {
		cause, cost = "ple_scale", 0
	}
	right := n.Attr.(graph.ScaleAttr).By
	size := math.Abs(right)
	return []*Hypothesis{unlikely(cost, fitting(cause, n, Fit{Right: right, Least: size / 1000, Most: 1000 * size, Guesses: []float64{1, right * right, math.Sqrt(size), 1 / right},
		Make: func(v float64) *Hypothesis {
			return edit(cause, n, fmt.Sprintf("multiplies by %.6g, not by %.6g", v, right), detail{"factor": v, "right": right}, func(s *reference.Spec) { s.By = v })
		}}))}
}

func softcapHypotheses(n *graph.Node) []*Hypothesis {
	right := n.Attr.(graph.ScaleAttr).By
	scaled := func(what string, before bool) *Hypothesis {
		return unlikely(0.4, fitting("logits_scale", n, Fit{Right: 1, Least: 1e-3, Most: 1e3, Guesses: []float64{0.5, 2}, Make: func(v float64) *Hypothesis {
			return edit("logits_scale", n, fmt.Sprintf("multiplies the logits by %.6g %s the cap", v, what), detail{"factor": v, "place": what}, func(s *reference.Spec) {
				if !before {
					s.Times = v
					return
				}
				s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
					y, err := e.Value(s.In[0], rows)
					for i := range y {
						y[i] = right * math.Tanh(v*y[i]/right)
					}
					return y, err
				}
			})
		}}))
	}
	return []*Hypothesis{
		scaled("before", true), scaled("after", false),
		edit("softcap_missing", n, "does not cap the logits", detail{}, func(s *reference.Spec) { s.By = 0 }),
		unlikely(0.2, fitting("softcap_value", n, Fit{Right: right, Least: 1, Most: 1000, Guesses: []float64{15, 20, 30, 50, right / 2, right * 2}, Make: func(v float64) *Hypothesis {
			if v == right {
				return nil
			}
			return edit("softcap_value", n, fmt.Sprintf("caps at %.6g, not at %.6g", v, right), detail{"cap": v, "right": right}, func(s *reference.Spec) { s.By = v })
		}})),
	}
}
