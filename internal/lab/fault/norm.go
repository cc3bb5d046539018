package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/graph"
)

// number is a fault's value, or the usual one.
func number(value string, usual float64) (float64, error) {
	if value == "" {
		return usual, nil
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("value %q: want a number", value)
	}
	return v, nil
}

// odd is a value that a fault does not have.
func odd(value string, words ...string) error {
	if len(words) == 0 {
		return fmt.Errorf("value %q: it takes none", value)
	}
	return fmt.Errorf("value %q, want %q", value, words)
}

// plain is for faults without a value.
func plain(apply func(p *plan, n *graph.Node) (string, error)) func(*plan, *graph.Node, string) (string, error) {
	return func(p *plan, n *graph.Node, value string) (string, error) {
		if value != "" {
			return "", odd(value)
		}
		return apply(p, n)
	}
}

// named picks nodes by their names in the layer.
func named(names ...string) func(l *layer) []*graph.Node {
	return func(l *layer) (list []*graph.Node) {
		for _, name := range names {
			if n := l.node(name); n != nil {
				list = append(list, n)
			}
		}
		return list
	}
}

// ops picks nodes by operation.
func ops(list ...graph.Op) func(l *layer) []*graph.Node {
	return func(l *layer) []*graph.Node { return l.of(list...) }
}

// having picks the nodes of an operation that a function accepts.
func having(op graph.Op, accept func(p *plan, n *graph.Node) bool) func(l *layer) []*graph.Node {
	return func(l *layer) (list []*graph.Node) {
		for _, n := range l.of(op) {
			if accept(l.p, n) {
				list = append(list, n)
			}
		}
		return list
	}
}

// skipped makes an operation hand on its first input: its tap shows that, or with
// "untapped" there is none, as in an engine that does not have the operation.
func skipped(p *plan, n *graph.Node, value string) (string, error) {
	p.pass(n, 0)
	switch value {
	case "":
		return "left out", nil
	case untapped[0]:
		n.HF = ""
		return "left out, without a tap", nil
	}
	return "", odd(value, untapped...)
}

var untapped = []string{"untapped"}

func weighted(_ *plan, n *graph.Node) bool { return len(n.W) > 0 }

// ofHead reports whether a norm is one of queries or keys.
func ofHead(n *graph.Node) bool {
	return slices.Contains([]string{"attn_q_norm", "attn_k_norm"}, local(n))
}

var normSpecs = []*spec{
	{id: "norm_offset", pick: having(graph.RMSNorm, weighted), apply: plain(normOffset)},
	{id: "norm_eps", pick: ops(graph.RMSNorm, graph.LayerNorm), apply: normEps, values: []string{"1e-3"}, faint: "output_norm"},
	{id: "norm_missing", one: true, apply: skipped, values: untapped, pick: func(l *layer) []*graph.Node {
		return slices.DeleteFunc(l.of(graph.RMSNorm, graph.LayerNorm), func(n *graph.Node) bool { return len(n.W) == 0 || ofHead(n) || local(n) == "output_norm" })
	}},
	{id: "norm_extra", one: true, pick: unnormed, apply: plain(normExtra)},
	{id: "norm_wrong_weight", one: true, apply: plain(normWrongWeight), pick: having(graph.RMSNorm, func(p *plan, n *graph.Node) bool {
		return n.Layer != outside && otherNorm(p, n) != nil
	})},
	{id: "norm_order", one: true, pick: named("attn_norm", "ffn_norm"), apply: plain(normOrder)},
	{id: "qk_norm_missing", pick: named("attn_q_norm", "attn_k_norm"), apply: skipped, values: untapped},
	{id: "qk_norm_after_rope", pick: named("attn_q_norm", "attn_k_norm"), apply: plain(normAfterRope), tokens: 2},
	{id: "v_norm_missing", pick: named("attn_v_norm"), apply: skipped, values: untapped},
	{id: "final_norm_missing", outer: true, pick: named("output_norm"), apply: skipped},
}

func normOffset(_ *plan, n *graph.Node) (string, error) {
	a := n.Attr.(graph.NormAttr)
	detail := fmt.Sprintf("w+%g for w+%g", 1-a.Offset, a.Offset)
	a.Offset = 1 - a.Offset
	n.Attr = a
	return detail, nil
}

func normEps(_ *plan, n *graph.Node, value string) (string, error) {
	a := n.Attr.(graph.NormAttr)
	usual := 1e-5
	if a.Eps > 5e-6 {
		usual = 1e-6
	}
	eps, err := number(value, usual)
	switch {
	case err != nil:
		return "", err
	case eps < 0 || eps > 1:
		return "", fmt.Errorf("epsilon %g: want 0 to 1", eps)
	case float32(eps) == a.Eps:
		return "", same(fmt.Sprintf("epsilon is %g", a.Eps))
	}
	detail := fmt.Sprintf("epsilon %g for %g", eps, a.Eps)
	a.Eps = float32(eps)
	n.Attr = a
	return detail, nil
}

// unnormed are values that a model does not normalize, and another one might:
// heads of values, queries and keys, what the halves of a layer give, its output.
func unnormed(l *layer) (list []*graph.Node) {
	add := func(n *graph.Node) {
		if n != nil && n.Op != graph.RMSNorm && !slices.ContainsFunc(l.p.readers(n), func(r *graph.Node) bool { return r.Op == graph.RMSNorm }) {
			list = append(list, n)
		}
	}
	if s := l.first(graph.StoreKV); s != nil {
		add(s.In[len(s.In)-1])
	}
	for _, r := range l.of(graph.RoPE) {
		add(r.In[0])
	}
	for _, r := range l.residuals {
		add(r.In[1])
	}
	if l.index == outside {
		add(l.first(graph.Embed))
		if len(list) == 1 {
			return list
		}
	}
	if n := l.node("out"); n != nil {
		list = append(list, n)
	}
	return list
}

func normExtra(p *plan, n *graph.Node) (string, error) {
	attr := graph.NormAttr{Eps: 1e-6}
	for _, o := range p.nodes {
		if o.Op == graph.RMSNorm {
			attr.Eps = o.Attr.(graph.NormAttr).Eps
			break
		}
	}
	norm := p.insert(n, graph.RMSNorm, attr)
	if local(n) == "out" { // a layer's tapped output is the next layer's input
		n.Name, norm.Name, n.HF, norm.HF = norm.Name, n.Name, "", n.HF
	}
	p.touch(norm)
	return "normalized, without a weight", nil
}

// otherNorm is the next norm of the same layer whose weight would fit.
func otherNorm(p *plan, n *graph.Node) *graph.Node {
	norms := having(graph.RMSNorm, weighted)(p.layers[n.Layer+1])
	at := slices.Index(norms, n)
	for i := 1; at >= 0 && i < len(norms); i++ {
		if o := norms[(at+i)%len(norms)]; slices.Equal(shapeOf(o), shapeOf(n)) {
			return o
		}
	}
	return nil
}

func normWrongWeight(p *plan, n *graph.Node) (string, error) {
	o := otherNorm(p, n)
	n.W[0] = o.W[0]
	return local(n) + " has the weight of " + local(o), nil
}

// normOrder moves a norm from before attention or the MLP to behind it.
func normOrder(p *plan, n *graph.Node) (string, error) {
	last := p.layers[n.Layer+1].node(map[string]string{"attn_norm": "attn_output", "ffn_norm": "ffn_down"}[local(n)])
	if last == nil {
		return "", errors.New("no projection ends what it norms")
	}
	if bias := p.layers[n.Layer+1].node(local(last) + ".bias"); bias != nil {
		last = bias
	}
	if !slices.Equal(last.Shape, n.Shape) {
		return "", fmt.Errorf("%s has another shape", last.Name)
	}
	reads(p.readers(n), n, n.In[0])
	reads(p.readers(last), last, n)
	n.In[0] = last
	p.move(last, n)
	return local(n) + " runs behind " + local(last), nil
}

func normAfterRope(p *plan, n *graph.Node) (string, error) {
	readers := p.readers(n)
	if len(readers) != 1 || readers[0].Op != graph.RoPE {
		return "", errors.New("it is not read by rope alone")
	}
	r := readers[0]
	reads(p.readers(r), r, n)
	r.In[0], n.In[0] = n.In[0], r
	p.move(r, n)
	return "norm behind rope", nil
}
