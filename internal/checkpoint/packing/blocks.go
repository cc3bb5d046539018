package packing

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// blocks is the Source of a weight whose values a quantized type of GGUF holds exactly: its blocks are made when they
// are read.
type blocks struct {
	*matrix
	dtype tensor.DType
}

// block is the number of weights of a block of each type that is made.
const block = 32

// Types by the bits of codes: with zero points in the middle, and with minimums.
var (
	centered = map[int]tensor.DType{4: tensor.Q4_0, 5: tensor.Q5_0, 8: tensor.Q8_0}
	based    = map[int]tensor.DType{4: tensor.Q4_1, 5: tensor.Q5_1}
)

// exact returns the type of GGUF that holds all values in few more bytes, Invalid for none.
func (x *matrix) exact() tensor.DType {
	bits := 8
	if c, ok := x.codes.(*codes); ok {
		bits = c.bits
	}
	if x.groups != nil || x.columns%block != 0 || x.group%block != 0 && x.group < x.columns || x.columns == 0 {
		return tensor.Invalid
	}
	switch {
	case x.values == e2m1 && x.inBF16:
		return tensor.MXFP4
	case x.values == integers && x.zero == nil,
		x.values == naturals && x.zero != nil && x.all(x.zero, isNumber(1<<(bits-1))):
		if d, ok := centered[bits]; ok && x.all(x.scale, fitsF16) {
			return d
		}
	case x.values == naturals && x.group <= 64:
		if d, ok := based[bits]; ok && x.all(x.scale, fitsF16) && x.all(x.minimum, fitsF16) {
			return d
		}
	}
	return tensor.Invalid
}

// minimum returns the smallest value of a group: bias, or -zero * scale.
func (x *matrix) minimum(row, group int) float32 {
	if x.bias != nil {
		return x.bias(row, group)
	}
	return 0 - x.zero(row, group)*x.scale(row, group)
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

func isNumber(n int) func(v float32) bool { return func(v float32) bool { return v == float32(n) } }

// ToF32 returns a packed weight with values in float32, whatever type holds them exactly; another tensor as it is.
func ToF32(t tensor.Tensor) tensor.Tensor {
	var x matrix
	switch v := t.Source.(type) {
	case *blocks:
		x = *v.matrix
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
func (x *blocks) Origin() [][]byte { return x.origin }

// ReadAt implements io.ReaderAt.
func (x *blocks) ReadAt(p []byte, off int64) (int, error) {
	size, per := x.dtype.BlockBytes(), x.columns/block
	return tensor.ReadUnits(p, off, size, x.rows*per, func(p []byte, first int) error {
		for ; len(p) > 0; p, first = p[size:], first+1 {
			x.write(p[:size], first/per, first%per*block)
		}
		return nil
	})
}

// write sets p to the block of a row from a column on. Package quant has the layouts.
func (x *blocks) write(p []byte, row, from int) {
	var q [block]byte
	x.codes.read(q[:], row, from)
	group := from / x.group
	scale := x.scale(row, group)
	if x.dtype == tensor.MXFP4 {
		p[0] = byte(math.Float32bits(scale) >> 23)
		packNibbles(p[1:], &q)
		return
	}
	binary.LittleEndian.PutUint16(p, float16.ToF16(scale))
	p = p[2:]
	switch x.dtype {
	case tensor.Q8_0:
		for j, c := range q {
			p[j] = c
			if x.values == naturals {
				p[j] = c - 128
			}
		}
		return
	case tensor.Q4_1, tensor.Q5_1:
		binary.LittleEndian.PutUint16(p, float16.ToF16(x.minimum(row, group)))
		p = p[2:]
	}
	if x.dtype == tensor.Q5_0 || x.dtype == tensor.Q5_1 {
		var fifth uint32
		for j, c := range q {
			fifth |= uint32(c>>4) << j
		}
		binary.LittleEndian.PutUint32(p, fifth)
		p = p[4:]
	}
	packNibbles(p, &q)
}

// packNibbles sets p to the low four bits of codes, those of the second half in the high bits.
func packNibbles(p []byte, q *[block]byte) {
	for j := range p[:block/2] {
		p[j] = q[j]&15 | q[j+block/2]<<4
	}
}
