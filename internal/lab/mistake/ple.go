package mistake

import (
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// placesOfPLE lists other places of the per-layer embedding in the layer of a norm, a sum, or the embedding's gate.
func placesOfPLE(p *Proposer, n *graph.Node) []*Hypothesis {
	if n.Op != graph.RMSNorm && n.Op != graph.Add && n.Op != graph.Mul && Role(n) != "inp_gate" {
		return nil
	}
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
		h := edit(gate, "adds the per-layer embedding "+place.what, detail{"place": place.what}, reads(0, place.stream))
		for _, x := range p.Readers(place.stream) {
			if x.Op == graph.RMSNorm && x.Layer == n.Layer {
				h.Edits[x] = []reference.Edit{normOfSum(place.stream, end)}
			}
		}
		if place.stream == first {
			for _, x := range p.Readers(middle) {
				if x.Op == graph.RMSNorm {
					h.Edits[x] = []reference.Edit{normOfSum(middle, end)}
				}
			}
		}
		all = append(all, h)
		all = append(all, unlikely(0.1, edit(gate, "makes the per-layer embedding's gate from the stream "+place.what,
			detail{"gate": place.what}, reads(0, place.stream))))
	}
	return append(all, behindScalar(p, n)...)
}

// behindScalar returns the per-layer embedding added after the layer's scalar.
func behindScalar(p *Proposer, n *graph.Node) []*Hypothesis {
	for _, x := range p.Readers(n) {
		if x.Op != graph.Mul {
			continue
		}
		h := edit(x, "adds the per-layer embedding after the layer's scalar", detail{"place": "after the scalar"},
			ofScalar(n.In[0], n.In[1],
				func(stream, branch, by float64) float64 { return stream*by + branch }))
		return []*Hypothesis{h, gateBehind(p, h, x)}
	}
	return nil
}

// gateBehind returns h with the embedding's gate reading what the layer's scalar x gives.
func gateBehind(p *Proposer, h *Hypothesis, x *graph.Node) *Hypothesis {
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

// lostPLE lists per-layer embeddings that are not added to the stream, or lack the token's or the context's part.
func lostPLE(_ *Proposer, n *graph.Node) []*Hypothesis {
	switch {
	case isSum(n) && isPLE(n.In[1]):
		return []*Hypothesis{lostBranch(n)}
	case n.Layer < 0 && len(n.W) == 0:
		return []*Hypothesis{
			edit(n, "leaves the token's per-layer embedding out", detail{"lost": "token"}, passes(0)),
			edit(n, "leaves the projection out of the per-layer embedding", detail{"lost": "projection"}, passes(1)),
		}
	}
	return nil
}

// otherPLEScales lists other factors of per-layer embeddings.
func otherPLEScales(p *Proposer, n *graph.Node) []*Hypothesis {
	switch {
	case !isPLEScale(p, n):
		return nil
	case n.Op == graph.Embed:
		return otherEmbeddingScales(p, n)
	}
	return otherScaleFactors(p, n)
}
