package mistake

import (
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// isPLE reports whether a value is the end of a layer's per-layer embedding.
func isPLE(n *graph.Node) bool {
	return strings.HasPrefix(Role(n), "post_norm") && n.Layer >= 0
}

// PlacesOfPLE returns other places of the per-layer embedding in n's layer.
func (p *Proposer) PlacesOfPLE(n *graph.Node) []*Hypothesis {
	if n = p.sumOfPLE(n); n == nil {
		return nil
	}
	gate, end := p.inLayer(n, "inp_gate"), n.In[1]
	after := n.In[0] // the stream behind the MLP
	if gate == nil || after.Op != graph.Add {
		return nil
	}
	middle := after.In[0] // before the MLP
	if middle.Op != graph.Add {
		return nil
	}
	first := middle.In[0] // before attention
	var all []*Hypothesis
	for _, place := range []struct {
		what   string
		stream *graph.Node
	}{{"before the MLP", middle}, {"before attention", first}} {
		h := edit("ple_position", gate, "adds the per-layer embedding "+place.what, detail{"place": place.what}, reads(0, place.stream))
		for _, x := range p.Readers(place.stream) {
			if x.Op == graph.RMSNorm && x.Layer == n.Layer {
				h.Edits[x] = []reference.Edit{normOfSum(x, place.stream, end)}
			}
		}
		if place.stream == first {
			for _, x := range p.Readers(middle) {
				if x.Op == graph.RMSNorm {
					h.Edits[x] = []reference.Edit{normOfSum(x, middle, end)}
				}
			}
		}
		all = append(all, h)
		plain := edit("ple_position", gate, "makes the per-layer embedding's gate from the stream "+place.what, detail{"gate": place.what}, reads(0, place.stream))
		all = append(all, unlikely(0.1, plain))
	}
	return append(all, p.behindScalar(n)...)
}

// normOfSum returns norm x of the sum of two values.
func normOfSum(x, a, b *graph.Node) reference.Edit {
	return func(s *reference.Spec) {
		s.In = []*graph.Node{a, b}
		s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
			y, err := added(e, rows, a, b)
			if err != nil {
				return nil, err
			}
			return s.Norm(e, y)
		}
	}
}

// behindScalar returns the per-layer embedding added after the layer's scalar.
func (p *Proposer) behindScalar(n *graph.Node) []*Hypothesis {
	for _, x := range p.Readers(n) {
		if x.Op != graph.Mul {
			continue
		}
		h := edit("ple_position", x, "adds the per-layer embedding after the layer's scalar", detail{"place": "after the scalar"}, func(s *reference.Spec) {
			s.In = []*graph.Node{n.In[0], n.In[1]}
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				y, b, err := reference.Both(e, rows, n.In[0], n.In[1])
				if err != nil {
					return nil, err
				}
				w, err := reference.Vector(s.W[0])
				if err != nil {
					return nil, err
				}
				for i := range y {
					y[i] = y[i]*w[i%len(w)] + b[i]
				}
				return y, nil
			}
		})
		return []*Hypothesis{h, p.gateBehind(h, x)}
	}
	return nil
}

// gateBehind returns h with the embedding's gate reading what the layer's scalar x gives.
func (p *Proposer) gateBehind(h *Hypothesis, x *graph.Node) *Hypothesis {
	both := *h
	both.Detail = detail{"place": "after the scalar", "gate": "after the scalar"}
	gate := p.inLayer(x, "inp_gate")
	both.Edits = reference.Edits{}.And(h.Edits)
	both.Edits[gate] = []reference.Edit{func(s *reference.Spec) {
		if w, err := reference.Vector(x.W[0]); err == nil {
			s.Times = w[0] // the product of the scaled stream
		}
	}}
	return &both
}

// perLayerSum returns the sum of the token's and the context's per-layer embeddings.
func perLayerSum(n *graph.Node) []*Hypothesis {
	return []*Hypothesis{
		edit("ple_missing", n, "leaves the token's per-layer embedding out", detail{"lost": "token"}, passes(0)),
		edit("ple_missing", n, "leaves the projection out of the per-layer embedding", detail{"lost": "projection"}, passes(1)),
	}
}
