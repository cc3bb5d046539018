package webgpu

import (
	"cmp"
	"fmt"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// lowerRoute lowers a Route: the usual form by a kernel of its own.
func lowerRoute(p *planner, l *lowered) {
	n := l.node
	a, _ := n.Attr.(graph.RouteAttr)
	scale, bias := n.RouteWeights()
	bindings := []binding{p.values[n], p.values[n.In[0]]}
	for _, w := range []*graph.Weight{scale, bias} {
		if w != nil {
			bindings = append(bindings, p.vector(w))
		}
	}
	numbers := params{"experts": n.In[0].Shape.Size(), "choices": n.Shape[0]}
	if scale != nil && a == (graph.RouteAttr{}) {
		p.add(l, "route", nil, numbers, elements(1), bindings...)
		return
	}
	v := variant{"Weigh": a.Weigh.String(), "Normalize": a.Normalize, "Eps": "", "Bias": bias != nil,
		"Scale": scale != nil, "Groups": 0,
		"Weighed": bias != nil || a.Best > 1}
	if a.Weigh == graph.SparseMixer {
		numbers["near"] = float32(a.Near)
	}
	if a.Eps != 0 {
		v["Eps"] = fmt.Sprintf(" + %e", float32(a.Eps))
	}
	numbers["factor"] = float32(cmp.Or(a.Factor, 1))
	if a.Groups > 1 {
		v["Groups"], numbers["kept"], numbers["best"] = a.Groups, a.Kept, max(a.Best, 1)
	}
	p.add(l, "choose", v, numbers, elements(1), bindings...)
}

// lowerExperts lowers the MLPs of each row's choices, and their sum.
func lowerExperts(p *planner, l *lowered) {
	n := l.node
	attr, _ := n.Attr.(graph.ExpertsAttr)
	matrices, biases := n.ExpertWeights()
	biases = append(biases, make([]*graph.Weight, len(matrices))...) // nil where there are none
	last := len(matrices) - 1
	first, down := p.b.weights[weights{matrices[0]}], p.b.weights[weights{matrices[last]}]
	x, routes := p.values[n.In[0]], p.values[n.In[1]]
	k, ff, pairs := n.In[1].Shape[0], down.k, p.most(n)*n.In[1].Shape[0]
	made := make([]gpu.Buffer, 3, 4) // of the pairs of a row and a choice
	if attr.Form == graph.Apart {
		made = made[:4]
	}
	for i, size := range []int{first.rows, ff, first.k, ff}[:len(made)] {
		made[i] = p.buffer(n.Name, pairs*size)
	}
	read := matrixInput{x, routes, k, k, attr.OnInput}
	p.matrices(l, first, biases[0], read, made[0])
	if attr.Form == graph.Apart {
		p.matrices(l, p.b.weights[weights{matrices[1]}], biases[1], read, made[3])
	}
	p.activate(l, attr, k*ff, ff, made)
	p.matrices(l, down, biases[last], matrixInput{made[1], routes, k, 1, false}, made[2])
	bindings := []binding{p.values[n], made[2]}
	if !attr.OnInput {
		bindings = append(bindings, routes)
	}
	size := n.Shape.Size()
	weighed := variant{"Weighed": !attr.OnInput}
	p.add(l, "combine", weighed, params{"size": size, "choices": k}, elements(size), bindings...)
	p.free = append(p.free, made...)
}

// activate adds the dispatch between the matrices of experts: of size elements of a row, ff of
// each choice, from made[0], and made[3] where up is apart, to made[1].
func (p *planner) activate(l *lowered, attr graph.ExpertsAttr, size, ff int, made []gpu.Buffer) {
	v, period, bindings := variant{"Is": gated(attr.ActAttr)}, 0, []binding{made[1], made[0]}
	switch attr.Form {
	case graph.Fused:
		v["Split"], period = true, ff
	case graph.Interleaved:
		v["Interleaved"] = true
	case graph.Apart:
		v["Binary"], bindings = true, append(bindings, made[3])
	case graph.Ungated:
		v["Is"] = activated(attr.ActAttr)
	}
	p.add(l, "map", v, params{"size": size, "period": period, "value": float32(0)}, elements(size), bindings...)
}

// matrices multiplies each pair's input by its expert's matrix, and adds the matrix's bias, or none for nil.
func (p *planner) matrices(l *lowered, w *weight, bias *graph.Weight, from matrixInput, out gpu.Buffer) {
	end := ending{Outs: 1, Experts: true, Biased: bias != nil, Scaled: from.scaled}
	v := linearOf(w.layout, end, w.k, 1, 1)
	grid := func(rows int) (x, y, z int) {
		x, y, _ = flat((w.rows + lanes - 1) / lanes)
		return x, y, rows * from.choices
	}
	if from.x = p.ordered(l, w, from); w.columns != nil {
		from.share = 1
		defer func() { p.free = append(p.free, from.x) }()
	}
	for _, s := range w.shards {
		bindings := []binding{out, from.x, s.buffer, from.routes}
		if bias != nil {
			bindings = append(bindings, p.vector(bias))
		}
		p.add(l, "linear", v, params{"n": w.rows, "k": w.k, "column": 0, "stride": w.rows,
			"first": s.first, "count": s.n,
			"each":    w.each,
			"choices": from.choices, "share": from.share}, grid, bindings...)
	}
}
