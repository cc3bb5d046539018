package cpu

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
)

// activations are a value's rows rounded to 16-bit integers, kept while products with several weights follow each
// other. A chunk holds panel.Chunk columns of all rows. There is room for the rows and columns of all of the plan's
// products.
type activations struct {
	pool    *pool
	node    *graph.Node // node of the value; nil for none
	x       []float32   // the value, [rows, k]
	columns []int       // places of the columns rounded, nil in order
	rows, k int
	q       []int16   // [chunk][rows][column]
	dx      []float32 // [chunk][rows][column/ActGroup]

	// Forms needed by some weights, made at the first request.
	init  []int32   // [chunk][rows][column/group], for codes with an offset
	sums  []float32 // [chunk][rows][column/group], for weights with minima
	split []uint16  // the parts of q, for simd.AddTiles: apart, or where x was
	apart []uint16
	inits initKey // key of init's form
	sum   int     // the group of sums; 0 for none
	parts bool    // whether split was made

	chunks  []acts        // arguments of products with actsFor
	actsFor *panel.Weight // weight of chunks, nil for none
	joined  []byte        // [whole chunk], see simd.Join
	joinFor *panel.Weight // weight of joined, nil for none

	own []activations // of single rows: the inputs of several experts, see experts.single

	missing        missing // forms made by the running loop
	byChunk, byRow func(worker, from, to int) error
}

// acts are a chunk's rows, and their parts for simd.AddTiles.
type acts struct {
	simd.Acts
	split []uint16
}

// rowsFrom returns n of all rows, from row t on.
func (x *acts) rowsFrom(t, n, rows int) acts {
	if n == rows {
		return *x
	}
	y := acts{split: part(x.split, t, n, rows)}
	y.Q, y.DX, y.Sums, y.Init = part(x.Q, t, n, rows), part(x.DX, t, n, rows), part(x.Sums, t, n, rows),
		part(x.Init, t, n, rows)
	return y
}

// part returns the elements of s of n of all rows, from row t on.
func part[T any](s []T, t, n, rows int) []T {
	size := len(s) / rows
	return s[t*size : (t+n)*size]
}

// initKey identifies the arguments of simd.GroupInit.
type initKey struct {
	group  int
	offset int32
}

// start makes the loops, and room for the products of p's graph.
func (a *activations) start(p *planner) error {
	b, rows := p.e.b, p.e.rows
	a.loops(b.pool)
	columns, apart, group, choices := 0, 0, simd.ActGroup, 0
	for _, n := range p.g.Nodes {
		for _, w := range n.W {
			if b.packed[w] == nil || n.Op == graph.Embed {
				continue
			}
			columns, group = max(columns, w.Shape.Last()), min(group, quant.GroupSize(b.packed[w].dtype))
			if n.Op == graph.Experts || !p.spent(n.In[0]) {
				apart = max(apart, w.Shape.Last())
			}
			if n.Op == graph.Experts {
				choices = max(choices, n.In[1].Shape[0])
			}
		}
	}
	if !simd.HasTiles(rows) {
		apart = 0
	}
	var err error
	a.own = make([]activations, choices)
	for i := range a.own {
		own := &a.own[i]
		own.loops(b.pool)
		err = errors.Join(err, own.reserve(&b.buffers, 1, columns, 0, group))
	}
	return errors.Join(err, a.reserve(&b.buffers, rows, columns, apart, group))
}

// reserve makes room for rows of up to so many columns, apart of which may have their parts apart.
func (a *activations) reserve(m *arena, rows, columns, apart, group int) error {
	size := rows * columns
	return errors.Join(reserve(m, &a.q, size), reserve(m, &a.dx, size/simd.ActGroup), reserve(m, &a.init, size/group),
		reserve(m, &a.sums, size/group), reserve(m, &a.apart, 2*rows*apart),
		reserve(m, &a.joined, columns/panel.Chunk*simd.Joined(min(rows, simd.FewRows), panel.Chunk)))
}

// loops makes the loops, once: over chunks of all rows, and over whole rows.
func (a *activations) loops(p *pool) {
	a.pool = p
	a.byChunk = func(_, from, to int) error {
		for ; from < to; from++ {
			a.makeForms(from, 0, a.rows)
		}
		return nil
	}
	a.byRow = func(_, from, to int) error {
		for c := range a.count() {
			a.makeForms(c, from, to)
		}
		return nil
	}
}

// makeForms computes the missing forms of a chunk of rows [from, to).
func (a *activations) makeForms(c, from, to int) {
	first, n := a.at(c*panel.Chunk, from)
	last := first + (to-from)*n
	q, dx := a.q[first:last], a.dx[first/simd.ActGroup:last/simd.ActGroup]
	if a.missing.rounded {
		for t := range to - from {
			row := a.x[(from+t)*a.k:][:a.k]
			part := row[c*panel.Chunk:][:n]
			if a.columns != nil {
				var moved [panel.Chunk]float32
				for i, at := range a.columns[c*panel.Chunk:][:n] {
					moved[i] = row[at]
				}
				part = moved[:n]
			}
			simd.Quantize(q[t*n:(t+1)*n], dx[t*n/simd.ActGroup:(t+1)*n/simd.ActGroup], part)
		}
	}
	if a.missing.sums {
		simd.GroupSums(a.sums[first/a.sum:last/a.sum], q, dx, a.sum)
	}
	if a.missing.inits {
		g := a.inits.group
		simd.GroupInit(a.init[first/g:last/g], q, g, a.inits.offset)
	}
	if a.missing.parts {
		simd.Split(a.split[2*first:2*last], q)
	}
	if size := simd.Joined(a.rows, panel.Chunk); a.missing.joined && n == panel.Chunk {
		simd.Join(a.joined[c*size:(c+1)*size], &a.chunks[c].Acts, a.rows)
	}
}

// count returns the number of chunks.
func (a *activations) count() int { return (a.k + panel.Chunk - 1) / panel.Chunk }

// at returns the place in q of row t of the chunk at column c, and the number of the chunk's columns.
func (a *activations) at(c, t int) (at, n int) {
	n = min(panel.Chunk, a.k-c)
	return c*a.rows + t*n, n
}

// quantize rounds the rows of x, the value of n, unless n was the last value rounded, and makes the forms needed by p.
// The forms may take x's memory if x is spent.
func (a *activations) quantize(n *graph.Node, p *product) error {
	w := p.panels
	a.missing = missing{}
	if a.node != n || n == nil || !slices.Equal(a.columns, w.Columns) {
		a.node, a.x, a.rows, a.k, a.columns = n, p.x, p.rows, w.K, w.Columns
		a.inits, a.sum, a.parts, a.actsFor, a.joinFor = initKey{}, 0, false, nil, nil
		a.missing.rounded = true
	}
	if w.HasMin() && a.sum != w.Group() {
		a.sum, a.missing.sums = w.Group(), true
	}
	if key := (initKey{w.Group(), w.Offset()}); !p.tiles && key.offset != 0 && a.inits != key {
		a.inits, a.missing.inits = key, true
	}
	if p.tiles && !a.parts {
		a.parts, a.split = true, a.apart
		if p.spent {
			// Where some rows are read, the parts of others are written: after all is rounded.
			if err := a.run(); err != nil {
				return err
			}
			a.missing = missing{}
			a.split = unsafe.Slice((*uint16)(unsafe.Pointer(&p.x[0])), 2*p.rows*w.K) // of as many bytes
		}
		a.missing.parts = true
	}
	a.cut(w, p.tiles)
	if p.few && (a.joinFor == nil || !sharesForms(a.joinFor, w)) {
		// simd.AddRows goes by its length
		a.joinFor, a.joined = w, a.joined[:w.K/panel.Chunk*simd.Joined(a.rows, panel.Chunk)]
		a.missing.joined = true
	}
	return a.run()
}

// missing names the forms to make of some rows.
type missing struct{ rounded, sums, inits, parts, joined bool }

// soloWork is a count of numbers, so small that a single thread rounds sooner than others begin.
const soloWork = 4096

// run computes the missing forms in one loop: of many rows each by itself, of a few chunk by
// chunk.
func (a *activations) run() error {
	chunks := a.count()
	switch {
	case a.missing == missing{}:
		return nil
	case a.rows > fewRows:
		return a.pool.run(a.rows, 4, a.byRow)
	case a.rows*a.k <= soloWork:
		return a.pool.run(chunks, chunks, a.byChunk)
	}
	return a.pool.run(chunks, max(1, soloWork/4/panel.Chunk/a.rows), a.byChunk)
}

// sharesForms reports whether two weights need the same of activations.
func sharesForms(v, w *panel.Weight) bool {
	return v.Group() == w.Group() && v.Offset() == w.Offset() && v.HasMin() == w.HasMin() &&
		slices.Equal(v.Columns, w.Columns)
}

// cut makes chunks for w, after quantize, unless the chunks are for a similar weight.
func (a *activations) cut(w *panel.Weight, tiles bool) {
	if a.actsFor != nil && sharesForms(a.actsFor, w) {
		return
	}
	a.actsFor, a.chunks = w, a.chunks[:0]
	for c := range w.Chunks() {
		a.chunks = append(a.chunks, a.chunk(w, c, tiles))
	}
}

// chunk returns chunk c of all rows in the form for products with w.
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

// wholeChunks returns the whole chunks of all rows, chunk after chunk.
func (a *activations) wholeChunks(w *panel.Weight) (x simd.Acts) {
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

// grow returns s with room for n elements.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
