package fault

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// activations by name.
var activations = map[string]func(float64) float64{
	"silu":       func(v float64) float64 { return v / (1 + math.Exp(-v)) },
	"gelu_tanh":  func(v float64) float64 { return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) },
	"gelu_erf":   func(v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) },
	"gelu_quick": func(v float64) float64 { return v / (1 + math.Exp(-1.702*v)) },
	"relu":       func(v float64) float64 { return max(v, 0) },

	"relu_squared": func(v float64) float64 { return max(v, 0) * max(v, 0) },
	"sigmoid":      func(v float64) float64 { return 1 / (1 + math.Exp(-v)) },
	"tanh":         math.Tanh,
}

// mix is how a GLU, an Act or an Experts mixes gate and up otherwise than recorded.
type mix struct {
	act     func(float64) float64
	swapped bool
	join    func(act, up float64) float64 // act·up if nil
	limits  graph.ActAttr                 // but for its Act
	weights map[*graph.Weight]map[int][]float64
}

// mix is n's, whose kernel reads it.
func (p *plan) mix(n *graph.Node) *mix {
	m := p.mixes[n]
	if m == nil {
		a, _ := n.Activates()
		m = &mix{act: activations[a.Act.String()], limits: a}
		p.mixes[n] = m
		p.kernels[n] = m.kernel
	}
	return m
}

func (m *mix) one(gate, up float64) float64 {
	if m.swapped {
		gate, up = up, gate
	}
	l := m.limits
	if l.Limit > 0 {
		gate, up = min(gate, l.Limit), max(-l.Limit, min(up, l.Limit))
	}
	alpha := cmp.Or(l.Alpha, 1)
	gate, up = alpha*gate, up+l.Plus
	if m.join != nil {
		return m.join(m.act(gate)/alpha, up)
	}
	return m.act(gate) / alpha * up
}

func (m *mix) kernel(c *reference.Call) ([]float64, error) {
	if c.Node.Op == graph.Experts {
		return m.experts(c)
	}
	y := make([]float64, len(c.In[0]))
	for i, gate := range c.In[0] {
		if len(c.In) == 1 {
			y[i] = m.act(gate)
		} else {
			y[i] = m.one(gate, c.In[1][i])
		}
	}
	return y, nil
}

// experts sums the routed MLPs of each row by weight.
func (m *mix) experts(c *reference.Call) ([]float64, error) {
	n := c.Node
	attr, _ := n.Attr.(graph.ExpertsAttr)
	d, k := n.Shape.Size(), n.In[1].Shape[0]
	y := make([]float64, len(c.In[0]))
	for t := range len(y) / d {
		for j := range k {
			e, weight := int(c.In[1][(t*k+j)*2]), c.In[1][(t*k+j)*2+1]
			if e < 0 || e >= n.W[0].Shape[0] {
				return nil, fmt.Errorf("row %d is routed to expert %d of %d", t, e, n.W[0].Shape[0])
			}
			x := slices.Clone(c.In[0][t*d:][:d])
			if attr.OnInput {
				for i := range x {
					x[i] *= weight
				}
				weight = 1
			}
			out, err := m.expert(n, attr, e, x)
			if err != nil {
				return nil, err
			}
			for i, v := range out {
				y[t*d+i] += weight * v
			}
		}
	}
	return y, nil
}

// expert is what expert e makes of x.
func (m *mix) expert(n *graph.Node, attr graph.ExpertsAttr, e int, x []float64) ([]float64, error) {
	matrices, biases := n.ExpertWeights()
	last := len(matrices) - 1
	times := func(i int, x []float64) ([]float64, error) {
		w, err := m.weight(matrices[i], e)
		if err != nil {
			return nil, err
		}
		y := product(x, w)
		if attr.Biased {
			b, err := m.weight(biases[i], e)
			if err != nil {
				return nil, err
			}
			for j, v := range b {
				y[j] += v
			}
		}
		return y, nil
	}
	h, err := times(0, x)
	if err != nil {
		return nil, err
	}
	inner := make([]float64, matrices[last].Shape[2])
	up := h[len(h)-len(inner):]
	if attr.Form == graph.Apart {
		if up, err = times(1, x); err != nil {
			return nil, err
		}
	}
	for i := range inner {
		switch attr.Form {
		case graph.Ungated:
			inner[i] = m.act(h[i])
		case graph.Interleaved:
			inner[i] = m.one(h[2*i], h[2*i+1])
		default:
			inner[i] = m.one(h[i], up[i])
		}
	}
	return times(last, inner)
}

// weight is expert e's part of w.
func (m *mix) weight(w *graph.Weight, e int) ([]float64, error) {
	if m.weights == nil {
		m.weights = map[*graph.Weight]map[int][]float64{}
	}
	if m.weights[w] == nil {
		m.weights[w] = map[int][]float64{}
	}
	if v := m.weights[w][e]; v != nil {
		return v, nil
	}
	v, err := widen(w.Matrix(e))
	m.weights[w][e] = v
	return v, err
}

// product is w·x for w [n, len(x)].
func product(x, w []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += v * w[i*len(x)+j]
		}
	}
	return y
}

var gates = ops(graph.GLU, graph.Act, graph.Experts)

// residual picks the additions to the stream that a function accepts.
func residual(accept func(n *graph.Node) bool) func(l *layer) []*graph.Node {
	return func(l *layer) (list []*graph.Node) {
		for _, n := range l.residuals {
			if accept(n) {
				list = append(list, n)
			}
		}
		return list
	}
}

func isPLE(n *graph.Node) bool { return local(n.In[1]) == "post_norm" }

var blockSpecs = []*spec{
	{id: "embed_scale", outer: true, apply: embedScale, pick: func(l *layer) []*graph.Node {
		if l.index != outside {
			return nil
		}
		return l.of(graph.Embed)[:1]
	}},
	{id: "bias_missing", apart: true, apply: biasMissing, pick: biased, values: untapped},
	{id: "residual_order", one: true, apply: plain(residualOrder), pick: residual(func(n *graph.Node) bool { return n.In[1].Op == graph.RMSNorm })},
	{id: "residual_missing", one: true, pick: residual(func(n *graph.Node) bool { return true }), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.pass(n, 1)
		return "the stream is not added", nil
	})},
	{id: "activation", one: true, apart: true, pick: gates, apply: otherActivation, values: []string{"gelu_erf", "relu"}},
	{id: "gelu_constant", one: true, pick: gates, apply: geluConstant},
	{id: "gate_up_swapped", one: true, apart: true, pick: gates, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		if a, _ := n.Attr.(graph.ExpertsAttr); n.Op == graph.Act || a.Form == graph.Ungated {
			return "", errors.New("it has no up")
		}
		p.mix(n).swapped = true
		return "act(up)·gate", nil
	})},
	{id: "ple_missing", pick: residual(isPLE), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.pass(n, 0)
		return "nothing is added", nil
	})},
	{id: "ple_scale", outer: true, one: true, pick: pleScales, apply: pleScale},
	{id: "ple_position", pick: residual(isPLE), apply: plePosition, values: []string{"after"}},
	{id: "layer_scalar", apply: layerScalar, values: []string{"missing"}, pick: having(graph.Mul, func(_ *plan, n *graph.Node) bool { return local(n) == "out" && len(n.W) > 0 })},
	{id: "softcap_missing", outer: true, pick: ops(graph.Softcap), apply: skipped},
	{id: "softcap_value", outer: true, pick: ops(graph.Softcap), apply: softcapValue},
	{id: "head_wrong", outer: true, pick: named("output"), apply: headWrong, values: []string{"tail", "embed", "rows"}},
	{id: "logits_scale", outer: true, pick: named("output"), apply: logitsScale},
}

// biased are the additions of a bias, and the operations that have one of their own.
func biased(l *layer) (list []*graph.Node) {
	for _, n := range l.of(graph.Add, graph.LayerNorm, graph.Conv, graph.Experts) {
		own := len(n.W) > 1
		switch e, _ := n.Attr.(graph.ExpertsAttr); n.Op {
		case graph.Add:
			own = weighted(l.p, n)
		case graph.Experts:
			own = e.Biased
		}
		if own {
			list = append(list, n)
		}
	}
	return list
}

func biasMissing(p *plan, n *graph.Node, value string) (string, error) {
	if n.Op == graph.Add {
		return skipped(p, n, value)
	}
	if value != "" {
		return "", same("it has no tap of its own")
	}
	if e, ok := n.Attr.(graph.ExpertsAttr); ok {
		matrices, _ := n.ExpertWeights()
		e.Biased = false
		n.Attr, n.W = e, matrices
	} else {
		n.W = n.W[:1]
	}
	return "no bias", nil
}

func embedScale(_ *plan, n *graph.Node, value string) (string, error) {
	a := n.Attr.(graph.EmbedAttr)
	usual := 1.0
	if a.Scale == 1 {
		usual = math.Sqrt(float64(n.Shape.Size()))
	}
	by, err := number(value, usual)
	switch {
	case err != nil:
		return "", err
	case float32(by) == a.Scale:
		return "", same(fmt.Sprintf("the factor is %g", a.Scale))
	}
	n.Attr = graph.EmbedAttr{Scale: float32(by)}
	return fmt.Sprintf("%.7g for %.7g", by, a.Scale), nil
}

// residualOrder is norm(h + x) for h + norm(x).
func residualOrder(p *plan, n *graph.Node) (string, error) {
	norm := n.In[1]
	x := norm.In[0]
	sum := &graph.Node{Op: graph.Add, Name: n.Name + ".sum", Layer: n.Layer, Shape: n.Shape, In: []*graph.Node{n.In[0], x}, Pos: n.Pos}
	at := slices.Index(p.nodes, norm)
	if slices.Index(p.nodes, n.In[0]) > at {
		return "", errors.New("the stream is made behind the norm")
	}
	p.nodes = slices.Insert(p.nodes, at, sum)
	norm.In[0] = sum
	p.touch(norm)
	p.pass(n, 1)
	return local(norm) + " of the sum", nil
}

func otherActivation(p *plan, n *graph.Node, value string) (string, error) {
	attr, _ := n.Activates()
	right := attr.Act
	if value == "" {
		value = "silu"
		if right == graph.SiLU {
			value = "gelu_tanh"
		}
	}
	switch {
	case activations[value] == nil:
		return "", odd(value, "silu", "gelu_tanh", "gelu_erf", "gelu_quick", "relu", "relu_squared", "sigmoid", "tanh")
	case value == right.String():
		return "", same("the activation is " + value)
	}
	p.mix(n).act = activations[value]
	return fmt.Sprintf("%s for %v", value, right), nil
}

// geluConstant is GELU by tanh with two digits of its constant exchanged, or with the one of value.
func geluConstant(p *plan, n *graph.Node, value string) (string, error) {
	if attr, _ := n.Activates(); attr.Act != graph.GELUTanh {
		return "", same("it has no constant")
	}
	c, err := number(value, 0.047415)
	switch {
	case err != nil:
		return "", err
	case math.Abs(c/0.044715-1) < 1e-6:
		return "", same("the constant is 0.044715")
	}
	p.mix(n).act = func(v float64) float64 { return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+c*v*v*v))) }
	return fmt.Sprintf("%g for 0.044715", c), nil
}

// pleScales are the factors of the per-layer embeddings, but for one that a norm hides.
func pleScales(l *layer) (list []*graph.Node) {
	if l.index != outside || len(l.of(graph.Embed)) < 2 {
		return nil
	}
	list = append(list, l.of(graph.Embed)[1])
	for _, n := range l.of(graph.Scale) {
		if n.In[0].Op == graph.Add {
			list = append(list, n)
		}
	}
	return list
}

func pleScale(p *plan, n *graph.Node, value string) (string, error) {
	if n.Op == graph.Embed {
		return embedScale(p, n, value)
	}
	by, err := number(value, 1)
	if err != nil {
		return "", err
	}
	was := n.Attr.(graph.ScaleAttr).By
	if by == was {
		return "", same(fmt.Sprintf("the factor is %g", by))
	}
	n.Attr = graph.ScaleAttr{By: by}
	return fmt.Sprintf("%.7g for %.7g", by, was), nil
}

// plePosition adds the per-layer embedding before the MLP, or after the layer's scalar.
func plePosition(p *plan, n *graph.Node, value string) (string, error) {
	l := p.layers[n.Layer+1]
	gate, at := l.node("inp_gate"), slices.Index(l.residuals, n)
	if gate == nil || at < 2 || !slices.Equal(n.In, []*graph.Node{l.residuals[at-1], l.node("post_norm")}) || gate.In[0] != n.In[0] {
		return "", errors.New("the layer is not built as per-layer embeddings are")
	}
	chain := slices.DeleteFunc(slices.Clone(p.nodes), func(o *graph.Node) bool {
		return o.Layer != n.Layer || slices.Index(p.nodes, o) < slices.Index(p.nodes, gate) || slices.Index(p.nodes, o) > slices.Index(p.nodes, n)
	})
	mlp, attn := l.residuals[at-1], l.residuals[at-2]
	switch value {
	case "":
		reads(p.readers(n), n, mlp)
		p.touch(p.readers(attn)...)
		reads(p.readers(attn), attn, n)
		gate.In[0], n.In[0] = attn, attn
		p.move(attn, chain...)
		return "before the MLP", nil
	case "after":
		out := p.readers(n)
		if len(out) != 1 || out[0].Op != graph.Mul {
			return "", errors.New("no layer scalar follows")
		}
		m := out[0]
		p.touch(gate, m)
		reads(p.readers(m), m, n)
		m.In[0], gate.In[0], n.In[0] = mlp, m, m
		m.Name, n.Name, m.HF, n.HF = n.Name, m.Name, "", m.HF
		p.move(m, chain...)
		return "after the layer's scalar", nil
	}
	return "", odd(value, "after")
}

func layerScalar(p *plan, n *graph.Node, value string) (string, error) {
	switch value {
	case "missing":
		p.pass(n, 0)
		return "left out", nil
	case "":
	default:
		return "", odd(value, "missing")
	}
	w, err := widen(n.W[0])
	if err != nil {
		return "", err
	}
	n.In = append(n.In, p.layers[n.Layer+1].input)
	p.kernels[n] = func(c *reference.Call) ([]float64, error) {
		y := make([]float64, len(c.In[0]))
		for i, v := range c.In[0] {
			y[i] = c.In[1][i] + w[i%len(w)]*(v-c.In[1][i])
		}
		return y, nil
	}
	return "applied to what the layer adds", nil
}

func softcapValue(_ *plan, n *graph.Node, value string) (string, error) {
	was := n.Attr.(graph.ScaleAttr).By
	by, err := number(value, was/2)
	switch {
	case err != nil:
		return "", err
	case !(by > 0):
		return "", fmt.Errorf("cap %g: want a positive number", by)
	case by == was:
		return "", same(fmt.Sprintf("the cap is %g", was))
	}
	n.Attr = graph.ScaleAttr{By: by}
	return fmt.Sprintf("%g for %g", by, was), nil
}

func logitsScale(p *plan, n *graph.Node, value string) (string, error) {
	by, err := number(value, 1/math.Sqrt(float64(n.In[0].Shape.Size())))
	if err != nil || by == 1 {
		return "", fmt.Errorf("factor %q: want a number other than 1", value)
	}
	p.touch(p.insert(n, graph.Scale, graph.ScaleAttr{By: by}))
	return fmt.Sprintf("times %.7g", by), nil
}

// headWrong takes the embedding for the head's weight, displaces the head's rows,
// or loses the last quarter of them.
func headWrong(p *plan, n *graph.Node, value string) (string, error) {
	embed := p.layers[0].first(graph.Embed)
	tied := bytes.Equal(p.weights[embed][0].Data, p.weights[n][0].Data)
	if value == "" {
		value = "embed"
		if tied {
			value = "rows"
		}
	}
	cols := n.W[0].Shape[1]
	switch value {
	case "embed":
		if tied || !slices.Equal(shapeOf(embed), shapeOf(n)) {
			return "", same("the head is the embedding")
		}
		n.W[0] = p.weights[embed][0]
		return "the embedding is the head", nil
	case "rows":
		return "rows are displaced by one", p.rewrite(n, 0, func(w []float32) []float32 {
			return append(w[cols:len(w):len(w)], w[:cols]...)
		})
	case "tail":
		return "the last quarter of the rows is zero", p.rewrite(n, 0, func(w []float32) []float32 {
			clear(w[len(w)/cols*3/4*cols:])
			return w
		})
	}
	return "", odd(value, "embed", "rows", "tail")
}
