package packing

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// blocks is the Source of a weight whose values a quantized type holds exactly: its blocks are made when they are read.
type blocks struct {
	*matrix
	dtype tensor.DType
}

// block is the number of weights of a block of each of GGUF's types with whole numbers.
const block = 32

// centered lists the types of whole numbers with zero points in the middle, by the bits of codes.
var centered = []tensor.DType{4: tensor.Q4_0, 5: tensor.Q5_0, 8: tensor.Q8_0}

// offsets has the codes that stand for 0; of Q8_0, as stored, 0 itself.
var offsets = map[tensor.DType]byte{tensor.Q4_0: 8, tensor.Q5_0: 16}

// exact returns the smallest quantized type that holds all values, Invalid for none.
func (x *matrix) exact() tensor.DType {
	bits := 8
	switch c := x.codes.(type) {
	case *codes:
		bits = c.bits
	case *permuted:
		bits = c.bits
	}
	if x.values == e2m1 && !x.inBF16 && x.columns%64 == 0 && x.group == 16 && x.all(x.scale, fitsE4M3) {
		return tensor.NVFP4
	}
	if x.groups != nil || x.columns%block != 0 || x.group%block != 0 && x.group < x.columns || x.columns == 0 {
		return tensor.Invalid
	}
	d := tensor.Invalid
	switch middle := 1 << (bits - 1); {
	case x.values == e2m1 && x.inBF16:
		return tensor.MXFP4
	case x.values == integers && x.zero == nil:
		d = tensor.Q8_0
	case x.values == naturals && x.bias != nil && (x.halves || x.all(x.bias, fitsF16)): // of the same type
		d = x.grouped(bits, false)
	case x.values != naturals || x.zero == nil:
	case centered[bits] != tensor.Invalid && x.all(x.zero, isFrom(middle, middle)):
		d = centered[bits]
	case bits < 8 && (x.bounded || x.all(x.zero, isFrom(0, 2*middle-1))):
		d = x.grouped(bits, true)
	}
	if d != tensor.Invalid && !x.halves && !x.all(x.scale, fitsF16) {
		return tensor.Invalid
	}
	return d
}

// grouped returns the type of codes of some bits, in the largest groups that share scales.
func (x *matrix) grouped(bits int, zero bool) tensor.DType {
	if bits = max(bits, 2); bits == 7 {
		bits = 8
	}
	group := 128
	for x.columns%group != 0 || x.group < x.columns && x.group%group != 0 {
		group /= 2
	}
	return tensor.Grouped(bits, group, zero)
}

// all reports whether all numbers of a grid are as is says.
func (x *matrix) all(g grid, is func(v float32) bool) bool {
	for row := range x.rows {
		for group := range upTo(x.columns, x.group) {
			if !is(g(row, group)) {
				return false
			}
		}
	}
	return true
}

// fitsF16 reports whether binary16 holds v.
func fitsF16(v float32) bool {
	return math.Float32bits(float16.F16(float16.ToF16(v))) == math.Float32bits(v)
}

// fitsE4M3 reports whether NVFP4's scales, E4M3 without a sign, hold v.
func fitsE4M3(v float32) bool { return v >= 0 && v <= 448 && float16.E4M3(toE4M3(v)) == v }

// toE4M3 returns the code of v, whose value is exactly v where E4M3 has v.
func toE4M3(v float32) byte {
	if v < 0x1p-6 {
		return byte(v * 0x1p9)
	}
	return byte(math.Float32bits(v)>>20 - 120<<3)
}

// isFrom returns a function that reports whether v is a whole number in a range.
func isFrom(least, most int) func(v float32) bool {
	return func(v float32) bool { return v >= float32(least) && v <= float32(most) && v == float32(int(v)) }
}

// ToF32 returns a packed weight with values in float32, whatever type holds them exactly, and the codes behind them;
// another tensor as it is.
func ToF32(t tensor.Tensor) tensor.Tensor {
	var x matrix
	switch v := t.Source.(type) {
	case *blocks:
		x = *v.matrix
		x.coded, x.factor = v, nil // the codes' scales have the factor
	case *matrix:
		x = *v
	default:
		return t
	}
	x.inBF16 = false
	t.DType, t.Source = tensor.F32, &x
	return t
}

// Origin implements what tensor.Tensor.Origin asks for.
func (x *matrix) Origin() [][]byte { return x.origin }

// ReadAt implements io.ReaderAt.
func (x *blocks) ReadAt(p []byte, off int64) (int, error) {
	size, weights := x.dtype.BlockBytes(), x.dtype.BlockSize()
	per := x.columns / weights
	return tensor.ReadUnits(p, off, size, x.rows*per, func(p []byte, first int) error {
		for ; len(p) > 0; p, first = p[size:], first+1 {
			if row, from := first/per, first%per*weights; x.dtype == tensor.NVFP4 {
				x.writeNVFP4(p[:size], row, from)
			} else {
				x.write(p[:size], row, from)
			}
		}
		return nil
	})
}

// write sets p to the block of a row from a column on. Package quant has the layouts.
func (x *blocks) write(p []byte, row, from int) {
	var all [4 * block]byte
	q, group := all[:x.dtype.BlockSize()], from/x.group
	x.codes.read(q, row, from)
	scale := x.scale(row, group)
	half := float16.ToF16(scale)
	switch bits, zero := x.dtype.Groups(); {
	case zero:
		binary.LittleEndian.PutUint16(p, half)
		quant.PutGrouped(x.dtype, p, q, byte(x.zero(row, group)))
	case bits > 0:
		binary.LittleEndian.PutUint16(p, half)
		binary.LittleEndian.PutUint16(p[2:], float16.ToF16(x.bias(row, group)))
		quant.PutGrouped(x.dtype, p, q, 0)
	case x.dtype == tensor.MXFP4:
		quant.Put(x.dtype, p, uint16(math.Float32bits(scale)>>23), 0, q)
	default:
		if x.zero != nil {
			offset := offsets[x.dtype] - byte(x.zero(row, group))
			for j := range q {
				q[j] += offset
			}
		}
		quant.Put(x.dtype, p, half, 0, q)
	}
}

// writeNVFP4 is write of the scales of 64 columns, and of each group of 16 with the second half in the high bits.
func (x *blocks) writeNVFP4(p []byte, row, from int) {
	var q [64]byte
	x.codes.read(q[:], row, from)
	for g := range 4 {
		p[g] = toE4M3(x.scale(row, from/16+g))
		for i := range 8 {
			p[4+8*g+i] = q[16*g+i]&15 | q[16*g+8+i]<<4
		}
	}
}

// code sets the codes behind the values of a matrix whose type has no blocks.
func (x *matrix) code() {
	switch y := *x; {
	case x.groups != nil:
		p := x.sorted()
		if p == nil {
			return
		}
		y.codes, y.groups = p, nil
		if d := y.exact(); d != tensor.Invalid {
			x.coded = &blocks{&y, d}
		}
	case x.factor != nil:
		if y.scale, y.factor = x.plain, nil; x.columns%64 == 0 {
			x.coded = &blocks{&y, tensor.NVFP4}
		}
	}
}

// sorted returns the codes with columns of a group side by side, nil where groups differ in size.
func (x *matrix) sorted() *permuted {
	c, ok := x.codes.(*codes)
	ends := make([]int, x.count)
	for g := range ends {
		ends[g] = g * x.group
	}
	p := &permuted{c, make([]int, x.columns)}
	for column, g := range x.groups {
		if !ok || ends[g] == min((g+1)*x.group, x.columns) {
			return nil
		}
		p.columns[ends[g]] = column
		ends[g]++
	}
	return p
}

// Coded implements what tensor.Tensor.Coded asks for.
func (x *matrix) Coded(from, to int) (c tensor.Coded, ok bool) {
	c.Mul, c.Div = 1, 1
	switch {
	case x.coded != nil:
		c.DType, c.Source = x.coded.dtype, x.coded
		if p, ok := x.coded.codes.(*permuted); ok {
			c.Columns = p.columns
		}
	case x.values == e4m3 && x.zero == nil && x.groups == nil && x.columns%block == 0 &&
		(x.group%block == 0 || x.group == x.columns):
		c.DType, c.Source = tensor.F8_32, scaled{x}
	default:
		return c, false
	}
	if x.factor == nil {
		return c, true
	}
	by := &c.Mul
	if x.divides {
		by = &c.Div
	}
	*by = x.factor(from, 0)
	return c, *by == x.factor(max(from, to-1), 0) // of the same matrix
}

// scaled is the Source of a matrix of codes of F8_E4M3 as F8_32.
type scaled struct{ *matrix }

// ReadAt implements io.ReaderAt.
func (x scaled) ReadAt(p []byte, off int64) (int, error) {
	size, per := tensor.F8_32.BlockBytes(), x.columns/block
	return tensor.ReadUnits(p, off, size, x.rows*per, func(p []byte, first int) error {
		for ; len(p) > 0; p, first = p[size:], first+1 {
			row, from := first/per, first%per*block
			binary.LittleEndian.PutUint32(p, math.Float32bits(x.scale(row, from/x.group)))
			x.codes.read(p[4:size], row, from)
		}
		return nil
	})
}

// Eights returns rows [from, to) of k columns as 8-bit floats for products, in an order if one is given, nil where the
// matrix has other codes, or scales in other groups.
func (x *matrix) Eights(from, to, k int, order func(row int) int) *simd.Eights {
	const wide = 16 // columns of simd.Eights
	q, ok := x.codes.(*octets)
	if !ok || x.values != e4m3 || x.zero != nil || x.groups != nil || k != x.columns ||
		x.group%wide != 0 && x.group < k {
		return nil
	}
	e := &simd.Eights{Codes: q.data[from*k : to*k], K: k, Group: upTo(x.group, wide) * wide, At: make([]int, to-from)}
	if order != nil {
		e.Codes = make([]byte, (to-from)*k)
	}
	for i := range e.At {
		row := from + i
		if order != nil {
			row = from + order(i)
			copy(e.Codes[i*k:], q.data[row*k:][:k])
		}
		if e.At[i] = len(e.Scales); order == nil && i > 0 && x.tall > 1 && row%x.each%x.tall > 0 {
			e.At[i] = e.At[i-1]
			continue
		}
		for group := range upTo(k, x.group) {
			s := 256 * x.scale(row, group)
			if s-s != 0 {
				return nil
			}
			e.Scales = append(e.Scales, s)
		}
	}
	return e
}
