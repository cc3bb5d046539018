package fault

import (
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Engines that compute the same function, written otherwise: their taps differ,
// their logits do not. They must come out clean.
var sameSpecs = []*spec{
	{id: "same_rope_offset", pick: turning, whole: true, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.turn(n).shift += 3
		return "positions begin at 3", nil
	})},
	{id: "same_scale_on_queries", pick: ops(graph.Attention), apply: plain(scaleOnQueries)},
	{id: "same_norm_folded", one: true, pick: named("attn_norm", "ffn_norm"), apply: plain(normFolded)},
	{id: "same_qk_order", pick: ops(graph.StoreKV), apply: plain(qkOrder)},
	{id: "same_logits_shifted", outer: true, pick: func(l *layer) []*graph.Node {
		if len(l.of(graph.Softcap)) > 0 {
			return nil // which makes of it another function
		}
		return named("output")(l)
	}, apply: changed("all logits are 1 higher", rowsOf(func(v []float64) {
		for i := range v {
			v[i]++
		}
	}))},
}

// scaleOnQueries multiplies the queries instead of the scores.
func scaleOnQueries(p *plan, n *graph.Node) (string, error) {
	a := n.Attr.(graph.AttentionAttr)
	if a.Scale == 1 {
		return "", same("the scale is 1")
	}
	by := a.Scale
	p.then(n.In[0], func(_ *reference.Call, y []float64, _ int) {
		for i := range y {
			y[i] *= by
		}
	})
	p.touch(n.In[0])
	a.Scale = 1
	n.Attr = a
	return fmt.Sprintf("queries are multiplied by %.7g", by), nil
}

// normFolded multiplies a norm's weight into the products that read it.
func normFolded(p *plan, n *graph.Node) (string, error) {
	readers := p.readers(n)
	if slices.ContainsFunc(readers, func(r *graph.Node) bool { return r.Op != graph.Linear }) {
		return "", errors.New("it is read by more than products")
	}
	if len(n.W) > 1 {
		return "", errors.New("its bias would have to go into biases")
	}
	w, err := widen(n.W[0])
	if err != nil {
		return "", err
	}
	offset := float64(n.Attr.(graph.NormAttr).Offset)
	for _, r := range readers {
		err := p.rewrite(r, 0, func(m []float32) []float32 {
			for i := range m {
				m[i] = float32(float64(m[i]) * (offset + w[i%len(w)]))
			}
			return m
		})
		if err != nil {
			return "", err
		}
		p.touch(r)
	}
	n.Attr, n.W = graph.NormAttr{Eps: n.Attr.(graph.NormAttr).Eps}, nil
	return local(n) + " is multiplied into the products that read it", nil
}

// qkOrder orders the channels of queries and keys for interleaved rope, in their
// weights, and turns them so: GGUF's way for Llama.
func qkOrder(p *plan, store *graph.Node) (string, error) {
	turns := []*graph.Node{store.In[0]}
	for _, n := range p.nodes {
		if n.Op == graph.Attention && n.Attr.(graph.AttentionAttr).KV.Layer == store.Layer {
			turns = append(turns, n.In[0])
		}
	}
	for _, r := range turns {
		if a, ok := r.Attr.(graph.RoPEAttr); !ok || p.turns[r] != nil || len(a.Freqs) != r.Shape.Last()/2 || a.Interleaved {
			return "", errors.New("its rope does not turn all pairs of halves")
		}
		for x := r.In[0]; x.Op != graph.Linear; x = x.In[0] {
			if !slices.Contains([]graph.Op{graph.View, graph.RMSNorm, graph.Add}, x.Op) || len(p.readers(x)) != 1 {
				return "", fmt.Errorf("%s is not for rope alone", x.Name)
			}
		}
	}
	for _, r := range turns {
		p.turn(r).otherPairs = true
		p.touch(r)
		for x := r.In[0]; ; x = x.In[0] {
			if len(x.W) > 0 {
				if err := p.interleave(x, r.Shape.Last()); err != nil {
					return "", err
				}
			}
			if x.Op == graph.Linear {
				break
			}
		}
	}
	return "channels of queries and keys are interleaved", nil
}

// interleave orders the outputs of a weight, in heads of dim, in pairs (2i, 2i+1).
func (p *plan) interleave(n *graph.Node, dim int) error {
	cols := 1
	if n.Op == graph.Linear {
		cols = n.W[0].Shape[1]
	}
	p.touch(n)
	return p.rewrite(n, 0, func(w []float32) (v []float32) {
		for r := range len(w) / cols {
			h, i := r/dim, r%dim
			v = append(v, w[(h*dim+i%2*(dim/2)+i/2)*cols:][:cols]...)
		}
		return v
	})
}
