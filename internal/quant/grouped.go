package quant

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/tensor"
)

// A block of a grouped type with codes q of some bits, and zero points z or minimums m:
//
//	0  d  float16
//	2  z  byte, or m float16
//	   for each 32 weights the lowest 2, 4 or 8 bits of the codes, as in Q2_0, Q4_0 or in order,
//	   and the bits above these: one as in Q5_0, or two as in Q2_0
//
// weight = d * (q - z), or d*q + m.

// SplitBits returns how many bits of a grouped type's codes lie in the first part of 32 weights, and in the second.
func SplitBits(bits int) (low, high int) {
	switch {
	case bits < 4:
		low = 2
	case bits < 8:
		low = 4
	default:
		low = 8
	}
	return low, bits - low
}

// GroupedHeader returns the bytes of a grouped block before its codes.
func GroupedHeader(d tensor.DType) int {
	if _, zero := d.Groups(); zero {
		return 3
	}
	return 4
}

// codesGrouped reads the codes of a block, with zero points the integers plus 128.
func codesGrouped(d tensor.DType, q, b []byte) {
	bits, zero := d.Groups()
	low, high := SplitBits(bits)
	var shift uint64
	if zero {
		shift = uint64(128-b[2]) * each // no byte of a sum is more than 255
	}
	b = b[GroupedHeader(d):]
	for q = q[:d.BlockSize()]; len(q) > 0; q = q[32:] {
		switch low {
		case 2:
			fours(q, b, 0)
		case 4:
			halves(q, b)
		case 8:
			copy(q[:32], b)
		}
		switch b = b[4*low:]; high {
		case 1:
			for j := range 4 {
				store8(q[8*j:], load8(q[8*j:])|spread8(b[j])<<low)
			}
		case 2:
			fours(q, b, low)
		}
		for j := 0; j < 32; j += 8 {
			store8(q[j:], load8(q[j:])+shift)
		}
		b = b[4*high:]
	}
}

// fours adds the two bits that 8 bytes have of each of 32 codes, the first lowest, from a bit on.
func fours(q, b []byte, at int) {
	q = q[:32]
	for i, v := range b[:8] {
		x := uint32(v)
		x = (x | x<<6 | x<<12 | x<<18) & 0x03030303 << at
		if at > 0 {
			x |= binary.LittleEndian.Uint32(q[4*i:])
		}
		binary.LittleEndian.PutUint32(q[4*i:], x)
	}
}

// PutGrouped writes a block of a grouped type without its scale and minimum. Q has the codes.
func PutGrouped(d tensor.DType, b, q []byte, zero byte) {
	bits, zeros := d.Groups()
	low, high := SplitBits(bits)
	if zeros {
		b[2] = zero
	}
	for b = b[GroupedHeader(d):]; len(q) > 0; q = q[32:] {
		clear(b[:4*bits])
		switch low {
		case 2:
			putBits(b, q, low, 0)
		case 4:
			putHalves(b, q)
		case 8:
			copy(b, q[:32])
		}
		putBits(b[4*low:], q, high, low)
		b = b[4*bits:]
	}
}

// putBits adds some bits of each of 32 codes, from a bit on, to zeros.
func putBits(b, q []byte, bits, from int) {
	for j, v := range q[:32] {
		if bits > 0 {
			b[j*bits/8] |= (v >> from & (1<<bits - 1)) << (j * bits % 8)
		}
	}
}

// putHalves writes the low four bits of codes, the second half's in the high bits.
func putHalves(b, q []byte) {
	for j := range b[:16] {
		b[j] = q[j]&15 | q[j+16]<<4
	}
}

// Put writes a block of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or MXFP4 of 32 codes, in Q8_0 the integers themselves. MXFP4's
// scale is the byte of an exponent.
func Put(d tensor.DType, b []byte, scale, min uint16, q []byte) {
	if d == tensor.MXFP4 {
		b[0] = byte(scale)
		putHalves(b[1:], q)
		return
	}
	binary.LittleEndian.PutUint16(b, scale)
	b = b[2:]
	if d == tensor.Q8_0 {
		copy(b, q[:32])
		return
	}
	if HasMin(d) {
		binary.LittleEndian.PutUint16(b, min)
		b = b[2:]
	}
	if d == tensor.Q5_0 || d == tensor.Q5_1 {
		clear(b[:4])
		putBits(b, q, 1, 4)
		b = b[4:]
	}
	putHalves(b, q)
}

// plainTypes are GGUF's types, or F32, with all values of grouped types, by bits: with zero points, and with minimums.
var plainTypes = map[bool][]tensor.DType{
	true:  {2: tensor.Q4_0, 3: tensor.Q4_0, 4: tensor.Q5_0, 5: tensor.Q8_0, 6: tensor.Q8_0, 8: tensor.Q8_0},
	false: {2: tensor.Q4_1, 3: tensor.Q4_1, 4: tensor.Q4_1, 5: tensor.Q5_1, 6: tensor.F32, 8: tensor.F32},
}

// ToGGUF returns a tensor of a grouped type in the type of GGUF with the same values, or in F32; others as they are.
func ToGGUF(t tensor.Tensor) tensor.Tensor {
	bits, zero := t.DType.Groups()
	if bits == 0 {
		return t
	}
	to := plainTypes[zero][bits]
	return tensor.Tensor{Name: t.Name, DType: to, Shape: t.Shape, Source: &regrouped{t, to}}
}

// regrouped is the Source of a tensor of a grouped type in another type.
type regrouped struct {
	in tensor.Tensor
	to tensor.DType
}

// Stored implements tensor.Decoded.
func (r *regrouped) Stored(elements int) int {
	return int(float64(r.in.Stored()) * float64(elements) / float64(max(1, r.in.Shape.Size())))
}

// Origin returns the bytes of files behind the tensor.
func (r *regrouped) Origin() [][]byte { return r.in.Origin() }

// ReadAt implements io.ReaderAt.
func (r *regrouped) ReadAt(p []byte, off int64) (int, error) {
	size, weights := r.in.DType.BlockBytes(), r.in.DType.BlockSize()
	row, unit := r.in.Shape.Last()/weights, r.to.RowBytes(weights)
	return tensor.ReadUnits(p, off, unit, r.in.Rows()*row, func(p []byte, first int) error {
		b := make([]byte, size)
		for ; len(p) > 0; p, first = p[unit:], first+1 {
			r.in.RowPart(first/row, first%row*size, b)
			r.write(p[:unit], b)
		}
		return nil
	})
}

// write writes the blocks, or the numbers, of a grouped block.
func (r *regrouped) write(p, b []byte) {
	var q [maxBlock]byte
	d := r.in.DType
	if r.to == tensor.F32 {
		var v [maxBlock]float32
		dequantizeBlocks(d, v[:d.BlockSize()], b)
		for i, x := range v[:d.BlockSize()] {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(x))
		}
		return
	}
	codes(d, q[:], b)
	var h Header
	h.Read(d, b)
	shift := Offset(r.to) - Offset(d)
	if r.to == tensor.Q8_0 {
		shift = -Offset(d)
	}
	for j := range q {
		q[j] += shift
	}
	for j := 0; j < d.BlockSize(); j, p = j+32, p[r.to.BlockBytes():] {
		Put(r.to, p, h.D, h.Min, q[j:])
	}
}
