package cpu

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/simd"
)

// experts are a node's weights by expert, and its buffers.
type experts struct {
	graph.ExpertsAttr
	first  [2][]*product // products with an expert's rows: gate and up as one, gate and up, or up alone
	down   []*product
	gated  []*gated    // first with the activation, or nil
	biases [][]float32 // of first and down, by weight, [experts, its rows]; nil for none
	ff     int
	glu    rowFunc    // nil where there is no gate
	act    simd.Curve // of up, then
	rows   [][]int    // by expert: the routed (row, choice) pairs, row*k + choice
	at     []int      // by pair: its row of y

	singles bool // single can run
	chosen  [2]together
	ids     []int // of a single row's experts, by choice

	// Buffers, used by others between runs.
	h []float32 // [rows, 2·ff], an expert's
	// [rows, ff], an expert's, where gate and up are apart; of a single row gate and up, where interleaved
	up []float32
	y  []float32 // [rows·k, d], expert after expert: the inputs, and then the results
}

// newExperts returns the work of n; n's values have room.
func (p *planner) newExperts(n *graph.Node) (*experts, error) {
	e := p.e
	attr, _ := n.Attr.(graph.ExpertsAttr)
	matrices, biases := n.ExpertWeights()
	last := len(matrices) - 1
	count, ff := matrices[0].Shape[0], matrices[last].Shape[2]
	rows, d, k := p.rows(n), n.Shape.Size(), n.In[1].Shape[0]
	x := &experts{ExpertsAttr: attr, ff: ff, rows: make([][]int, count), at: make([]int, rows*k), act: curves[attr.Act]}
	if attr.Form != graph.Ungated {
		x.glu = gluKernel(n)
	}
	var err [5]error
	x.h, err[1] = p.take(rows * 2 * ff)
	x.y, err[2] = p.take(rows * k * d)
	if attr.Form == graph.Apart || attr.Form == graph.Interleaved {
		x.up, err[3] = p.take(max(rows, 2) * ff)
		p.free = append(p.free, x.up)
	}
	p.free = append(p.free, x.h, x.y)
	for _, w := range biases {
		b, e := vector(w)
		x.biases, err[4] = append(x.biases, b), errors.Join(err[4], e)
	}
	for i := range count {
		for j, w := range matrices[:last] {
			x.first[j] = append(x.first[j], newProduct(e, w, i))
		}
		x.down = append(x.down, newProduct(e, matrices[last], i))
	}
	p.fuseExperts(n, x, matrices)
	return x, errors.Join(err[:]...)
}

// fuseExperts makes one loop of gate, up and the activation, where possible.
func (p *planner) fuseExperts(n *graph.Node, x *experts, matrices []*graph.Weight) {
	e := p.e
	if !e.b.fuses(fuseGLU) || e.b.packed[matrices[0]] == nil || x.Biased {
		return
	}
	whole := x.Form == graph.Fused && x.ff%panel.Rows == 0
	alike := x.Form == graph.Apart && e.b.packed[matrices[1]] != nil
	for i, gate := range x.first[0] {
		alike = alike && sharesForms(gate.panels, x.first[1][i].panels)
	}
	if !whole && !alike {
		return
	}
	e.fused = append(e.fused, fuseGLU+" "+n.Name)
	for i, gate := range x.first[0] {
		up, first := gate, x.ff/panel.Rows
		if x.Form == graph.Apart {
			up, first = x.first[1][i], 0
		}
		x.gated = append(x.gated, newGated(e, gate, up, first, n))
	}
	x.singles = !x.OnInput && e.b.packed[matrices[len(matrices)-1]] != nil && e.b.pool.lanes == 0
	for _, gate := range x.first[0] {
		x.singles = x.singles && sharesForms(gate.panels, x.first[0][0].panels)
	}
	x.ids = make([]int, n.In[1].Shape[0])
	x.chosen[0].start(len(x.ids), func(i int) func(worker, from, to int) error { return x.gated[x.ids[i]].body })
	x.chosen[1].start(len(x.ids), func(i int) func(worker, from, to int) error { return x.down[x.ids[i]].body })
}

// distinct sets ids to a single row's experts, and reports whether none is chosen twice.
func (x *experts) distinct(routes []float32) bool {
	for i := range x.ids {
		x.ids[i] = int(routes[2*i])
		if len(x.rows[x.ids[i]]) > 1 {
			return false
		}
	}
	return true
}

// single runs the experts of a step's only row. Their products share two loops, since a small product is little more
// than the wait at its end. The results are rows of y, by choice.
func (x *experts) single(in []float32, d int) error {
	e, first, down := x.down[0].e, &x.chosen[0], &x.chosen[1]
	first.parts, down.parts = first.parts[:0], down.parts[:0]
	for i, id := range x.ids {
		g, of := x.gated[id], (*graph.Node)(nil)
		if i > 0 {
			of = x.gated[x.ids[0]].of // rounded once
		}
		if err := g.begin(of, x.h[i*x.ff:(i+1)*x.ff], in, 1); err != nil {
			return err
		}
		first.parts, down.parts = append(first.parts, g.gate), append(down.parts, x.down[id])
	}
	if err := first.run(e, x.gated[0].panels); err != nil {
		return err
	}
	defer func() {
		for _, p := range down.parts {
			p.acts = &e.x
		}
	}()
	for i, p := range down.parts {
		p.acts = &e.x.own[i]
		if err := p.begin(nil, x.y[i*d:(i+1)*d], x.h[i*x.ff:(i+1)*x.ff], 1); err != nil {
			return err
		}
	}
	return down.run(e, allPanels)
}

// experts runs each expert over the rows routed to the expert, and then sums each row's choices in their order.
func (e *executable) experts(n *graph.Node, x *experts, out, in, routes []float32) func() error {
	d, k := n.Shape.Size(), n.In[1].Shape[0]
	gather := func(_, from, to int) error {
		for i := from * k; i < to*k; i++ {
			row := x.y[x.at[i]*d:][:d]
			if copy(row, in[i/k*d:]); x.OnInput {
				simd.Scale(row, row, routes[2*i+1])
			}
		}
		return nil
	}
	sum := func(_, from, to int) error {
		clear(out[from*d : to*d])
		for i := from * k; i < to*k; i++ {
			weight := routes[2*i+1]
			if x.OnInput {
				weight = 1
			}
			simd.AddScaled(out[i/k*d:][:d], x.y[x.at[i]*d:][:d], weight)
		}
		return nil
	}
	return func() error {
		rows, grain := e.count(n), max(1, soloWork/(k*d))
		for i := range x.rows {
			x.rows[i] = x.rows[i][:0]
		}
		for i := range rows * k {
			id := int(routes[2*i])
			if id < 0 || id >= len(x.rows) {
				return fmt.Errorf("row %d is routed to expert %d of %d", i/k, id, len(x.rows))
			}
			x.rows[id] = append(x.rows[id], i)
		}
		if x.singles && rows == 1 && e.expert == nil && k*x.ff <= len(x.h) && x.distinct(routes) {
			for i := range k {
				x.at[i] = i
			}
			if err := x.single(in, d); err != nil {
				return err
			}
			return e.b.pool.run(1, 1, sum)
		}
		from := 0
		for _, pairs := range x.rows {
			for i, r := range pairs {
				x.at[r] = from + i
			}
			from += len(pairs)
		}
		err := e.b.pool.run(rows, grain, gather)
		from = 0
		for id, pairs := range x.rows {
			if len(pairs) > 0 && err == nil {
				err = x.expert(n, id, x.y[from*d:][:len(pairs)*d], d, e.expert)
			}
			from += len(pairs)
		}
		if err != nil {
			return err
		}
		return e.b.pool.run(rows, grain, sum)
	}
}

// expert runs one MLP in place: the rows lie together, so each weight row is read once. see may be nil.
func (x *experts) expert(n *graph.Node, id int, y []float32, d int, see backend.Expert) error {
	rows := len(x.rows[id])
	if err := x.inner(id, y, rows); err != nil {
		return err
	}
	if see != nil {
		see(n, id, y, x.h[:rows*x.ff])
	}
	if err := x.down[id].run(nil, y, x.h, rows); err != nil {
		return err
	}
	x.addBias(len(x.biases)-1, id, y, d)
	return nil
}

// inner makes act(gate)·up, [rows, ff], of an expert's rows.
func (x *experts) inner(id int, in []float32, rows int) error {
	if x.gated != nil {
		return x.gated[id].run(nil, x.h, in, rows)
	}
	ff := x.ff
	width := 2 * ff
	if x.Form == graph.Apart || x.Form == graph.Ungated {
		width = ff
	}
	if err := x.first[0][id].run(nil, x.h, in, rows); err != nil {
		return err
	}
	x.addBias(0, id, x.h[:rows*width], width)
	if x.Form == graph.Ungated {
		return x.down[id].e.b.pool.run(rows, max(1, soloWork/ff), func(_, from, to int) error {
			x.act.Apply(x.h[from*ff:to*ff], x.h[from*ff:to*ff])
			return nil
		})
	}
	if x.Form == graph.Apart {
		if err := x.first[1][id].run(nil, x.up, in, rows); err != nil {
			return err
		}
		x.addBias(1, id, x.up[:rows*ff], ff)
		x.glu(x.h[:rows*ff], x.h[:rows*ff], x.up[:rows*ff])
		return nil
	}
	for i := range rows { // [rows, 2·ff] to [rows, ff], in place
		h := x.h[i*width : (i+1)*width]
		gate, up := h[:ff], h[ff:]
		if x.Form == graph.Interleaved {
			gate, up = x.up[:ff], x.up[ff:2*ff]
			for j := range ff {
				gate[j], up[j] = h[2*j], h[2*j+1]
			}
		}
		x.glu(x.h[i*ff:(i+1)*ff], gate, up)
	}
	return nil
}

// addBias adds the i-th bias of an expert to rows of width, if there are biases.
func (x *experts) addBias(i, id int, y []float32, width int) {
	if !x.Biased {
		return
	}
	b := x.biases[i][id*width : (id+1)*width]
	for ; len(y) > 0; y = y[width:] {
		simd.Add(y[:width], y[:width], b)
	}
}
