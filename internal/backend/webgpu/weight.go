package webgpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// summers is how many invocations share a sum of linear.wgsl.
const summers = 4

// layout is how weights of a type lie for linear.wgsl, and the shader's variant. A
// row is cut into words, and the same word of all rows lies side by side, so that
// invocations that take neighbouring rows read neighbouring words.
//
// A row of a quantized type has three parts: the low bits of its codes in order, their
// high bits, and a head for each block: D and Min as in quant.Header, then Scales and
// Mins, a byte each, in blocks of 256. Nothing is rounded, and little is longer than
// in the file.
type layout struct {
	Plain   string // f32, f16 or bf16; "" if quantized
	Bits    int    // low bits of a code
	High    int    // high bits
	Group   int    // weights that share a scale
	Units   int    // units of 32 in a block
	Head    int    // words of a block's head
	Min     bool   // there are minima
	Bfloat  bool   // D is a bfloat16
	Offset  int    // of the codes
	Table   []int8 // of the codes' values, or nil
	Rows    int    // of the activations, that an invocation takes
	Slices  int
	Experts bool
}

// bits are the low and high bits of codes, by type.
var bits = map[tensor.DType][2]int{tensor.Q4_0: {4, 0}, tensor.Q4_1: {4, 0}, tensor.Q5_0: {4, 1}, tensor.Q5_1: {4, 1}, tensor.Q8_0: {8, 0},
	tensor.Q2_K: {2, 0}, tensor.Q3_K: {2, 1}, tensor.Q4_K: {4, 0}, tensor.Q5_K: {4, 1}, tensor.Q6_K: {4, 2},
	tensor.IQ4_NL: {4, 0}, tensor.IQ4_XS: {4, 0}, tensor.MXFP4: {4, 0}}

// layoutOf is the layout of weights of type d.
func layoutOf(d tensor.DType) (layout, error) {
	l := layout{Slices: summers, Rows: 1}
	switch d {
	case tensor.F32, tensor.F64:
		l.Plain = "f32"
	case tensor.F16:
		l.Plain = "f16"
	case tensor.BF16:
		l.Plain = "bf16"
	}
	if l.Plain != "" {
		return l, nil
	}
	b, ok := bits[d]
	if !ok {
		return l, fmt.Errorf("there is no kernel for weights of type %v", d)
	}
	l.Bits, l.High, l.Group, l.Units = b[0], b[1], quant.GroupSize(d), d.BlockSize()/32
	l.Head, l.Min, l.Bfloat, l.Offset = 1, quant.HasMin(d), d == tensor.MXFP4, int(quant.Offset(d))
	if t := quant.Table(d); t != nil {
		l.Table = t[:]
	}
	if l.Units == 8 {
		l.Head += 64 / l.Group
		if l.Min {
			l.Head += 64 / l.Group
		}
	}
	return l, nil
}

// words is how many words a row of k weights has in each part.
func (l *layout) words(k int) (low, high, head int) {
	switch {
	case l.Plain == "f32":
		return k, 0, 0
	case l.Plain != "":
		return (k + 1) / 2, 0, 0
	}
	return k / 32 * l.Bits, k / 32 * l.High, k / 32 / l.Units * l.Head
}

// shard is a part of a weight in one buffer: rows of a matrix, or matrices of experts.
type shard struct {
	buffer   gpu.Buffer
	first, n int // rows, or matrices
}

// weight is a weight on the GPU.
type weight struct {
	layout
	rows, k int // of a matrix
	shards  []shard
}

// filler lays n rows of a weight, each of k numbers, into words.
type filler struct {
	layout
	w           *graph.Weight
	first, n, k int
	words       []byte
}

// put sets word i of row n.
func (f *filler) put(i, n int, word uint32) {
	binary.LittleEndian.PutUint32(f.words[4*(i*f.n+n):], word)
}

// fill lays rows from to to-1.
func (f *filler) fill(from, to int) error {
	low, high, _ := f.layout.words(f.k)
	d := f.w.DType
	size, count := d.BlockBytes(), f.k/d.BlockSize()
	if f.Plain != "" {
		return f.fillPlain(from, to)
	}
	var codes [256]byte
	var h quant.Header
	const together = 16 // rows, whose words share a line of the cache
	for ; from < to; from += together {
		for b := range count {
			for n := from; n < min(from+together, to); n++ {
				block := f.w.Row(f.first + n)[b*size:][:size]
				if err := quant.Codes(d, codes[:d.BlockSize()], block); err != nil {
					return err
				}
				h.Read(d, block)
				f.block(codes[:d.BlockSize()], &h, n, b, low, low+high)
			}
		}
	}
	return nil
}

// block lays block b of row n; high and head are the words where these parts begin.
func (f *filler) block(codes []byte, h *quant.Header, n, b, high, head int) {
	per, perHigh := f.Units*f.Bits, f.Units*f.High
	for i := range per {
		var word uint32
		for t := range 32 / f.Bits {
			word |= uint32(codes[i*32/f.Bits+t]) & (1<<f.Bits - 1) << (t * f.Bits)
		}
		f.put(b*per+i, n, word)
	}
	for i := range perHigh {
		var word uint32
		for t := range 32 / f.High {
			word |= uint32(codes[i*32/f.High+t]) >> f.Bits << (t * f.High)
		}
		f.put(high+b*perHigh+i, n, word)
	}
	at := head + b*f.Head
	f.put(at, n, uint32(h.D)|uint32(h.Min)<<16)
	for i := range f.Head - 1 {
		from := h.Scales[:]
		if i >= 64/f.Group {
			from, i = h.Mins[:], i-64/f.Group
		}
		word := uint32(uint8(from[4*i])) | uint32(uint8(from[4*i+1]))<<8 | uint32(uint8(from[4*i+2]))<<16 | uint32(uint8(from[4*i+3]))<<24
		at++
		f.put(at, n, word)
	}
}

// fillPlain is fill for floats.
func (f *filler) fillPlain(from, to int) error {
	row := make([]float32, f.k)
	for n := from; n < to; n++ {
		b := f.w.Row(f.first + n)
		if f.Plain == "f32" {
			if err := quant.Dequantize(f.w.DType, row, b); err != nil {
				return err
			}
			for i, v := range row {
				f.put(i, n, math.Float32bits(v))
			}
			continue
		}
		for i := 0; i < f.k; i += 2 {
			word := uint32(binary.LittleEndian.Uint16(b[2*i:]))
			if i+1 < f.k {
				word |= uint32(binary.LittleEndian.Uint16(b[2*i+2:])) << 16
			}
			f.put(i/2, n, word)
		}
	}
	return nil
}

// all lays the rows of a matrix, cut among the processors.
func (f *filler) all() error {
	cuts := min(runtime.GOMAXPROCS(0), (f.n+63)/64)
	errs := make([]error, cuts)
	var wg sync.WaitGroup
	for c := range cuts {
		wg.Go(func() {
			errs[c] = mmap.Guard(func() error { return f.fill(f.n*c/cuts, f.n*(c+1)/cuts) })
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// upload brings a weight [n, k], or [experts, n, k], to the GPU, shard by shard.
func (b *Backend) upload(w *graph.Weight) (*weight, error) {
	l, err := layoutOf(w.DType)
	if err != nil {
		return nil, err
	}
	if size, err := tensor.Bytes(w.DType, w.Shape); err != nil {
		return nil, fmt.Errorf("weight %s: %w", w.Name, err)
	} else if size != len(w.Data) {
		return nil, fmt.Errorf("weight %s: %d bytes, %v of %v has %d", w.Name, len(w.Data), w.DType, w.Shape, size)
	}
	out := &weight{layout: l, k: w.Shape.Last(), rows: w.Shape[len(w.Shape)-2]}
	low, high, head := l.words(out.k)
	row, limit := 4*(low+high+head), b.limit
	count, unit := out.rows, row // of what a shard has several of
	if len(w.Shape) == 3 {
		count, unit = w.Shape[0], out.rows*row
	}
	if unit == 0 || unit > limit {
		return nil, fmt.Errorf("weight %s: %d bytes do not fit a binding, which has at most %d", w.Name, unit, limit)
	}
	most := limit / unit
	if len(w.Shape) == 2 && most >= 32 {
		most &^= 31
	}
	for first := 0; first < count; first += most {
		n := min(most, count-first)
		words := make([]byte, n*unit)
		if len(w.Shape) == 2 {
			f := filler{l, w, first, n, out.k, words}
			err = f.all()
		}
		for i := 0; len(w.Shape) == 3 && i < n && err == nil; i++ {
			f := filler{l, w, (first + i) * out.rows, out.rows, out.k, words[i*unit : (i+1)*unit]}
			err = f.all()
		}
		if err != nil {
			return nil, err
		}
		buffer, err := b.buffer(w.Name, words)
		if err != nil {
			return nil, err
		}
		out.shards = append(out.shards, shard{buffer, first, n})
	}
	return out, nil
}

// piece is how much is brought to the GPU at once.
const piece = 16 << 20

// buffer is a new buffer that holds data, after the next flush. data must not change.
func (b *Backend) buffer(name string, data []byte) (gpu.Buffer, error) {
	buffer, err := b.empty(name, len(data))
	for at := 0; at < len(data) && err == nil; at += piece {
		err = b.write(buffer, at, data[at:min(at+piece, len(data))])
	}
	return buffer, err
}

// write writes data to a buffer, at the next flush, or now if much waits for that.
func (b *Backend) write(to gpu.Buffer, at int, data []byte) error {
	b.waiting.Write(to, at, data)
	if b.bytes += len(data); b.bytes < piece {
		return nil
	}
	return b.flush()
}

// flush brings what waits to the GPU.
func (b *Backend) flush() error {
	err := b.d.gpu.Run(&b.waiting)
	b.waiting, b.bytes = gpu.List{}, 0
	return err
}

// empty is a new buffer of at least size bytes, which are 0. Close releases it.
func (b *Backend) empty(name string, size int) (gpu.Buffer, error) {
	if size > b.limit {
		return nil, fmt.Errorf("%s: %d bytes do not fit a binding, which has at most %d", name, size, b.limit)
	}
	buffer, err := b.d.gpu.NewBuffer(name, max(4, (size+3)&^3))
	if err != nil {
		return nil, err
	}
	b.made = append(b.made, buffer)
	return buffer, nil
}

// vector is a small weight as float32.
func (b *Backend) vector(w *graph.Weight) (gpu.Buffer, error) {
	if v := b.vectors[w]; v != nil {
		return v, nil
	}
	f := make([]float32, w.Shape.Size())
	if err := mmap.Guard(func() error { return quant.Dequantize(w.DType, f, w.Data) }); err != nil {
		return nil, err
	}
	v, err := b.buffer(w.Name, bytesOf(f))
	if err == nil {
		b.vectors[w] = v
	}
	return v, err
}

// bytesOf is f as a GPU reads it.
func bytesOf(f []float32) []byte {
	b := make([]byte, 4*len(f))
	for i, v := range f {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}
