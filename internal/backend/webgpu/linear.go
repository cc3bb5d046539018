package webgpu

import (
	"fmt"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// The Params of products.
type (
	linearParams struct{ n, k, column, stride int }
	stackParams  struct{ n, k, second, third int }
	gateParams   struct {
		linearParams
		pitch, begin int
	}
	foldedLinear struct {
		linearParams
		chainParams
	}
	foldedGate struct {
		gateParams
		chainParams
	}
	foldedStack struct {
		stackParams
		chainParams
	}
)

// ending is what a product reads besides a row and a weight, and does with its results.
type ending struct {
	Outs  int          // results whose rows lie as one weight
	GLU   string       // of pairs of results, an expression of a and b
	Gate  string       // of a result and something else
	Add   bool         // something is added
	Chain chainVariant // steps computed of the row first, if there are any

	Experts bool // each row has a matrix of its own choice
	Biased  bool // and a bias
	Scaled  bool // and the choice's weight multiplies what it reads: the product, which is the same
}

// Last is the number of the binding of the chain's weights.
func (e ending) Last() int {
	if e.Add || e.Gate != "" {
		return 6
	}
	return 4 + e.Outs
}

// linearVariant is a form of linear.wgsl.
type linearVariant struct {
	layout
	ending
	Lanes  int // invocations side by side
	Per    int // rows of the weight, and
	Rows   int // of activations, of an invocation
	Unroll int // units that are read before they are used
}

// unit is the parameters of a piece of it: which of the units read together.
type unit struct {
	linearVariant
	E int
}

// lanes and unroll are the form of linear.wgsl.
const (
	lanes  = 8
	unroll = 2
)

// tile is what a workgroup of product.wgsl computes, and an invocation of it.
type tile struct {
	BM, BN, TM, TN int
	Q              int // quads of a row that are in the workgroup's memory
}

// TX is how many invocations share a tile's row.
func (t tile) TX() int { return t.BN / t.TN }

// TY is how many share a column.
func (t tile) TY() int { return t.BM / t.TM }

// Threads are the invocations.
func (t tile) Threads() int { return t.TX() * t.TY() }

// productVariant is a form of product.wgsl.
type productVariant struct {
	layout
	ending
	tile
}

// aloneVariant is a form of alone.wgsl.
type aloneVariant struct {
	layout
	ending
	Per int // rows of the weight of an invocation
}

// Columns is how many results an invocation has.
func (v aloneVariant) Columns() int {
	if v.GLU != "" {
		return v.Per / 2
	}
	return v.Per
}

// Cols is how many results of a row an invocation has.
func (v productVariant) Cols() int {
	if v.GLU != "" {
		return v.TN / 2
	}
	return v.TN
}

// few is how many rows linear.wgsl takes at once where there are several, and many from
// how many on product.wgsl computes a step's.
const (
	few  = 4
	many = 16
)

// tiles is the form of a product's tiles.
var tiles = tile{BM: 64, BN: 64, TM: 8, TN: 4, Q: 8}

// linear lowers the products of a stack, at its first node.
func (p *planner) linear(l *lowered) error {
	n := l.node
	s := p.stacks[n]
	w, x := p.e.b.weights[s.key], p.values[n.In[0]]
	end := ending{Outs: len(s.nodes)}
	params := stackParams{n: w.rows, k: w.k, second: w.rows, third: w.rows}
	if glu := p.gated(s); glu != nil {
		out, err := p.value(glu)
		if err != nil {
			return err
		}
		end.Outs, end.GLU = 1, gated(glu.Attr.(graph.ActAttr))
		return p.products(l, w, end, linearParams{w.rows, w.k, 0, w.rows / 2}, w.rows/2, w.shards[0], out, x)
	}
	if len(s.nodes) == 1 {
		return p.single(l, w, x)
	}
	var outs []gpu.Buffer
	rows := 0
	for i, m := range s.nodes {
		out, err := p.value(m)
		if err != nil {
			return err
		}
		outs = append(outs, out)
		switch rows += m.Shape.Size(); i {
		case 0:
			params.second = rows
		case 1:
			params.third = rows
		}
	}
	return p.products(l, w, end, params, w.rows, w.shards[0], outs[0], x, outs[1:]...)
}

// single lowers a product that is alone: of each shard of its weight, and with the sum
// that it goes into, if that can be.
func (p *planner) single(l *lowered, w *weight, x gpu.Buffer) error {
	end, to := ending{Outs: 1}, l.node
	var more []gpu.Buffer
	glu, shown, at := p.gating(l.node)
	if glu != nil {
		end.Gate, to, more = gated(glu.Attr.(graph.ActAttr)), glu, []gpu.Buffer{p.values[shown]}
	} else if sum, other := p.added(l.node); sum != nil && p.fuses("add") {
		end.Add, to, more = true, sum, []gpu.Buffer{p.values[other]}
	}
	out, err := p.value(to)
	if err != nil {
		return err
	}
	for _, s := range w.shards {
		var params any = linearParams{s.n, w.k, s.first, w.rows}
		if glu != nil {
			params = gateParams{linearParams{s.n, w.k, s.first, w.rows}, shown.Shape.Size(), at + s.first}
		}
		if err := p.products(l, w, end, params, s.n, s, out, x, more...); err != nil {
			return err
		}
	}
	return nil
}

// products adds the dispatches of a product of columns results, for one row, a few and
// many.
func (p *planner) products(l *lowered, w *weight, end ending, params any, columns int, s shard, out gpu.Buffer, x gpu.Buffer, more ...gpu.Buffer) error {
	in := []gpu.Range{{Buffer: x}, {Buffer: s.buffer}}
	for _, b := range more {
		in = append(in, gpu.Range{Buffer: b})
	}
	if p.e.b.o.Software {
		v := aloneVariant{w.layout, end, 4}
		grid := func(rows int) (x, y, z int) { return (columns + 64*v.Columns() - 1) / (64 * v.Columns()), rows, 1 }
		return p.add(l, "alone", v, params, grid, out, in...)
	}
	most := p.most(l.node)
	for _, rows := range []int{1, few} {
		if rows > 1 && most == 1 {
			continue
		}
		if err := p.rows(l, w, end, params, columns, rows, out, in); err != nil {
			return err
		}
	}
	if most < many {
		return nil
	}
	if done, err := p.matrix(l, w, end, params, columns, s, out, x, in[2:]...); done || err != nil {
		return err
	}
	v := productVariant{layout: w.layout, ending: end, tile: tiles}
	width := v.BN
	if end.GLU != "" {
		width /= 2
	}
	grid := func(rows int) (x, y, z int) { return (columns + width - 1) / width, (rows + v.BM - 1) / v.BM, 1 }
	if err := p.add(l, "product", v, params, grid, out, in...); err != nil {
		return err
	}
	l.dispatches[len(l.dispatches)-1].from = many
	return nil
}

// rows adds the dispatch for steps of one row, or of a few, of which it takes so many at
// once.
func (p *planner) rows(l *lowered, w *weight, end ending, params any, columns, rows int, out gpu.Buffer, in []gpu.Range) (err error) {
	v := linearVariant{layout: w.layout, ending: end, Lanes: lanes, Per: 1, Rows: rows, Unroll: unroll}
	if w.k >= 128*32 && rows == 1 {
		v.Unroll = 2 * unroll // runs are as long
	}
	if end.GLU != "" || columns >= 4096 {
		v.Per = 2
	}
	groups := (columns + lanes - 1) / lanes
	if end.GLU == "" {
		groups = (groups + v.Per - 1) / v.Per
	}
	grid := func(step int) (x, y, z int) {
		x, y, _ = flat(groups)
		return x, y, (step + rows - 1) / rows
	}
	if c := p.folded[l.node.In[0]]; rows == 1 && c != nil && (c.by == nil || c.by == p.stacks[l.node]) {
		if params, in, err = p.folding(c, params, in); err != nil {
			return err
		}
		v.Chain = c.chainVariant
	}
	if err := p.add(l, "linear", v, params, grid, out, in...); err != nil {
		return err
	}
	d := l.dispatches[len(l.dispatches)-1]
	d.from, d.below = 1, 2
	if rows > 1 {
		d.from, d.below = 2, many
	}
	return nil
}

// folding makes a product of c's row one of what c reads.
func (p *planner) folding(c *normChain, params any, in []gpu.Range) (any, []gpu.Range, error) {
	in, err := p.chained(c, append([]gpu.Range{{Buffer: p.values[c.x]}}, in[1:]...))
	if c.Add {
		in = append(in, gpu.Range{Buffer: p.values[c.sum]})
	}
	switch q := params.(type) {
	case stackParams:
		return foldedStack{q, c.params}, in, err
	case gateParams:
		return foldedGate{q, c.params}, in, err
	}
	return foldedLinear{params.(linearParams), c.params}, in, err
}

// value is the buffer of n's value, which is made where it has none.
func (p *planner) value(n *graph.Node) (gpu.Buffer, error) {
	if b := p.values[n]; b != nil {
		return b, nil
	}
	b, err := p.buffer(n.Name, p.most(n)*n.Shape.Size())
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n, err)
	}
	p.values[n] = b
	return b, nil
}
