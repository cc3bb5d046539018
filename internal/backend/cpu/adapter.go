package cpu

import (
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/simd"
)

// adapted adds the adapters' share to products of the same rows: for each pair
//
//	low = A x            simd.DotsF32
//	y   = fma(B low, s, y)  simd.DotsF32, simd.AddScaled
//
// in float32, the pairs of a row in the order of its adapters. A row's bits do not depend on other rows. A step without
// pairs costs a look at a length.
type adapted struct {
	e     *executable
	x     []float32 // [rows, k], the products' input
	nodes []*graph.Node
	outs  [][]float32 // by node, [rows, n]

	// Work of the running step: rows with the same adapters are taken together.
	lows      []low
	sums      []sum
	starts    []int // of the running loop: the first piece of each of lows, or of sums
	down, add func(worker, from, to int) error
}

// adapterRoom is the memory of a plan for steps with adapters.
type adapterRoom struct {
	low    []float32    // the first halves of pairs
	wide   [2][]float32 // a gate and the gated values, for the rows of a step
	widest int          // elements of a row of wide, for the widest gate
}

// low is the first half of a pair for some rows.
type low struct {
	pair  *backend.Pair
	scale float32
	y     []float32 // [rows, rank], in adapterRoom.low
	row   int
	rows  int
}

// sum is some rows of a product, and the adapter's addends.
type sum struct {
	node      int
	row, rows int
	from, to  int // of lows
}

// Sizes of a piece: rows of the step, rows of A, columns of the sum.
const (
	adaptedRows = 32
	lowRows     = 16
	sumColumns  = 1024
	littleWork  = 1 << 17 // products of two numbers done by a single thread sooner than others begin
)

// adapt returns products, the kernel of nodes that read x, followed by the adapters' addends.
func (e *executable) adapt(x []float32, nodes []*graph.Node, outs [][]float32, products func() error) func() error {
	a := e.newAdapted(x, nodes, outs)
	return func() error { return a.run(products) }
}

func (e *executable) newAdapted(x []float32, nodes []*graph.Node, outs [][]float32) *adapted {
	a := &adapted{e: e, x: x, nodes: nodes, outs: outs}
	a.down = func(_, from, to int) error {
		for ; from < to; from++ {
			i := a.holder(from)
			a.lowPiece(&a.lows[i], from-a.starts[i])
		}
		return nil
	}
	a.add = func(worker, from, to int) error {
		for ; from < to; from++ {
			i := a.holder(from)
			a.sumPiece(&e.scratch[worker], &a.sums[i], from-a.starts[i])
		}
		return nil
	}
	return a
}

// holder returns the index of the part holding a piece.
func (a *adapted) holder(piece int) int {
	i, found := slices.BinarySearch(a.starts, piece)
	if !found {
		i--
	}
	return i
}

// findWork lists the step's additions, and reports whether there are any.
func (a *adapted) findWork() bool {
	a.lows, a.sums = a.lows[:0], a.sums[:0]
	all := a.e.rowsOf(a.nodes[0]).Adapters
	for i := 0; i < len(all); {
		blend, first := all[i], i
		for i < len(all) && all[i] == blend {
			i++
		}
		if blend == nil {
			continue
		}
		for node, n := range a.nodes {
			from := len(a.lows)
			for _, part := range blend.Parts {
				if p := part.Pairs[n.W[0]]; p != nil {
					scale := float32(part.By * p.Scale)
					a.lows = append(a.lows, low{pair: p, scale: scale, row: first, rows: i - first})
				}
			}
			if to := len(a.lows); to > from {
				a.sums = append(a.sums, sum{node, first, i - first, from, to})
			}
		}
	}
	return len(a.sums) > 0
}

// run computes the products with their addends. A product may overwrite its input.
func (a *adapted) run(products func() error) error {
	if len(a.e.step.Adapters) == 0 || !a.findWork() {
		return products()
	}
	if err := a.computeFirst(); err != nil {
		return err
	}
	if err := products(); err != nil {
		return err
	}
	return a.addSecond()
}

// computeFirst computes the first halves.
func (a *adapted) computeFirst() error {
	pieces, size := 0, 0
	a.starts = a.starts[:0]
	for _, l := range a.lows {
		a.starts = append(a.starts, pieces)
		pieces += pieceCount(l.rows, adaptedRows) * pieceCount(l.pair.Rank, lowRows)
		size += l.rows * l.pair.Rank
	}
	a.e.adapters.low = grow(a.e.adapters.low, size)
	rest := a.e.adapters.low
	for i := range a.lows {
		l := &a.lows[i]
		l.y, rest = rest[:l.rows*l.pair.Rank], rest[l.rows*l.pair.Rank:]
	}
	return a.loop(pieces, size*a.nodes[0].W[0].Shape.Last(), a.down)
}

// addSecond computes the second halves, and adds the results.
func (a *adapted) addSecond() error {
	pieces, work := 0, 0
	a.starts = a.starts[:0]
	for _, s := range a.sums {
		n := a.nodes[s.node].Shape.Size()
		a.starts = append(a.starts, pieces)
		pieces += pieceCount(s.rows, adaptedRows) * pieceCount(n, sumColumns)
		for _, l := range a.lows[s.from:s.to] {
			work += s.rows * n * l.pair.Rank
		}
	}
	return a.loop(pieces, work, a.add)
}

func (a *adapted) loop(pieces, work int, f func(worker, from, to int) error) error {
	grain := 1
	if work <= littleWork {
		grain = pieces
	}
	p := a.e.b.pool
	defer p.part("")
	p.part("adapters")
	return p.run(pieces, grain, f)
}

// lowPiece multiplies some rows of x by some rows of A.
func (a *adapted) lowPiece(l *low, piece int) {
	k, rank := a.nodes[0].W[0].Shape.Last(), l.pair.Rank
	blocks := pieceCount(rank, lowRows)
	i := piece % blocks * lowRows
	t := piece / blocks * adaptedRows
	n, rows := min(lowRows, rank-i), min(adaptedRows, l.rows-t)
	simd.DotsF32(l.y[t*rank+i:], rank, l.pair.A[i*k:(i+n)*k], a.x[(l.row+t)*k:(l.row+t+rows)*k], k)
}

// sumPiece adds to some rows and columns of a product.
func (a *adapted) sumPiece(s *scratch, r *sum, piece int) {
	out, columns := a.outs[r.node], a.nodes[r.node].Shape.Size()
	blocks := pieceCount(columns, sumColumns)
	i := piece % blocks * sumColumns
	t := piece / blocks * adaptedRows
	n, rows := min(sumColumns, columns-i), min(adaptedRows, r.rows-t)
	s.acc = grow(s.acc, rows*n)
	for _, l := range a.lows[r.from:r.to] {
		rank := l.pair.Rank
		simd.DotsF32(s.acc, n, l.pair.B[i*rank:(i+n)*rank], l.y[t*rank:(t+rows)*rank], rank)
		for j := range rows {
			simd.AddScaled(out[(r.row+t+j)*columns+i:][:n], s.acc[j*n:(j+1)*n], l.scale)
		}
	}
}

// pieceCount returns the number of pieces of size in n.
func pieceCount(n, size int) int { return (n + size - 1) / size }

// adaptedGLU runs a gate and the gated values with adapters. Fused products are never in memory, except in a step with
// pairs for one of the two.
type adaptedGLU struct {
	*adapted
	fused, apart func() error
	act          func(worker, from, to int) error
}

func (e *executable) newAdaptedGLU(glu *graph.Node, x, out []float32, both *gated) *adaptedGLU {
	gate, up := glu.In[0], glu.In[1]
	in, n := gate.In[0], glu.Shape.Size()
	e.adapters.widest = max(e.adapters.widest, n)
	a := &adaptedGLU{adapted: e.newAdapted(x, []*graph.Node{gate, up}, make([][]float32, 2))}
	a.fused = func() error { return both.run(in, out, x, e.count(glu)) }
	a.apart = func() error {
		if err := both.gate.run(in, a.outs[0], x, e.count(glu)); err != nil {
			return err
		}
		return both.up.run(in, a.outs[1], x, e.count(glu))
	}
	a.act = func(_, from, to int) error {
		for i := from * n; i < to*n; i += n {
			both.act(out[i:i+n], a.outs[0][i:i+n], a.outs[1][i:i+n])
		}
		return nil
	}
	return a
}

// run computes the GLU node.
func (a *adaptedGLU) run() error {
	e, n := a.e, a.nodes[0].Shape.Size()
	if len(e.step.Adapters) == 0 || !a.findWork() {
		return a.fused()
	}
	for i := range a.outs {
		if room := e.rows * e.adapters.widest; len(e.adapters.wide[i]) < room {
			if err := reserve(&e.b.buffers, &e.adapters.wide[i], room); err != nil {
				return err
			}
		}
		a.outs[i] = e.adapters.wide[i]
	}
	if err := a.adapted.run(a.apart); err != nil {
		return err
	}
	return e.b.pool.run(e.count(a.nodes[0]), max(1, soloWork/n), a.act)
}
