package webgpu

import (
	"cmp"
	"fmt"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// The Params of Route and of Experts.
type (
	routeParams  struct{ experts, choices int }
	chooseParams struct {
		routeParams
		factor float32
	}
	chooseGroupsParams struct {
		chooseParams
		kept, best int
	}
	expertParams  struct{ n, k, column, stride, first, count, each, choices, share int }
	combineParams struct{ size, choices int }
)

// route lowers a Route: the usual one by a kernel of its own.
func (p *planner) route(l *lowered) error {
	n := l.node
	a, _ := n.Attr.(graph.RouteAttr)
	scale, bias := n.RouteWeights()
	in := []gpu.Range{{Buffer: p.values[n.In[0]]}}
	for _, w := range []*graph.Weight{scale, bias} {
		if w == nil {
			continue
		}
		b, err := p.e.b.vector(weights{w})
		if err != nil {
			return err
		}
		in = append(in, gpu.Range{Buffer: b})
	}
	usual := routeParams{n.In[0].Shape.Size(), n.Shape[0]}
	if scale != nil && a == (graph.RouteAttr{}) {
		return p.add(l, "route", nil, usual, elements(1), p.values[n], in...)
	}
	v := variant{"Weigh": a.Weigh.String(), "Normalize": a.Normalize, "Eps": "", "Bias": bias != nil, "Scale": scale != nil, "Groups": 0, "Weighed": bias != nil || a.Best > 1}
	if a.Eps != 0 {
		v["Eps"] = fmt.Sprintf(" + %e", float32(a.Eps))
	}
	rules := chooseParams{usual, float32(cmp.Or(a.Factor, 1))}
	var params any = rules
	if a.Groups > 1 {
		v["Groups"], params = a.Groups, chooseGroupsParams{rules, a.Kept, max(a.Best, 1)}
	}
	return p.add(l, "choose", v, params, elements(1), p.values[n], in...)
}

// experts lowers the MLPs of each row's choices, and their sum.
func (p *planner) experts(l *lowered) error {
	n := l.node
	attr, _ := n.Attr.(graph.ExpertsAttr)
	matrices, biases := n.ExpertWeights()
	biases = append(biases, make([]*graph.Weight, len(matrices))...) // nil where there are none
	last := len(matrices) - 1
	first, down, x, routes := p.e.b.weights[weights{matrices[0]}], p.e.b.weights[weights{matrices[last]}], p.values[n.In[0]], p.values[n.In[1]]
	k, ff, pairs := n.In[1].Shape[0], down.k, p.most(n)*n.In[1].Shape[0]
	made := make([]gpu.Buffer, 3, 4) // of the pairs of a row and a choice
	if attr.Form == graph.Apart {
		made = made[:4]
	}
	for i, size := range []int{first.rows, ff, first.k, ff}[:len(made)] {
		b, err := p.buffer(n.Name, pairs*size)
		if err != nil {
			return err
		}
		made[i] = b
	}
	defer func() { p.free = append(p.free, made...) }()
	read := matrixInput{x, routes, k, k, attr.OnInput}
	if err := p.matrices(l, first, biases[0], read, made[0]); err != nil {
		return err
	}
	if attr.Form == graph.Apart {
		if err := p.matrices(l, p.e.b.weights[weights{matrices[1]}], biases[1], read, made[3]); err != nil {
			return err
		}
	}
	if err := p.activate(l, attr, k*ff, ff, made); err != nil {
		return err
	}
	if err := p.matrices(l, down, biases[last], matrixInput{made[1], routes, k, 1, false}, made[2]); err != nil {
		return err
	}
	in := []gpu.Range{{Buffer: made[2]}}
	if !attr.OnInput {
		in = append(in, gpu.Range{Buffer: routes})
	}
	return p.add(l, "combine", variant{"Weighed": !attr.OnInput}, combineParams{n.Shape.Size(), k}, elements(n.Shape.Size()), p.values[n], in...)
}

// activate adds the dispatch between the matrices of experts: of size elements of a row, ff of
// each choice, from made[0], and made[3] where up is apart, to made[1].
func (p *planner) activate(l *lowered, attr graph.ExpertsAttr, size, ff int, made []gpu.Buffer) error {
	v, params, in := variant{"Is": gated(attr.ActAttr)}, mapParams{size: size}, []gpu.Range{{Buffer: made[0]}}
	switch attr.Form {
	case graph.Fused:
		v["Split"], params.period = true, ff
	case graph.Interleaved:
		v["Interleaved"] = true
	case graph.Apart:
		v["Binary"], in = true, append(in, gpu.Range{Buffer: made[3]})
	case graph.Ungated:
		v["Is"] = activated(attr.ActAttr)
	}
	return p.add(l, "map", v, params, elements(size), made[1], in...)
}

// matrixInput is what experts' matrices multiply: for each row and each of its choices a row of
// x, which share of the choices read. With scaled the choice's weight multiplies it.
type matrixInput struct {
	x, routes      gpu.Buffer
	choices, share int
	scaled         bool
}

// matrices multiplies what each pair reads by its expert's matrix, and adds its bias, which may
// be nil.
func (p *planner) matrices(l *lowered, w *weight, bias *graph.Weight, from matrixInput, out gpu.Buffer) error {
	end := ending{Outs: 1, Experts: true, Biased: bias != nil, Scaled: from.scaled}
	v := linearVariant{layout: w.layout, ending: end, Lanes: lanes, Per: 1, Rows: 1, Unroll: unroll}
	var more []gpu.Range
	if bias != nil {
		b, err := p.e.b.vector(weights{bias})
		if err != nil {
			return err
		}
		more = append(more, gpu.Range{Buffer: b})
	}
	for _, s := range w.shards {
		params := expertParams{w.rows, w.k, 0, w.rows, s.first, s.n, w.each, from.choices, from.share}
		grid := func(rows int) (x, y, z int) {
			x, y, _ = flat((w.rows + lanes - 1) / lanes)
			return x, y, rows * from.choices
		}
		in := append([]gpu.Range{{Buffer: from.x}, {Buffer: s.buffer}, {Buffer: from.routes}}, more...)
		if err := p.add(l, "linear", v, params, grid, out, in...); err != nil {
			return err
		}
	}
	return nil
}
