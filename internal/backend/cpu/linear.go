package cpu

import (
	"unsafe"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// scratch is a worker's memory for reading weights.
type scratch struct {
	f32    []float32
	u16    []uint16
	rows   []byte
	panels [simd.TilePanels]panel.Scratch
	acc    []float32   // see product.add
	spare  [][]float32 // what acc was: recorded kernels have it
	scan   *simd.Scan
}

// sums makes acc n numbers.
func (s *scratch) sums(n int) []float32 {
	if cap(s.acc) < n {
		s.spare = append(s.spare, s.acc)
	}
	s.acc = grow(s.acc, n)
	return s.acc
}

// batch returns the maximum of panels taken through the activations together, so that activations come from the cache.
// A few rows are no burden, and memory is read fastest along one panel. For a single row batch bounds the sums: a span
// has as many numbers, each of up to RowPlaces panels.
func (p *product) batch() int {
	switch {
	case p.tiles:
		return simd.TilePanels
	case p.row:
		return 256
	case p.e.b.pool.lanes > 0:
		return 2 // a lane is long enough, and has room for these
	}
	return 8
}

// fewRows is a count of rows so small that activations are in the nearest cache anyway.
const fewRows = simd.FewRows

// product multiplies rows by the transpose of a weight [n, k].
type product struct {
	e      *executable
	acts   *activations // the executable's, or an expert's own
	w      *graph.Weight
	panels *panel.Weight // w repacked, or nil
	eights *simd.Eights  // w's codes and scales as they lie in the file, or nil
	spent  bool          // x may be written over
	body   func(worker, from, to int) error

	// The input, [rows, k], and the result, [rows, n].
	x, out []float32
	rows   int
	n, gap int  // of the loop: its panels, and the distance between two places of a span
	block  int  // rows of a piece
	per    int  // numbers of the loop for a block of rows
	tiles  bool // by simd.AddTiles
	row    bool // by simd.AddRow
	few    bool // by simd.AddRows
	whole  bool // by simd.AddChunks

	records bool // kernels alone read the weight
}

// newProduct returns the product with matrix i of w.
func newProduct(e *executable, w *graph.Weight, i int) *product {
	p := &product{e: e, w: w, acts: &e.x}
	if p.body = p.rowsOfWeight; len(w.Shape) > 2 {
		p.w = w.Matrix(i)
	}
	if m := e.b.packed[w]; m != nil {
		p.panels, p.body = m.matrices[i], p.panelsOfWeight
	}
	p.eights = eightsOf(p.w)
	return p
}

// eightsOf returns the rows of a matrix with a Source of 8-bit floats, nil for others.
func eightsOf(w *graph.Weight) *simd.Eights {
	x, ok := w.Source.(interface {
		Eights(from, to, k int, order func(row int) int) *simd.Eights
	})
	if !ok || !w.DType.Float() {
		return nil
	}
	k := w.Shape.Last()
	from := int(w.At) / w.DType.RowBytes(k)
	return x.Eights(from, from+w.Rows(), k, w.Order)
}

// run computes out = x·wᵀ; x is the value of node in, or of none.
func (p *product) run(in *graph.Node, out, x []float32, rows int) error {
	if rows == 0 {
		return nil // after Rows, in a step without logits: read no weights
	}
	if err := p.begin(in, out, x, rows); err != nil {
		return err
	}
	if p.panels == nil {
		return p.e.b.pool.run(p.w.Rows(), 16, p.body)
	}
	return p.loop(p.panels.Panels(), p.body)
}

// begin readies body for a run.
func (p *product) begin(in *graph.Node, out, x []float32, rows int) error {
	p.out, p.x, p.rows = out, x, rows
	if p.panels == nil {
		return nil
	}
	p.tiles, p.row, p.whole = simd.HasTiles(rows), rows == 1 && p.panels.Stored().HasRow(),
		p.panels.Stored().HasChunks(rows)
	p.records = panel.Records(p.panels)
	p.few = p.panels.K >= panel.Chunk && p.panels.Stored().HasRows(rows)
	defer p.e.b.pool.part("")
	p.e.b.pool.part("round")
	return p.acts.quantize(in, p)
}

// loop runs body over panels: each number stands for a panel, or for panels at several places, and a block of rows.
func (p *product) loop(panels int, body func(worker, from, to int) error) error {
	grain := p.divide(panels)
	return p.e.loop(p.records, p.place(panels, grain), grain, body)
}

// loop runs a loop of products, recorded if the weights allow.
func (e *executable) loop(records bool, n, grain int, body func(worker, from, to int) error) error {
	if !records {
		return e.b.pool.run(n, grain, body)
	}
	defer func() {
		for i := range e.scratch {
			e.scratch[i].spare = nil
		}
	}()
	return e.b.pool.record(n, grain, body)
}

// leastRows is the minimum of rows in a block of many rows: unpacking a panel of Q4_0 takes a tenth of the time of
// multiplying leastRows rows.
const leastRows = 64

// divide cuts the rows into blocks for a loop over panels, and returns the number of panels in a piece. A few rows stay
// in one block, and each panel is a piece: memory counts then. With many rows, panels share the cost of reading the
// rows, and rows the cost of unpacking panels. So panels are divided into batches and rows into blocks, and then
// batches again, until there are four pieces for each thread, or eight for each of many threads, whose speeds differ
// more.
func (p *product) divide(panels int) (grain int) {
	p.block = p.rows
	if p.rows <= fewRows {
		return 1
	}
	want := 1
	if lanes := p.e.b.pool.lanes; lanes > 0 {
		return max(1, min(p.batch(), panels/lanes))
	}
	switch threads := p.e.b.pool.threads; {
	case threads >= 8:
		want = 8 * threads
	case threads > 1:
		want = 4 * threads
	}
	grain = p.batch()
	blocks, batches := 1, (panels+grain-1)/grain
	for blocks*batches < want && p.rows >= 2*blocks*leastRows {
		blocks *= 2
	}
	p.block = rowsOfBlock(p.rows, blocks)
	return max(1, min(grain, panels*blocks/want))
}

// rowsOfBlock returns the rows of a block, given all rows and a number of blocks: whole tiles, and at least one row in
// the last block.
func rowsOfBlock(rows, blocks int) int {
	const tile = 16
	n := (rows/blocks + tile - 1) / tile * tile
	for n < rows && rows%n != 0 && rows%n < tile {
		n += tile
	}
	return min(n, rows)
}

// place sets the distance between the panels of a number, and returns the count of numbers, whole pieces of each block
// of rows.
func (p *product) place(panels, grain int) int {
	p.n, p.gap = panels, panels
	gap, threads := oddGap(panels), p.e.b.pool.threads
	if p.row && !p.panels.InPlace() && gap > 2*threads*threads {
		p.gap = gap // numbers enough for even shares; many threads read at many places anyway
	}
	p.per = (p.gap + grain - 1) / grain * grain
	return (p.rows + p.block - 1) / p.block * p.per
}

// oddGap returns the distance between the places of n panels: an odd number, since powers of two share parts of caches.
func oddGap(n int) int { return (n+simd.RowPlaces-1)/simd.RowPlaces | 1 }

// span is panels [from, to) and as many at each of the other places, gap apart, for the
// rows [row, row+rows).
type span struct{ from, to, places, gap, row, rows int }

// firstSpan returns the first span of a piece of the loop, no longer than n, and the beginning of the next. The span
// may be empty: at the end of a block of rows.
func (p *product) firstSpan(from, to, n int) (s span, next int) {
	block := from / p.per
	first := block * p.per
	next = min(to, from+n, first+p.per)
	s.from, s.gap, s.row = from-first, p.gap, block*p.block
	s.rows = min(p.block, p.rows-s.row)
	if s.from >= p.gap {
		return s, first + p.per
	}
	s.places = (p.n - s.from + p.gap - 1) / p.gap
	s.to = min(next-first, p.gap, p.n-(s.places-1)*p.gap) // the last place may end before the others
	return s, min(next, first+s.to)
}

// panels returns the number of panels.
func (s span) panels() int { return s.places * (s.to - s.from) }

// panel returns the number of panel i.
func (s span) panel(i int) int { return s.from + i/(s.to-s.from)*s.gap + i%(s.to-s.from) }

// panelsOfWeight multiplies all rows by some panels of the weight.
func (p *product) panelsOfWeight(worker, from, to int) error {
	s := &p.e.scratch[worker]
	var part span
	for from < to {
		if part, from = p.firstSpan(from, to, p.batch()); part.places == 0 {
			continue
		}
		acc := s.sums(part.panels() * part.rows * panel.Rows)
		p.add(s, acc, part)
		p.keep(p.out, p.panels.N, acc, part)
	}
	return nil
}

// add sets acc to the products of a span, of no more panels than batch if there are many
// rows: [panel][rows][panel.Rows], or with tiles [rows][panel][panel.Rows], the rows being the
// span's.
func (p *product) add(s *scratch, acc []float32, w span) {
	simd.Clear(acc)
	first := p.addStored(s, acc, w)
	if first == p.panels.Chunks() {
		return
	}
	n, size := 1, w.rows*panel.Rows
	if p.rows > fewRows {
		n = p.batch()
	}
	for i := 0; i < w.panels(); i += n {
		n := min(n, w.panels()-i)
		p.addUnpacked(s, acc[i*size:(i+n)*size], w, w.panel(i), n, first)
	}
}

// addStored adds the products of chunks multiplied as stored, and returns the number of such chunks.
func (p *product) addStored(s *scratch, acc []float32, w span) int {
	chunks := p.panels.K / panel.Chunk
	switch {
	case chunks == 0 || !p.few && !p.whole && !p.row:
		return 0
	case !p.panels.InPlace():
		x := p.acts.wholeChunks(p.panels)
		p.addPanels(acc, p.panels.Whole(w.from, w.to+(w.places-1)*w.gap), w, &x, p.acts.joined)
	default:
		size, joined := p.rows*panel.Rows, len(p.acts.joined)/chunks
		for i := range w.panels() {
			for c := range chunks {
				data := p.panels.Woven(&s.panels[0], w.panel(i), c)
				x := p.acts.chunk(p.panels, c, false) // chunks are made for one of the products in the loop
				one := span{0, 1, 1, 0, 0, p.rows}
				p.addPanels(acc[i*size:(i+1)*size], data, one, &x.Acts, p.acts.joined[c*joined:][:joined])
			}
		}
	}
	return chunks
}

// addPanels does addStored's work for data of a span, some chunks, and their part of the activations.
func (p *product) addPanels(acc []float32, data []byte, w span, x *simd.Acts, joined []byte) {
	size, stored := p.panels.Bytes(), p.panels.Stored()
	switch {
	case p.few:
		simd.AddRows(acc, data, size, stored, joined, p.rows)
	case p.whole:
		simd.AddChunks(acc, data, size, stored, x, p.rows)
	default:
		simd.AddRow(acc, data, w.to-w.from, size, w.gap*size, stored, x)
	}
}

// addUnpacked adds the products of the chunks from the first on of n panels, taken through the activations together.
func (p *product) addUnpacked(s *scratch, all []float32, w span, from, n, first int) {
	for c := first; c < p.panels.Chunks(); c++ {
		for i := range n {
			p.panels.Unpack(&s.panels[i], from+i, c, p.tiles)
		}
		x := p.acts.chunks[c].rowsFrom(w.row, w.rows, p.rows)
		if p.tiles {
			var panels [simd.TilePanels]*simd.Panel
			for i := range n {
				panels[i] = &s.panels[i].Panel
			}
			simd.AddTiles(all, panels[:n], &x.Acts, x.split)
			continue
		}
		for i := range n {
			simd.AddPanel(all[i*w.rows*panel.Rows:(i+1)*w.rows*panel.Rows], &s.panels[i].Panel, &x.Acts)
		}
	}
}

// keep puts the sums of a span into rows of n columns, and drops the sums of columns past n.
func (p *product) keep(out []float32, n int, acc []float32, w span) {
	all, size := w.to-w.from, panel.Rows
	if p.tiles {
		all, size = 1, (w.to-w.from)*panel.Rows
	}
	if w.rows == 1 {
		all, size = 1, all*size
	}
	for at := range w.places {
		column := (w.from + at*w.gap) * panel.Rows
		for i := range all {
			to, from := column+i*size, acc[i*w.rows*size:]
			simd.CopyRows(out[w.row*n+to:], n, from, size, min(size, n-to), w.rows)
		}
		acc = acc[(w.to-w.from)*w.rows*panel.Rows:]
	}
}

// From manyRows of activations on, a weight is converted once for all rows, floatRows at a time, few enough for the
// cache. With fewer rows its bytes are read only once, in place.
const (
	manyRows  = 4
	floatRows = 32
)

// rowsOfWeight multiplies all rows by some of the weight's.
func (p *product) rowsOfWeight(worker, from, to int) error {
	k, n := p.w.Shape.Last(), p.w.Rows()
	s, x, step := &p.e.scratch[worker], p.x[:p.rows*k], floatRows
	if p.rows < manyRows && p.eights != nil {
		simd.DotsE4M3(p.out[from:], n, p.eights, from, to, x)
		return nil
	}
	if p.rows < manyRows && inWords(p.w) {
		step = to - from // kernels read at several places
	}
	for i := from; i < to; i += step {
		end := min(i+step, to)
		if p.eights != nil {
			s.f32 = grow(s.f32, (end-i)*k)
			for r := range end - i {
				simd.LoadE4M3Row(s.f32[r*k:(r+1)*k], p.eights, i+r)
			}
			simd.DotsF32(p.out[i:], n, s.f32, x, k)
			continue
		}
		w := p.w.Span(i, end, &s.rows)
		if err := s.product(p.out[i:], n, p.w.DType, w, x, k); err != nil {
			return err
		}
	}
	return nil
}

// inWords reports whether w's rows can be read in place as 16-bit numbers.
func inWords(w *graph.Weight) bool {
	return w.Order == nil && (w.DType == tensor.F16 || w.DType == tensor.BF16) && float16.Words(w.Data) != nil
}

// product sets dst[r*stride+i] to the product of weight row i of k elements with
// row r of x.
func (s *scratch) product(dst []float32, stride int, d tensor.DType, w []byte, x []float32, k int) error {
	if many := len(x) >= manyRows*k; !many && d == tensor.F16 {
		simd.DotsF16(dst, stride, s.words(w), x, k)
		return nil
	} else if !many && d == tensor.BF16 {
		simd.DotsBF16(dst, stride, s.words(w), x, k)
		return nil
	}
	f, err := s.floats(d, w, len(w)/d.RowBytes(k)*k)
	if err != nil {
		return err
	}
	simd.DotsF32(dst, stride, f, x, k)
	return nil
}

// floats returns n elements of weights: in place where float32, and order and alignment allow.
func (s *scratch) floats(d tensor.DType, b []byte, n int) ([]float32, error) {
	if d == tensor.F32 && float16.LittleEndian && uintptr(unsafe.Pointer(&b[0]))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n), nil // n*4 = len(b) > 0
	}
	s.f32 = grow(s.f32, n)
	return s.f32, quant.Dequantize(d, s.f32, b)
}

// words returns b as 16-bit numbers: in place where order and alignment allow.
func (s *scratch) words(b []byte) []uint16 {
	if w := float16.Words(b); w != nil {
		return w
	}
	s.u16 = grow(s.u16, len(b)/2)
	for i := range s.u16 {
		s.u16[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
	}
	return s.u16
}
