package webgpu

import (
	"slices"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
)

// ending is the inputs of a product besides a row and a weight, and the use of its results.
type ending struct {
	Outs  int          // results with rows joined as one weight
	GLU   string       // of pairs of results, an expression of a and b
	Gate  string       // of a result and something else
	Add   bool         // something is added
	Chain chainVariant // steps computed of the row first, if there are any

	Experts bool // each row has a matrix of its own choice
	Biased  bool // and a bias
	Scaled  bool // the choice's weight is a factor of the input: the product is the same
}

// linearVariant is a form of linear.wgsl.
type linearVariant struct {
	layout
	ending
	Lanes  int  // invocations side by side
	Per    int  // rows of the weight, and
	Rows   int  // of activations, of an invocation
	Unroll int  // units read before use
	Whole  bool // runs are multiples of Unroll
}

// unit is the parameters of a piece of linear.wgsl: one of the units read together.
type unit struct {
	linearVariant
	E     int
	With  int  // unit whose head's words are read
	Fixed bool // the place in these words is known
}

// nthUnit returns the parameters for unit e of v.
func nthUnit(v linearVariant, e int) unit {
	word := 1 // units with scales in one word
	if v.pairs() {
		word = 2
	} else if v.Units == 8 {
		word = v.Group / 8
	}
	if !v.Whole {
		return unit{v, e, e, false}
	}
	return unit{v, e, e - e%min(word, v.Unroll), v.Unroll%word == 0}
}

// lanes and unroll are the form of linear.wgsl. Of large, rows of so many elements and results of a row, there are
// twice as many lanes, where the GPU allows as many invocations.
const (
	lanes  = 8
	unroll = 2
	large  = 4096
)

// tile is the work of a workgroup of product.wgsl, and of an invocation.
type tile struct {
	BM, BN, TM, TN int
	Q              int // quads of a row in the workgroup's memory
}

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

// Columns returns the results of an invocation.
func (v aloneVariant) Columns() int {
	if v.GLU != "" {
		return v.Per / 2
	}
	return v.Per
}

// few is how many rows linear.wgsl takes at once where there are several, and many from
// how many on product.wgsl computes a step's.
const (
	few  = 4
	many = 16
)

// tiles is the form of a product's tiles.
var tiles = tile{BM: 64, BN: 64, TM: 8, TN: 4, Q: 8}

// product is a product to lower: of a weight, or of a stack's weights joined.
type product struct {
	p       *planner
	l       *lowered
	w       *weight
	end     ending
	params  params
	columns int // results of a row
	shard   shard
	out, x  gpu.Buffer
	more    []binding // inputs of end
}

// lowerLinear lowers the products of a stack, at its first node, and its adapters.
func lowerLinear(p *planner, l *lowered) {
	s := p.f.stacks[l.node]
	if s.nodes[0] != l.node {
		return // the dispatch of the first node computes the value
	}
	w := p.b.weights[s.key]
	x := product{p: p, l: l, w: w, end: ending{Outs: len(s.nodes)}, columns: w.rows, shard: w.shards[0],
		x: p.ordered(l, w, matrixInput{x: p.values[l.node.In[0]]})}
	if w.columns != nil {
		defer func() { p.free = append(p.free, x.x) }()
	}
	if glu := p.f.gated(s); glu != nil {
		x.out, x.columns, x.end = p.value(glu), w.rows/2, ending{Outs: 1, GLU: gated(glu.Attr.(graph.ActAttr))}
		x.params = params{"n": w.rows, "k": w.k, "column": 0, "stride": w.rows / 2}
		x.lower()
	} else if len(s.nodes) == 1 {
		x.addSingle()
	} else {
		x.out = p.value(s.nodes[0])
		begins, rows := [2]int{w.rows, w.rows}, s.nodes[0].Shape.Size() // of the second and the third
		for i, m := range s.nodes[1:] {
			x.more, begins[i], rows = append(x.more, p.value(m)), rows, rows+m.Shape.Size()
		}
		x.params = params{"n": w.rows, "k": w.k, "second": begins[0], "third": begins[1]}
		x.lower()
	}
	p.adapt(l, s)
}

// matrixInput is the input of experts' matrices: for each row and each choice a row of x, shared by a number of
// choices. If scaled, the choice's weight is a factor.
type matrixInput struct {
	x, routes      gpu.Buffer
	choices, share int
	scaled         bool
}

// ordered returns the rows that a product with w reads: from.x, or a copy in the order of w's columns, to free.
func (p *planner) ordered(l *lowered, w *weight, from matrixInput) gpu.Buffer {
	if w.columns == nil {
		return from.x
	}
	numbers, size := params{"k": w.k}, w.k
	bindings := []binding{nil, from.x, w.columns}
	if from.routes != nil {
		numbers["choices"], numbers["share"], size = from.choices, from.share, w.k*from.choices
		bindings = append(bindings, from.routes)
	}
	out := p.buffer(l.node.Name, p.most(l.node)*size)
	bindings[0] = out
	p.add(l, "order", variant{"Experts": from.routes != nil}, numbers, elements(size), bindings...)
	return out
}

// addSingle lowers a product for itself: of each shard of its weight, and with the sum after it, if possible.
func (x product) addSingle() {
	p, to := x.p, x.l.node
	x.end = ending{Outs: 1}
	glu, shown, at := p.f.gating(to)
	if glu != nil {
		x.end.Gate, to, x.more = gated(glu.Attr.(graph.ActAttr)), glu, []binding{p.values[shown]}
	} else if sum, other := p.f.added(to); sum != nil && p.f.fuses("add") {
		x.end.Add, to, x.more = true, sum, []binding{p.values[other]}
	}
	x.out = p.value(to)
	for _, s := range x.w.shards {
		x.shard, x.columns = s, s.n
		x.params = params{"n": s.n, "k": x.w.k, "column": s.first, "stride": x.w.rows}
		if glu != nil {
			x.params["pitch"], x.params["begin"] = shown.Shape.Size(), at+s.first
		}
		x.lower()
	}
}

// lower adds the dispatches for one row, a few and many.
func (x product) lower() {
	if x.p.b.o.Software {
		v := aloneVariant{x.w.layout, x.end, 4}
		x.add("alone", v, x.params, func(rows int) (int, int, int) {
			return (x.columns + 64*v.Columns() - 1) / (64 * v.Columns()), rows, 1
		}, x.x)
		return
	}
	most := x.p.most(x.l.node)
	x.addRows(1)
	if most > 1 {
		x.addRows(few)
	}
	if most < many || x.matrix() {
		return
	}
	v := productVariant{layout: x.w.layout, ending: x.end, tile: tiles}
	x.add("product", v, x.params, x.tiled(tiles.BM, tiles.BN), x.x).from = many
}

// add adds a dispatch of a row of from.
func (x product) add(shader string, v any, numbers params, g grid, from gpu.Buffer) *dispatch {
	return x.p.add(x.l, shader, v, numbers, g, append([]binding{x.out, from, x.shard.buffer}, x.more...)...)
}

// tiled returns the grid of tiles of so many rows and columns.
func (x product) tiled(rows, width int) grid {
	if x.end.GLU != "" {
		width /= 2
	}
	return func(n int) (int, int, int) { return (x.columns + width - 1) / width, (n + rows - 1) / rows, 1 }
}

// linearOf returns a form of linear.wgsl for rows of k.
func linearOf(l layout, end ending, k, per, rows int) linearVariant {
	units := (k + 31) / 32
	run := (units + 31) / 32
	return linearVariant{layout: l, ending: end, Lanes: lanes, Per: per, Rows: rows, Unroll: unroll,
		Whole: units%unroll == 0 && run%unroll == 0}
}

// addRows adds the dispatch for steps of one row, or of a few, taking rows of them at once.
func (x product) addRows(rows int) {
	v := linearOf(x.w.layout, x.end, x.w.k, 1, rows)
	if x.end.GLU != "" || x.columns > 8192 { // of fewer columns two leave a GPU's processors without work
		v.Per = 2
	}
	if rows == 1 && min(x.w.k, x.columns) >= large && x.p.b.d.Adapter().Limits.Invocations >= 2*lanes*32 {
		v.Lanes *= 2
	}
	groups := (x.columns + v.Lanes - 1) / v.Lanes
	if x.end.GLU == "" {
		groups = (groups + v.Per - 1) / v.Per
	}
	grid := func(step int) (x, y, z int) {
		x, y, _ = flat(groups)
		return x, y, (step + rows - 1) / rows
	}
	numbers, from := x.params, x.x
	if c := x.p.f.folded[x.l.node.In[0]]; rows == 1 && c != nil && (c.by == nil || c.by == x.p.f.stacks[x.l.node]) {
		// the row is computed from c's inputs
		v.Chain, numbers, from = c.chainVariant, numbers.with(c.params), x.p.values[c.x]
		x.more = append(slices.Clone(x.more), x.p.chained(c)...)
		if c.Add {
			x.more = append(x.more, x.p.values[c.sum])
		}
	}
	d := x.add("linear", v, numbers, grid, from)
	if d.from, d.below = 1, 2; rows > 1 {
		d.from, d.below = 2, many
	}
}
