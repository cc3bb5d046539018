package diagnose

import (
	"fmt"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/sim"
)

// addHypotheses are about a bias, or about a sum with the residual stream.
func (r *run) addHypotheses(n *graph.Node) []*hypothesis {
	if len(n.W) > 0 {
		all := []*hypothesis{edit("bias_missing", n, "leaves the bias out", detail{}, passes(0))}
		for _, x := range r.siblings(n) {
			all = append(all, unlikely(0.3, edit("weight_wrong_layer", n, fmt.Sprintf("adds the bias of layer %d", x.Layer), detail{"apart": float64(x.Layer - n.Layer)},
				func(s *sim.Spec) { s.W = x.W })))
		}
		return all
	}
	if n.Layer < 0 {
		return r.perLayerSum(n)
	}
	branch := n.In[1]
	missing := "residual_missing"
	if r.isPLE(branch) {
		missing = "ple_missing"
	}
	all := []*hypothesis{
		edit("residual_missing", n, "gives on what is added, without the residual stream", detail{"lost": "stream"}, passes(1)),
		edit(missing, n, "gives on the residual stream, without what is added", detail{"lost": "branch"}, passes(0)),
	}
	if branch.Op == graph.RMSNorm {
		all = append(all, edit(r.missingNorm(branch), branch, "adds what was not normed", detail{}, reads(0, branch)))
		all[len(all)-1].edits = sim.Edits{n: {reads(1, branch.In[0])}}
	} else {
		all = append(all, r.extraNorm(n, "what is added", func(e *sim.Eval, s *sim.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
			x, y, err := both(e, rows, s.In[0], s.In[1])
			if err != nil {
				return nil, err
			}
			for i, v := range norm(y) {
				x[i] += v
			}
			return x, nil
		}))
	}
	if role(n) == "out" {
		all = append(all, r.normed(n))
	}
	return all
}

// isPLE reports whether a value is the end of a layer's per-layer embedding.
func (r *run) isPLE(n *graph.Node) bool {
	return strings.HasPrefix(role(n), "post_norm") && n.Layer >= 0
}

// placesOfPLE are other places of the per-layer embedding in n's layer.
func (r *run) placesOfPLE(n *graph.Node) []*hypothesis {
	if n = r.sumOfPLE(n); n == nil {
		return nil
	}
	gate, end := r.inLayer(n, "inp_gate"), n.In[1]
	after := n.In[0] // the stream behind the MLP
	if gate == nil || after.Op != graph.Add {
		return nil
	}
	middle := after.In[0] // before the MLP
	if middle.Op != graph.Add {
		return nil
	}
	first := middle.In[0] // before attention
	var all []*hypothesis
	for _, place := range []struct {
		what   string
		stream *graph.Node
	}{{"before the MLP", middle}, {"before attention", first}} {
		h := edit("ple_position", gate, "adds the per-layer embedding "+place.what, detail{"place": place.what}, reads(0, place.stream))
		for _, x := range r.readers(place.stream) {
			if x.Op == graph.RMSNorm && x.Layer == n.Layer {
				h.edits[x] = []sim.Edit{normOfSum(x, place.stream, end)}
			}
		}
		if place.stream == first {
			for _, x := range r.readers(middle) {
				if x.Op == graph.RMSNorm {
					h.edits[x] = []sim.Edit{normOfSum(x, middle, end)}
				}
			}
		}
		all = append(all, h)
		plain := edit("ple_position", gate, "makes the per-layer embedding's gate from the stream "+place.what, detail{"gate": place.what}, reads(0, place.stream))
		all = append(all, unlikely(0.1, plain))
	}
	return append(all, r.behindScalar(n)...)
}

// sumOfPLE is where n's layer adds the per-layer embedding, nil if it has none.
func (r *run) sumOfPLE(n *graph.Node) *graph.Node {
	for _, x := range r.g.Nodes {
		if x.Layer == n.Layer && x.Op == graph.Add && len(x.In) == 2 && r.isPLE(x.In[1]) {
			return x
		}
	}
	return nil
}

// normOfSum is norm x of the sum of two values.
func normOfSum(x, a, b *graph.Node) sim.Edit {
	return func(s *sim.Spec) {
		s.In = []*graph.Node{a, b}
		s.Func = func(e *sim.Eval, s *sim.Spec, rows []int) ([]float64, error) {
			y, err := added(e, rows, a, b)
			if err != nil {
				return nil, err
			}
			return s.Norm(e, y)
		}
	}
}

// behindScalar is the per-layer embedding added after the layer's scalar.
func (r *run) behindScalar(n *graph.Node) []*hypothesis {
	for _, x := range r.readers(n) {
		if x.Op != graph.Mul {
			continue
		}
		h := edit("ple_position", x, "adds the per-layer embedding after the layer's scalar", detail{"place": "after the scalar"}, func(s *sim.Spec) {
			s.In = []*graph.Node{n.In[0], n.In[1]}
			s.Func = func(e *sim.Eval, s *sim.Spec, rows []int) ([]float64, error) {
				y, b, err := both(e, rows, n.In[0], n.In[1])
				if err != nil {
					return nil, err
				}
				w, err := sim.Vector(s.W[0])
				if err != nil {
					return nil, err
				}
				for i := range y {
					y[i] = y[i]*w[i%len(w)] + b[i]
				}
				return y, nil
			}
		})
		return []*hypothesis{h, r.gateBehind(h, x)}
	}
	return nil
}

// gateBehind is h with the embedding's gate reading what the layer's scalar x gives.
func (r *run) gateBehind(h *hypothesis, x *graph.Node) *hypothesis {
	both := *h
	both.detail = detail{"place": "after the scalar", "gate": "after the scalar"}
	gate := r.inLayer(x, "inp_gate")
	both.edits = sim.Edits{}.And(h.edits)
	both.edits[gate] = []sim.Edit{func(s *sim.Spec) {
		if w, err := sim.Vector(x.W[0]); err == nil {
			s.Times = w[0] // the product of the scaled stream
		}
	}}
	return &both
}

// perLayerSum is the sum of the token's and the context's per-layer embeddings.
func (r *run) perLayerSum(n *graph.Node) []*hypothesis {
	return []*hypothesis{
		edit("ple_missing", n, "leaves the token's per-layer embedding out", detail{"lost": "token"}, passes(0)),
		edit("ple_missing", n, "leaves the projection out of the per-layer embedding", detail{"lost": "projection"}, passes(1)),
	}
}

func (r *run) mulHypotheses(n *graph.Node) []*hypothesis {
	if len(n.W) == 0 {
		return nil
	}
	if n.W[0].Shape.Size() != 1 {
		return nil
	}
	const cause = "layer_scalar"
	all := []*hypothesis{r.normed(n), edit(cause, n, "leaves the multiplication out", detail{"scalar": "one"}, passes(0)),
		edit(cause, n, "multiplies by the scalar twice", detail{"scalar": "squared"}, func(s *sim.Spec) {
			s.Func = func(e *sim.Eval, s *sim.Spec, rows []int) ([]float64, error) {
				y, err := s.Plain(e, rows)
				if err != nil {
					return nil, err
				}
				w, err := sim.Vector(s.W[0])
				for i := range y {
					y[i] *= w[0]
				}
				return y, err
			}
		})}
	for _, x := range r.siblings(n) {
		all = append(all, unlikely(0.3, edit(cause, n, fmt.Sprintf("multiplies by the scalar of layer %d", x.Layer), detail{"apart": float64(x.Layer - n.Layer)}, func(s *sim.Spec) { s.W = x.W })))
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
		all = append(all, edit(cause, n, "multiplies "+what[3:]+", not the stream", detail{"scalar": what}, func(s *sim.Spec) {
			s.In = []*graph.Node{n.In[0], start}
			s.Func = scaledDelta
		}))
	}
	return all
}

// normed is a node whose result is normed besides.
func (r *run) normed(n *graph.Node) *hypothesis {
	return r.extraNorm(n, "the result", func(e *sim.Eval, s *sim.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
		y, err := s.Plain(e, rows)
		return norm(y), err
	})
}

// scaledDelta is start + scalar·(stream - start), In being stream and start.
func scaledDelta(e *sim.Eval, s *sim.Spec, rows []int) ([]float64, error) {
	y, start, err := both(e, rows, s.In[0], s.In[1])
	if err != nil {
		return nil, err
	}
	w, err := sim.Vector(s.W[0])
	if err != nil {
		return nil, err
	}
	for i := range y {
		y[i] = start[i] + w[0]*(y[i]-start[i])
	}
	return y, nil
}

func (r *run) scaleHypotheses(n *graph.Node) []*hypothesis {
	if n.Layer >= 0 {
		return nil // of the router
	}
	const cause = "ple_scale"
	right := n.Attr.(graph.ScaleAttr).By
	return []*hypothesis{fitting(cause, n, fit{right: right, least: right / 1000, most: 1000 * right, guesses: []float64{1, right * right, math.Sqrt(right), 1 / right},
		make: func(v float64) *hypothesis {
			return edit(cause, n, fmt.Sprintf("multiplies by %.6g, not by %.6g", v, right), detail{"factor": v, "right": right}, func(s *sim.Spec) { s.By = v })
		}})}
}

func softcapHypotheses(n *graph.Node) []*hypothesis {
	right := n.Attr.(graph.ScaleAttr).By
	scaled := func(what string, before bool) *hypothesis {
		return unlikely(0.4, fitting("logits_scale", n, fit{right: 1, least: 1e-3, most: 1e3, guesses: []float64{0.5, 2}, make: func(v float64) *hypothesis {
			return edit("logits_scale", n, fmt.Sprintf("multiplies the logits by %.6g %s the cap", v, what), detail{"factor": v, "place": what}, func(s *sim.Spec) {
				if !before {
					s.Times = v
					return
				}
				s.Func = func(e *sim.Eval, s *sim.Spec, rows []int) ([]float64, error) {
					y, err := e.Value(s.In[0], rows)
					for i := range y {
						y[i] = right * math.Tanh(v*y[i]/right)
					}
					return y, err
				}
			})
		}}))
	}
	return []*hypothesis{
		scaled("before", true), scaled("after", false),
		edit("softcap_missing", n, "does not cap the logits", detail{}, func(s *sim.Spec) { s.By = 0 }),
		unlikely(0.2, fitting("softcap_value", n, fit{right: right, least: 1, most: 1000, guesses: []float64{15, 20, 30, 50, right / 2, right * 2}, make: func(v float64) *hypothesis {
			if v == right {
				return nil
			}
			return edit("softcap_value", n, fmt.Sprintf("caps at %.6g, not at %.6g", v, right), detail{"cap": v, "right": right}, func(s *sim.Spec) { s.By = v })
		}})),
	}
}
