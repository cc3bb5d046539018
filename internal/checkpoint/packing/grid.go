package packing

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// grid has a number for each row and each group of columns; nil has none.
type grid func(row, group int) float32

// floats are the types of scales.
var floats = []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}

// words are the types of packed codes.
var words = []tensor.DType{tensor.I32, tensor.U32}

// scaleTypes lists the types of scales, including floats of 8 bits.
var scaleTypes = append(floats[:3:3], tensor.F8_E8M0, tensor.F8_E4M3, tensor.U8)

// number returns the reader of a type's i-th number. Bytes of U8 are E8M0.
func number(d tensor.DType) func(b []byte, i int) float32 {
	switch d {
	case tensor.F32:
		return func(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }
	case tensor.F16:
		return func(b []byte, i int) float32 { return float16.F16(binary.LittleEndian.Uint16(b[2*i:])) }
	case tensor.BF16:
		return func(b []byte, i int) float32 { return float16.BF16(binary.LittleEndian.Uint16(b[2*i:])) }
	case tensor.F8_E4M3:
		return func(b []byte, i int) float32 { return e4m3[b[i]] }
	case tensor.I8:
		return func(b []byte, i int) float32 { return float32(int8(b[i])) }
	}
	return func(b []byte, i int) float32 { return float16.E8M0(b[i]) }
}

// checkFinite returns an error where a number of t is infinite or NaN.
func checkFinite(ending string, t tensor.Tensor) error {
	if t.DType == tensor.U8 {
		t.DType = tensor.F8_E8M0
	}
	i := tensor.NotFinite(t.DType, t.Data)
	if i < 0 {
		return nil
	}
	v := number(t.DType)(t.Data, i)
	if t.Shape.Size() == 1 {
		return damaged("%s is %v, want a finite number", ending, v)
	}
	return damaged("%s has %v as number %d, want finite numbers", ending, v, i)
}

// isSigned reports whether one of some floats of a byte has a sign.
func isSigned(b []byte) bool {
	const signs = 0x80808080_80808080
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)&signs != 0 {
			return true
		}
	}
	return slices.ContainsFunc(b, func(v byte) bool { return v > 127 })
}

// CountOdd counts the scales that sound folders lack, and returns the place of the first.
func CountOdd(scales Scales) (n, first int) {
	read := number(scales.DType)
	for i := range scales.Shape.Size() {
		if v := read(scales.Data, i); v == 0 || v < 0 && !scales.Signed {
			if n++; n == 1 {
				first = i
			}
		}
	}
	return n, first
}

// byRows returns the numbers of t, [blocks of so many rows, groups] for each matrix of rows.
func byRows(t tensor.Tensor, rows, block int) grid {
	read, groups, blocks := number(t.DType), t.Shape.Last(), upTo(rows, block)
	switch {
	case block == 1:
		return func(row, group int) float32 { return read(t.Data, row*groups+group) }
	case len(t.Shape) == 2 && t.Shape[0] == blocks: // of a single matrix
		return func(row, group int) float32 { return read(t.Data, row/block*groups+group) }
	}
	return func(row, group int) float32 { return read(t.Data, (row/rows*blocks+row%rows/block)*groups+group) }
}

// turnedScales returns the numbers of t, [groups, blocks of so many rows] for each matrix of rows.
func turnedScales(t tensor.Tensor, rows, block int) grid {
	read, n := number(t.DType), len(t.Shape)
	groups, blocks := t.Shape[n-2], t.Shape[n-1]
	return func(row, group int) float32 {
		return read(t.Data, (row/rows*groups+group)*blocks+row%rows/block)
	}
}

// byGroups returns the numbers of t, [groups, rows].
func byGroups(t tensor.Tensor) grid {
	read, rows := number(t.DType), t.Shape.Last()
	return func(row, group int) float32 { return read(t.Data, group*rows+row) }
}

// constant returns a number for all.
func constant(v float32) grid { return func(int, int) float32 { return v } }

// whole returns the scales of equal runs of so many rows, matrices or halves of these, which are finite and positive.
func whole(ending string, t tensor.Tensor, rows int) (grid, error) {
	read, n := number(t.DType), t.Shape.Size()
	for i := range n {
		if v := read(t.Data, i); !(v > 0 && v <= math.MaxFloat32) {
			return nil, damaged("%s is %v, want a finite number greater than 0", ending, v)
		}
	}
	if n == 1 {
		return constant(read(t.Data, 0)), nil
	}
	return func(row, _ int) float32 { return read(t.Data, row/(rows/n)) }, nil
}

// Tables of values by code.
var (
	e4m3     = table(float16.E4M3)
	e5m2     = table(float16.E5M2)
	e2m1     = table(float16.E2M1)
	integers = table(func(b byte) float32 { return float32(int8(b)) })
	naturals = table(func(b byte) float32 { return float32(b) })
)

// table returns the values of all codes.
func table(value func(b byte) float32) *[256]float32 {
	t := new([256]float32)
	for i := range t {
		t[i] = value(byte(i))
	}
	return t
}

// isPowers reports whether all of t's numbers are powers of two that leave products with 8-bit floats normal.
func isPowers(t tensor.Tensor) bool {
	read := number(t.DType)
	for i := range t.Shape.Size() {
		if frac, exp := math.Frexp(float64(read(t.Data, i))); frac != 0.5 || exp < -100 || exp > 100 {
			return false
		}
	}
	return true
}
