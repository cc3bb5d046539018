package webgpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// layout is the order of weights of a type for weight.wgsl. A row is cut into words, and the same four words of all
// rows lie side by side, so that invocations of neighbouring rows read neighbouring memory, 16 bytes each.
//
// A row of a quantized type has three parts: the low bits of its codes in order, two words side by side for 2 bits,
// else four; their high bits, a word (highBits); and a head for each block: D and Min as in quant.Header, then Scales
// and Mins, a byte each, in blocks of 256. A head of D alone shares a word with the next unit's; zero points lie in the
// place of Min. Codes with gaps between them are laid out as indices of a table. Nothing is rounded, and little is
// longer than in the file, except for types of codes indexing a grid. Rows of floats are padded to multiples of 32 with
// zeros.
type layout struct {
	Plain  string     // f32, f16 or bf16; "" if quantized
	Odd    bool       // rows of floats are no multiple of 4
	Bits   int        // low bits of a code
	High   int        // high bits
	Quads  int        // four words of a unit of 32; 0 if there are fewer
	Group  int        // weights sharing a scale
	Units  int        // units of 32 in a block
	Head   int        // words of a block's head
	Min    bool       // there are minima, perhaps made of zero points
	Zero   bool       // there are zero points
	E4M3   bool       // codes are floats, with a float32 scale for each unit
	Bfloat bool       // D is a bfloat16
	Offset int        // of the codes
	Normal bool       // heads' halves are zeros or normal numbers, which any GPU turns to float32 exactly
	Each   bool       // a scale for each group, two in a word of each unit
	Wide   bool       // these scales are float32, in two words
	Unit   string     // a factor of the scales in a block of 256; "" is 1
	Table  []uint32   // the codes' values, a byte each, or nil
	index  *[256]byte // of quant.Codes: the index of each code; nil where codes are laid out themselves
}

// Halves returns false: only matrix.wgsl's activations are binary16.
func (l layout) Halves() bool { return false }

// bits are the low and high bits of codes, by type.
var bits = map[tensor.DType][2]int{tensor.Q4_0: {4, 0}, tensor.Q4_1: {4, 0}, tensor.Q5_0: {4, 1}, tensor.Q5_1: {4, 1},
	tensor.Q8_0: {8, 0},
	tensor.Q2_K: {2, 0}, tensor.Q3_K: {2, 1}, tensor.Q4_K: {4, 0}, tensor.Q5_K: {4, 1}, tensor.Q6_K: {4, 2},
	tensor.IQ4_NL: {4, 0}, tensor.IQ4_XS: {4, 0}, tensor.MXFP4: {4, 0}, tensor.IQ1_S: {2, 1}, tensor.IQ1_M: {2, 1},
	tensor.IQ2_XXS: {2, 1}, tensor.IQ2_XS: {2, 1}, tensor.IQ2_S: {2, 1}, tensor.IQ3_XXS: {4, 0}, tensor.IQ3_S: {4, 0},
	tensor.TQ1_0: {2, 0}, tensor.TQ2_0: {2, 0}, tensor.NVFP4: {4, 0}, tensor.Q1_0: {2, 0}, tensor.Q2_0: {2, 0}}

// layoutOf returns the layout of weights of type d with rows of k.
func layoutOf(d tensor.DType, k int) (layout, error) {
	l := layout{Odd: k%4 != 0, Quads: 4}
	switch d {
	case tensor.F32, tensor.F64:
		l.Plain, l.Quads = "f32", 8
	case tensor.F16:
		l.Plain = "f16"
	case tensor.BF16:
		l.Plain = "bf16"
	}
	if l.Plain != "" {
		return l, nil
	}
	if d == tensor.F8_32 {
		return layout{Bits: 8, Quads: 2, Group: 32, Units: 1, Head: 1, E4M3: true}, nil
	}
	b, ok := bits[d]
	grouped, zero := d.Groups()
	if grouped > 0 {
		b[0], b[1] = quant.SplitBits(grouped)
	} else if !ok {
		return l, fmt.Errorf("there is no kernel for weights of type %v", d)
	}
	l.Odd, l.Bits, l.High, l.Quads, l.Group, l.Units = false, b[0], b[1], b[0]/4, quant.GroupSize(d), 1
	if d.BlockSize() == 256 {
		l.Units = 8
	}
	l.Head, l.Min, l.Bfloat, l.Offset = 1, quant.HasMin(d), d == tensor.MXFP4, int(quant.Offset(d))
	if grouped > 0 {
		l.Units, l.Zero = d.BlockSize()/32, zero
	}
	if zero { // codes are laid out as in the file
		l.Min, l.Offset = true, 0
	}
	if t := quant.Table(d); t != nil {
		l.Table = packed(t[:])
	} else if levels := quant.Levels(d); levels != nil {
		l.Table, l.index = packed(levels), new([256]byte)
		for i, v := range levels {
			l.index[uint8(v)+uint8(l.Offset)] = byte(i)
		}
	}
	if l.Each = d == tensor.NVFP4; l.Units == 8 {
		if unit := quant.Unit(d); unit != 1 {
			l.Unit = fmt.Sprint(unit)
		}
		l.Head += 64 / l.Group
		if l.Min {
			l.Head += 64 / l.Group
		}
	}
	return l, nil
}

// layoutOfCodes returns the layout of matrices of a type with rows of k, whose scales may have factors.
func layoutOfCodes(all []tensor.Coded, k int) (layout, error) {
	l, err := layoutOf(all[0].DType, k)
	if slices.ContainsFunc(all, func(c tensor.Coded) bool { return c.Mul != 1 || c.Div != 1 }) {
		l.Wide, l.Head = true, 2
	}
	return l, err
}

// packed returns up to 16 values in four words.
func packed(values []int8) []uint32 {
	words := make([]uint32, 4)
	for i, v := range values {
		words[i/4] |= uint32(uint8(v)) << (i % 4 * 8)
	}
	return words
}

// words returns the number of words in each part of a row of k weights.
func (l *layout) words(k int) (low, high, head int) {
	units := (k + 31) / 32
	switch {
	case l.Plain != "":
		return units * l.Quads * 4, 0, 0
	case l.pairs():
		head = (units + 1) / 2
	default:
		head = units / l.Units * l.Head
	}
	return units * l.Bits, units * l.High, head
}

// pairs reports whether a word has the heads of two blocks.
func (l *layout) pairs() bool { return l.Units == 1 && !l.Min && !l.Each && !l.E4M3 }

// shard is a part of a weight in one buffer: rows of a matrix, or matrices of experts.
type shard struct {
	buffer   gpu.Buffer
	first, n int // rows, or matrices
}

// weight is a weight on the GPU.
type weight struct {
	layout
	rows, k int // of a matrix
	each    int // words of a matrix, if several
	shards  []shard
	peak    *peak
	columns gpu.Buffer // [matrices, k], the order of the columns of codes; nil for one
}

// filler lays rows of a matrix into words, where n rows of k numbers lie.
type filler struct {
	layout
	w     *tensor.Coded
	from  int // the matrix's row at row first of the shard
	first int
	n, k  int
	words []byte
	peak  *peak
	codes [line]byte // of a row, for a moment
	top   float32    // of the numbers seen by this filler, for raising the peak
	most  uint16     // the scale of top, where heads are pairs
	odd   bool       // a head has a half that is not normal
}

// line is how many columns of a row are laid at once.
const line = 256

// fill lays rows first+from to first+to-1.
func (f *filler) fill(from, to int) error {
	const together = 16 // rows with words in a shared line of the cache
	var rows [together][]byte
	lay := f.quantized
	if f.Plain != "" {
		lay = f.floats
	} else if f.E4M3 {
		lay = f.eights
	}
	for ; from < to; from += together {
		some := rows[:min(together, to-from)]
		for i := range some {
			some[i] = f.w.Row(f.from + from + i)
		}
		for k := 0; k < f.k; k += line {
			columns := min(line, f.k-k)
			size := f.w.DType.RowBytes(columns)
			for i, row := range some {
				if err := lay(f.first+from+i, k, columns, row[:size]); err != nil {
					return err
				}
				some[i] = row[size:]
			}
		}
	}
	f.peak.raise(f.top)
	if f.odd {
		f.peak.odd.Store(true)
	}
	return nil
}

// floats lays so many columns of row n, from column k on.
func (f *filler) floats(n, k, columns int, row []byte) error {
	if f.Plain == "f32" {
		var numbers [line]float32
		if err := quant.Dequantize(f.w.DType, numbers[:columns], row); err != nil {
			return err
		}
		row = bytesIn(numbers[:columns])
	}
	for at := 16 * (k/32*f.Quads*f.n + n); len(row) > 0; at += 16 * f.n {
		row = row[copy(f.words[at:at+16], row):]
	}
	return nil
}

// quantized lays so many columns of row n, from column k on.
func (f *filler) quantized(n, k, columns int, row []byte) error {
	codes := f.codes[:columns]
	if err := quant.Codes(f.w.DType, codes, row); err != nil {
		return err
	}
	if f.Zero {
		f.restore(codes, row)
	}
	low, high, _ := f.layout.words(f.k)
	if f.index != nil {
		for i, c := range codes {
			codes[i] = f.index[c]
		}
	}
	f.heads(n, k/32/f.Units, low+high, row)
	for u := k / 32; len(codes) >= 32; u, codes = u+1, codes[32:] {
		f.unit(n, u, low, (*[32]byte)(codes))
	}
	return nil
}

// eights lays so many columns of row n of F8_32, from column k on. A unit with NaN has a scale of NaN.
func (f *filler) eights(n, k, _ int, row []byte) error {
	low, _, _ := f.layout.words(f.k)
	for u := k / 32; len(row) > 0; u, row = u+1, row[36:] {
		codes := (*[32]byte)(row[4:])
		scale := math.Float32frombits(binary.LittleEndian.Uint32(row))
		for _, c := range codes {
			if c&127 == 127 {
				scale = float32(math.NaN())
			}
		}
		f.put(low+u, n, math.Float32bits(scale))
		f.unit(n, u, low, codes)
	}
	return nil
}

// restore makes the file's codes of integers plus 128.
func (f *filler) restore(codes, row []byte) {
	var h quant.Header
	for d := f.w.DType; len(row) > 0; row = row[d.BlockBytes():] {
		h.Read(d, row)
		for i := range codes[:d.BlockSize()] {
			codes[i] += h.Zero - 128
		}
		codes = codes[d.BlockSize():]
	}
}

// unit lays out unit u of row n; high is the word where the high bits begin.
func (f *filler) unit(n, u, high int, codes *[32]byte) {
	order := binary.LittleEndian
	a, b, c, d := order.Uint64(codes[:]), order.Uint64(codes[8:]), order.Uint64(codes[16:]), order.Uint64(codes[24:])
	switch f.Bits {
	case 2:
		order.PutUint64(f.words[8*(u*f.n+n):], join(a, 2)|join(b, 2)<<16|join(c, 2)<<32|join(d, 2)<<48)
	case 4:
		at := f.words[16*(u*f.n+n):][:16]
		order.PutUint64(at, join(a, 4)|join(b, 4)<<32)
		order.PutUint64(at[8:], join(c, 4)|join(d, 4)<<32)
	case 8:
		at := f.words[16*(2*u*f.n+n):]
		order.PutUint64(at, a)
		order.PutUint64(at[8:], b)
		order.PutUint64(at[16*f.n:], c)
		order.PutUint64(at[16*f.n+8:], d)
	}
	if f.High == 0 {
		return
	}
	var words [2]uint32
	for j, x := range [4]uint64{a, b, c, d} {
		x = x >> f.Bits & (0x0101010101010101 * (1<<f.High - 1))
		words[j*f.High/4] |= uint32(join(x, f.Bits)) << highBits(f.Bits, f.High, j)
	}
	for i, word := range words[:f.High] {
		order.PutUint32(f.words[4*((high+u*f.High+i)*f.n+n):], word)
	}
}

// highBits returns the bit of a word where the high bits of eight j of a unit begin. These lie as far apart as the low
// bits, so that a shift brings four of them to their places.
func highBits(bits, high, j int) int {
	if bits == 2 {
		return j%2 + j/2*16
	}
	return j * high % 4
}

// join returns the lowest bits of eight bytes, bits of each, side by side.
func join(x uint64, bits int) uint64 {
	x &= 0x0101010101010101 * (1<<bits - 1)
	x = (x | x>>(8-bits)) & (0x0001000100010001 * (1<<(2*bits) - 1))
	x = (x | x>>(16-2*bits)) & (0x0000000100000001 * (1<<(4*bits) - 1))
	return (x | x>>(32-4*bits)) & (1<<(8*bits) - 1)
}

// heads lays out the heads of row n from head i on; at is the word where heads begin.
func (f *filler) heads(n, i, at int, row []byte) {
	var h quant.Header
	d := f.w.DType
	for each := d.BlockSize() / 32 / f.Units; len(row) > 0; row = row[d.BlockBytes():] {
		h.Read(d, row)
		f.odd = f.odd || isOdd(h.D) || isOdd(h.Min)
		for u := range each {
			switch {
			case f.pairs():
				binary.LittleEndian.PutUint16(f.words[4*((at+i>>1)*f.n+n)+i&1*2:], h.D)
			case f.Wide:
				for g, half := range h.Each[2*u : 2*u+2] {
					f.put(at+2*i+g, n, math.Float32bits(float16.F16(half)*f.w.Mul/f.w.Div))
				}
			case f.Each:
				f.put(at+i, n, uint32(h.Each[2*u])|uint32(h.Each[2*u+1])<<16)
			default:
				f.head(n, at+i*f.Head, &h)
			}
			i++
		}
		if f.pairs() && h.D&0x7fff <= f.most {
			continue // numbers no larger than the numbers before
		}
		if x := f.bound(&h) * f.w.Mul / f.w.Div; x > f.top && x <= math.MaxFloat32 {
			f.top, f.most = x, h.D&0x7fff
		}
	}
}

// head lays a block's head of row n from word i on.
func (f *filler) head(n, i int, h *quant.Header) {
	f.put(i, n, uint32(h.D)|uint32(h.Min|uint16(h.Zero))<<16) // of which a type has one
	if f.Units < 8 {
		return
	}
	groups := 256 / f.Group
	f.scales(i+1, n, h.Scales[:groups])
	if f.Min {
		f.scales(i+1+groups/4, n, h.Mins[:groups])
	}
}

// scales lays scales of row n from word i on.
func (f *filler) scales(i, n int, s []int8) {
	for ; len(s) >= 4; i, s = i+1, s[4:] {
		f.put(i, n, uint32(uint8(s[0]))|uint32(uint8(s[1]))<<8|uint32(uint8(s[2]))<<16|uint32(uint8(s[3]))<<24)
	}
}

// put sets word i of row n, the first part's words included in i.
func (f *filler) put(i, n int, word uint32) {
	binary.LittleEndian.PutUint32(f.words[4*(i*f.n+n):], word)
}

// all lays so many rows, cut among the processors.
func (f *filler) all(rows int) error {
	cuts := min(runtime.GOMAXPROCS(0), (rows+63)/64)
	errs := make([]error, cuts)
	var wg sync.WaitGroup
	for c := range cuts {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error { return f.load(rows*c/cuts, rows*(c+1)/cuts) })
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// load lays out rows from to to-1, piece by piece, since rows may have to be read first.
func (f *filler) load(from, to int) error {
	for step := max(1, piece/max(1, f.w.DType.RowBytes(f.k))); from < to; from += step {
		end := min(from+step, to)
		part, err := f.w.Part(f.from+from, f.from+end)
		if err != nil {
			return err
		}
		g := *f
		g.w, g.from = &tensor.Coded{Tensor: part, Mul: f.w.Mul, Div: f.w.Div}, -from
		if err := g.fill(from, end); err != nil {
			return err
		}
	}
	return nil
}

// upload brings weights [n, k] of one type, as one weight of consecutive rows, or a weight [experts, n, k] to the GPU,
// shard by shard.
func (b *Backend) upload(ws ...*graph.Weight) (*weight, error) {
	w, all := ws[0], matricesOf(ws)
	l, err := layoutOfCodes(all, w.Shape.Last())
	if err != nil {
		return nil, err
	}
	out := &weight{layout: l, k: w.Shape.Last(), peak: &peak{}}
	for _, w := range ws {
		if size, err := tensor.Bytes(w.DType, w.Shape); err != nil {
			return nil, fmt.Errorf("weight %s: %w", w.Name, err)
		} else if size != w.Size() {
			return nil, fmt.Errorf("weight %s: %d bytes, %v of %v has %d", w.Name, w.Size(), w.DType, w.Shape, size)
		}
		out.rows += w.Shape[len(w.Shape)-2]
	}
	if out.columns, err = b.order(w, all); err != nil {
		return nil, err
	}
	row := l.bytes(out.k)
	count, unit := out.rows, row // unit and number of a shard's parts
	if len(w.Shape) == 3 {
		count, unit = w.Shape[0], (out.rows*row+15)&^15
		out.each = unit / 4
	}
	if unit == 0 || unit > b.memory.limit {
		return nil, fmt.Errorf("weight %s: %d bytes do not fit a binding, which has at most %d",
			w.Name, unit, b.memory.limit)
	}
	most := b.memory.limit / unit
	if len(w.Shape) == 2 && most >= 32 {
		most &^= 31
	}
	for first := 0; first < count; first += most {
		n := min(most, count-first)
		words := make([]byte, (n*unit+15)&^15)
		if len(w.Shape) == 2 {
			err = fillRows(all, l, first, n, words, out.peak)
		}
		for i := 0; len(w.Shape) == 3 && i < n && err == nil; i++ {
			f := filler{layout: l, w: &all[first+i], n: out.rows, k: out.k,
				words: words[i*unit : (i+1)*unit], peak: out.peak}
			err = f.all(out.rows)
		}
		if err != nil {
			return nil, err
		}
		buffer, err := b.memory.buffer(w.Name, words)
		if err != nil {
			return nil, err
		}
		out.shards = append(out.shards, shard{buffer, first, n})
	}
	out.Normal = l.Head > 0 && !out.peak.odd.Load()
	return out, nil
}

// bytes of a row of k weights.
func (l *layout) bytes(k int) int {
	low, high, head := l.words(k)
	return 4 * (low + high + head)
}

// fillRows writes n rows of the matrices ws, from row first of all rows on, as words.
func fillRows(ws []tensor.Coded, l layout, first, n int, words []byte, top *peak) error {
	f := filler{layout: l, n: n, k: ws[0].Shape.Last(), words: words, peak: top}
	for i := range ws {
		w := &ws[i]
		f.w, f.from = w, min(first, w.Shape[0])
		rows := min(n-f.first, w.Shape[0]-f.from)
		if err := f.all(rows); err != nil {
			return err
		}
		f.first, first = f.first+rows, first-f.from
	}
	return nil
}

// vector returns small weights as float32, one after another.
func (b *Backend) vector(key weights) (gpu.Buffer, error) {
	if v := b.vectors[key]; v != nil {
		return v, nil
	}
	var all []float32
	for _, w := range key.list() {
		f, err := widened(w)
		if err != nil {
			return nil, err
		}
		all = append(all, f...)
	}
	all = append(all, make([]float32, -len(all)&3)...) // read four at a time
	v, err := b.memory.buffer(key[0].Name, bytesIn(all))
	if err == nil {
		b.vectors[key] = v
	}
	return v, err
}

// widened returns all of a small weight, as float32.
func widened(w *graph.Weight) ([]float32, error) {
	if w.Order != nil {
		return nil, fmt.Errorf("tensor %s: its rows are in another order", w.Name)
	}
	f := make([]float32, w.Shape.Size())
	// Nothing small is left in a Source.
	return f, mmap.Guard(func() error { return quant.Dequantize(w.DType, f, w.Data) })
}

// bytesIn returns the memory of f, in WebGPU's order of bytes on all machines that Karat runs on.
func bytesIn[T float32 | uint32](f []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// floatsIn returns b, whole words in order, as numbers.
func floatsIn(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// weights are joined weights; the last may be nil.
type weights [3]*graph.Weight

// list returns the weights other than nil.
func (w weights) list() []*graph.Weight {
	n := slices.Index(append(w[:], nil), nil)
	return w[:n]
}

// matricesOf returns the matrices of weights: as the codes behind their values where all have codes of a layout, else
// as they are.
func matricesOf(ws []*graph.Weight) []tensor.Coded {
	var plain, codes []tensor.Coded
	alike := true
	for _, w := range ws {
		for i := range w.Shape[:len(w.Shape)-2].Size() {
			t := w.Tensor
			if len(w.Shape) > 2 {
				t = w.Tensor.Matrix(i)
			}
			c, ok := t.Coded()
			plain, codes = append(plain, tensor.Coded{Tensor: t, Mul: 1, Div: 1}), append(codes, c)
			first := codes[0]
			alike = alike && ok && c.DType == first.DType && (c.Columns == nil) == (first.Columns == nil)
		}
	}
	if !alike {
		return plain
	}
	return codes
}

// columnsOf returns the order of the columns of a matrix's codes, nil for one.
func columnsOf(w *graph.Weight) []int {
	c, _ := w.Coded()
	return c.Columns
}

// order brings the orders of columns of matrices to the GPU.
func (b *Backend) order(w *graph.Weight, all []tensor.Coded) (gpu.Buffer, error) {
	if all[0].Columns == nil {
		return nil, nil
	}
	var columns []uint32
	for _, c := range all[:w.Shape[:len(w.Shape)-2].Size()] { // a stack has one order
		for _, column := range c.Columns {
			columns = append(columns, uint32(column))
		}
	}
	return b.memory.buffer(w.Name, bytesIn(columns))
}

// bytes returns the weights' size on the GPU, or in the file where the type has no layout.
func (w weights) bytes() (n int64) {
	all := matricesOf(w.list())
	l, err := layoutOfCodes(all, w[0].Shape.Last())
	for _, x := range all {
		size := x.Size()
		if err == nil {
			size = x.Rows() * l.bytes(x.Shape.Last())
		}
		n += int64(size)
	}
	return n
}

// isOdd reports whether a binary16 is neither 0 nor a normal number.
func isOdd(half uint16) bool {
	e := half & 0x7c00
	return e == 0x7c00 || e == 0 && half&0x3ff != 0
}

// peak is an upper bound of a weight's finite numbers.
type peak struct {
	bits atomic.Uint32
	odd  atomic.Bool // a head has a half that is not normal
}

// raise makes p at least x, a number not negative.
func (p *peak) raise(x float32) {
	for to := math.Float32bits(x); to < 0x7f800000; {
		if has := p.bits.Load(); to <= has || p.bits.CompareAndSwap(has, to) {
			return
		}
	}
}

// factor returns the power of two that takes w's largest number below 2^15, where binary16 has room for that number and
// the most room for small numbers, and its inverse.
func (w *weight) factor() params {
	_, e := math.Frexp(float64(math.Float32frombits(w.peak.bits.Load())))
	e = max(-115, e-15)
	return params{"up": float32(math.Ldexp(1, -e)), "down": float32(math.Ldexp(1, e))}
}

// reach returns the largest number of a block apart from its scales: of the codes, or of the table.
func (l *layout) reach() (most float32) {
	if l.Table == nil {
		return float32(max(l.Offset, 1<<(l.Bits+l.High)-1-l.Offset))
	}
	for _, word := range l.Table {
		for i := range 4 {
			v := float32(int8(word >> (8 * i)))
			most = max(most, v, -v)
		}
	}
	return most
}

// bound returns an upper bound of the finite numbers of a block with header h: infinite or NaN if there are none.
func (l *layout) bound(h *quant.Header) float32 {
	scale, least := float16.F16(h.D&0x7fff), float32(0)
	if l.Bfloat {
		scale = float16.BF16(h.D & 0x7fff)
	}
	if l.Min {
		least = float16.F16(h.Min & 0x7fff)
	}
	if l.Units == 8 {
		groups := 256 / l.Group
		scale, least = scale*largest(h.Scales[:groups]), least*largest(h.Mins[:groups])
		if l.Unit != "" {
			scale /= 4 // at most
		}
	}
	x := scale*l.reach() + least
	if x > math.MaxFloat32 && scale <= math.MaxFloat32 && least <= math.MaxFloat32 {
		return math.MaxFloat32
	}
	return x
}

// largest returns the largest magnitude in s.
func largest(s []int8) float32 {
	most := 0
	for _, x := range s {
		most = max(most, int(x), -int(x))
	}
	return float32(most)
}
