package cpu

import (
	"errors"
	"unsafe"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
)

// activations are a value's rows rounded to 16-bit integers, kept while
// products with several weights follow each other. They are cut into chunks of
// panel.Chunk columns; a chunk holds its columns of all rows. There is room for as many
// rows and columns as the plan's products have.
type activations struct {
	pool    *pool
	node    *graph.Node // whose value they are; nil for none
	x       []float32   // that value, [rows, k]
	rows, k int
	q       []int16   // [chunk][rows][column]
	dx      []float32 // [chunk][rows][column/ActGroup]

	// What some weights need besides, made when the first one asks.
	init  []int32   // [chunk][rows][column/group], for codes with an offset
	sums  []float32 // [chunk][rows][column/group], for weights with minima
	split []uint16  // the parts of q, for simd.AddTiles: apart, or where x was
	apart []uint16
	inits initKey // what init was made for
	sum   int     // the group of sums; 0 for none
	parts bool    // whether split was made

	chunks  []acts        // as products with a weight need them
	actsFor *panel.Weight // that weight, nil for none
	joined  []byte        // [whole chunk], see simd.Join
	joinFor *panel.Weight // a weight that joined is for, nil for none

	rounding, initializing, summing, splitting, joining func(worker, from, to int) error
}

// acts are a chunk's rows, and their parts for simd.AddTiles.
type acts struct {
	simd.Acts
	split []uint16
}

// rowsFrom is n of all rows, from row t on.
func (x *acts) rowsFrom(t, n, rows int) acts {
	if n == rows {
		return *x
	}
	y := acts{split: part(x.split, t, n, rows)}
	y.Q, y.DX, y.Sums, y.Init = part(x.Q, t, n, rows), part(x.DX, t, n, rows), part(x.Sums, t, n, rows), part(x.Init, t, n, rows)
	return y
}

// part is what n of all rows have of s, from row t on.
func part[T any](s []T, t, n, rows int) []T {
	size := len(s) / rows
	return s[t*size : (t+n)*size]
}

// initKey is what groupInit depends on.
type initKey struct {
	group  int
	offset int32
}

// start makes the loops, and room for the products of p's graph.
func (a *activations) start(p *planner) error {
	b, rows := p.e.b, p.e.rows
	a.loops(b.pool)
	columns, apart, group := 0, 0, simd.ActGroup
	for _, n := range p.g.Nodes {
		for _, w := range n.W {
			if b.packed[w] == nil || n.Op == graph.Embed {
				continue
			}
			columns, group = max(columns, w.Shape.Last()), min(group, quant.GroupSize(w.DType))
			if n.Op == graph.Experts || !p.spent(n.In[0]) {
				apart = max(apart, w.Shape.Last())
			}
		}
	}
	if !simd.HasTiles(rows) {
		apart = 0
	}
	m, size := &b.buffers, rows*columns
	return errors.Join(reserve(m, &a.q, size), reserve(m, &a.dx, size/simd.ActGroup), reserve(m, &a.init, size/group), reserve(m, &a.sums, size/group),
		reserve(m, &a.apart, 2*rows*apart), reserve(m, &a.joined, columns/panel.Chunk*simd.Joined(min(rows, simd.FewRows), panel.Chunk)))
}

// loops makes the loops, once.
func (a *activations) loops(p *pool) {
	a.pool = p
	a.rounding = func(_, from, to int) error {
		for t := from; t < to; t++ {
			for c := 0; c < a.k; c += panel.Chunk {
				at, n := a.at(c, t)
				simd.Quantize(a.q[at:at+n], a.dx[at/simd.ActGroup:(at+n)/simd.ActGroup], a.x[t*a.k+c:t*a.k+c+n])
			}
		}
		return nil
	}
	a.joining = func(_, from, to int) error {
		for ; from < to; from++ {
			n := simd.Joined(a.rows, panel.Chunk)
			simd.Join(a.joined[from*n:(from+1)*n], &a.chunks[from].Acts, a.rows)
		}
		return nil
	}
	// The rest goes over q, wherever its chunks are.
	a.initializing = func(_, from, to int) error {
		g := a.inits.group
		from, to = a.span(from), a.span(to)
		simd.GroupInit(a.init[from/g:to/g], a.q[from:to], g, a.inits.offset)
		return nil
	}
	a.summing = func(_, from, to int) error {
		from, to = a.span(from), a.span(to)
		simd.GroupSums(a.sums[from/a.sum:to/a.sum], a.q[from:to], a.dx[from/simd.ActGroup:to/simd.ActGroup], a.sum)
		return nil
	}
	a.splitting = func(_, from, to int) error {
		from, to = a.span(from), a.span(to)
		simd.Split(a.split[2*from:2*to], a.q[from:to])
		return nil
	}
}

// at is where row t of the chunk that begins at column c is in q, and the
// number of its columns.
func (a *activations) at(c, t int) (at, n int) {
	n = min(panel.Chunk, a.k-c)
	return c*a.rows + t*n, n
}

// span is where piece i of q begins; there are as many as rows.
func (a *activations) span(i int) int { return i * a.k }

// quantize rounds the rows of x, the value of n, unless that was the last
// thing it did, and makes what products with w need. If x is spent, that may lie there.
func (a *activations) quantize(n *graph.Node, x []float32, rows int, w *panel.Weight, tiles, spent bool) error {
	const grain = 4 // rows
	if a.node != n || n == nil {
		a.node, a.x, a.rows, a.k = n, x, rows, w.K
		a.inits, a.sum, a.parts, a.actsFor, a.joinFor = initKey{}, 0, false, nil, nil
		if err := a.pool.run(rows, grain, a.rounding); err != nil {
			return err
		}
	}
	if w.HasMin() && a.sum != w.Group() {
		a.sum = w.Group()
		if err := a.pool.run(rows, grain, a.summing); err != nil {
			return err
		}
	}
	if key := (initKey{w.Group(), w.Offset()}); !tiles && key.offset != 0 && a.inits != key {
		a.inits = key
		if err := a.pool.run(rows, grain, a.initializing); err != nil {
			return err
		}
	}
	if tiles && !a.parts {
		a.parts, a.split = true, a.apart
		if spent {
			a.split = unsafe.Slice((*uint16)(unsafe.Pointer(&x[0])), 2*rows*w.K) // of as many bytes
		}
		return a.pool.run(rows, grain, a.splitting)
	}
	return nil
}

// join makes what simd.AddRows reads for w, after cut, unless that was made for
// a weight like it.
func (a *activations) join(w *panel.Weight) error {
	if a.joinFor != nil && alike(a.joinFor, w) {
		return nil
	}
	a.joinFor, a.joined = w, a.joined[:w.K/panel.Chunk*simd.Joined(a.rows, panel.Chunk)] // simd.AddRows goes by its length
	return a.pool.run(w.K/panel.Chunk, 1, a.joining)
}

// alike reports whether two weights need the same of activations.
func alike(v, w *panel.Weight) bool {
	return v.Group() == w.Group() && v.Offset() == w.Offset() && v.HasMin() == w.HasMin()
}

// cut makes chunks for w, after quantize, unless they are for a weight like it.
func (a *activations) cut(w *panel.Weight, tiles bool) {
	if a.actsFor != nil && alike(a.actsFor, w) {
		return
	}
	a.actsFor, a.chunks = w, a.chunks[:0]
	for c := range w.Chunks() {
		a.chunks = append(a.chunks, a.chunk(w, c, tiles))
	}
}

// chunk is chunk c of all rows as products with w need it.
func (a *activations) chunk(w *panel.Weight, c int, tiles bool) (x acts) {
	first, n := a.at(c*panel.Chunk, 0)
	last := first + a.rows*n
	x.Q, x.DX = a.q[first:last], a.dx[first/simd.ActGroup:last/simd.ActGroup]
	if w.HasMin() {
		x.Sums = a.sums[first/w.Group() : last/w.Group()]
	}
	if tiles {
		x.split = a.split[2*first : 2*last]
	} else if w.Offset() != 0 {
		x.Init = a.init[first/w.Group() : last/w.Group()]
	}
	return x
}

// whole is the whole chunks of all rows, chunk after chunk.
func (a *activations) whole(w *panel.Weight) (x simd.Acts) {
	n := w.K / panel.Chunk * panel.Chunk * a.rows
	x.Q, x.DX = a.q[:n], a.dx[:n/simd.ActGroup]
	if w.HasMin() {
		x.Sums = a.sums[:n/w.Group()]
	}
	if w.Offset() != 0 {
		x.Init = a.init[:n/w.Group()]
	}
	return x
}

// grow is s with room for n elements.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
