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

// block is the number of weights of a block of each type with whole numbers.
const block = 32

// Types by the least bits of codes: with zero points in the middle, and with minimums.
var (
	centered = []tensor.DType{4: tensor.Q4_0, 5: tensor.Q5_0, 8: tensor.Q8_0}
	based    = []tensor.DType{4: tensor.Q4_1, 5: tensor.Q5_1}
)

// offsets has the codes that stand for 0; of Q8_0, as stored, 0 itself.
var offsets = map[tensor.DType]byte{tensor.Q4_0: 8, tensor.Q5_0: 16}

// find returns the first type of at least so many bits, Invalid for none.
func find(types []tensor.DType, bits int) tensor.DType {
	for _, d := range types[min(bits, len(types)):] {
		if d != tensor.Invalid {
			return d
		}
	}
	return tensor.Invalid
}

// exact returns the smallest type of GGUF that holds all values, Invalid for none.
func (x *matrix) exact() tensor.DType {
	bits := 8
	if c, ok := x.codes.(*codes); ok {
		bits = c.bits
	}
	if x.values == e2m1 && !x.inBF16 && x.columns%64 == 0 && x.group == 16 && x.all(x.scale, fitsE4M3) {
		return tensor.NVFP4
	}
	if x.groups != nil || x.columns%block != 0 || x.group%block != 0 && x.group < x.columns || x.columns == 0 {
		return tensor.Invalid
	}
	d := tensor.Invalid
	switch {
	case x.values == e2m1 && x.inBF16:
		return tensor.MXFP4
	case x.values == integers && x.zero == nil:
		d = tensor.Q8_0
	case x.values == naturals && x.bias != nil && (x.halves || x.all(x.bias, fitsF16)): // of the same type
		d = find(based, bits)
	case x.values == naturals && x.zero != nil && x.all(x.zero, isFrom(1<<(bits-1), 1<<(bits-1))):
		d = find(centered, bits)
	case x.values == naturals && x.zero != nil && (x.bounded || x.all(x.zero, isFrom(0, 1<<bits-1))):
		if d = find(centered, bits+1); find(based, bits) != tensor.Invalid && x.all(x.minimum, fitsF16) {
			d = find(based, bits)
		}
	}
	if d != tensor.Invalid && !x.halves && !x.all(x.scale, fitsF16) {
		return tensor.Invalid
	}
	return d
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

// fitsE4M3 reports whether NVFP4's scales, E4M3 without a sign, hold v.
func fitsE4M3(v float32) bool { return v >= 0 && v <= 448 && float16.E4M3(toE4M3(v)) == v }

// toE4M3 returns the code of v, whose value is exactly v where E4M3 has v.
func toE4M3(v float32) byte {
	if v < 0x1p-6 {
		return byte(v * 0x1p9)
	}
	return byte(math.Float32bits(v)>>20 - 120<<3)
}

func isFrom(least, most int) func(v float32) bool {
	return func(v float32) bool { return v >= float32(least) && v <= float32(most) }
}

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
	if x.dtype == tensor.Q4_1 || x.dtype == tensor.Q5_1 {
		binary.LittleEndian.PutUint16(p, float16.ToF16(x.minimum(row, group)))
		p = p[2:]
	} else if x.zero != nil {
		offset := offsets[x.dtype] - byte(x.zero(row, group))
		for j := range q {
			q[j] += offset
		}
	}
	if x.dtype == tensor.Q8_0 {
		copy(p, q[:])
		return
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

// packNibbles sets p to the low four bits of codes, those of the second half in the high bits.
func packNibbles(p []byte, q *[block]byte) {
	for j := range p[:block/2] {
		p[j] = q[j]&15 | q[j+block/2]<<4
	}
}
