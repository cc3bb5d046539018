// Package tensor defines tensors: an element type, a shape and bytes. It does no arithmetic.
package tensor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// DType is the type of a tensor's elements. The quantized types are in blocks along the last dimension: GGUF's, and
// grouped ones.
type DType uint8

const (
	Invalid DType = iota
	F32
	F16
	BF16
	F64
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
	Bool
	F8_E5M2
	F8_E4M3
	F8_E8M0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	IQ4_XS
	MXFP4
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	TQ1_0
	TQ2_0
	NVFP4
	Q1_0
	Q2_0
	numDTypes
)

// layouts holds each type's name, the elements of a block and a block's bytes, zeros for no type.
var layouts = [256]struct {
	name            string
	elements, bytes int
}{
	Invalid: {"invalid", 1, 1},
	F32:     {"F32", 1, 4},
	F16:     {"F16", 1, 2},
	BF16:    {"BF16", 1, 2},
	F64:     {"F64", 1, 8},
	I8:      {"I8", 1, 1},
	I16:     {"I16", 1, 2},
	I32:     {"I32", 1, 4},
	I64:     {"I64", 1, 8},
	U8:      {"U8", 1, 1},
	U16:     {"U16", 1, 2},
	U32:     {"U32", 1, 4},
	U64:     {"U64", 1, 8},
	Bool:    {"BOOL", 1, 1},
	F8_E5M2: {"F8_E5M2", 1, 1},
	F8_E4M3: {"F8_E4M3", 1, 1},
	F8_E8M0: {"F8_E8M0", 1, 1},
	Q4_0:    {"Q4_0", 32, 18},
	Q4_1:    {"Q4_1", 32, 20},
	Q5_0:    {"Q5_0", 32, 22},
	Q5_1:    {"Q5_1", 32, 24},
	Q8_0:    {"Q8_0", 32, 34},
	Q2_K:    {"Q2_K", 256, 84},
	Q3_K:    {"Q3_K", 256, 110},
	Q4_K:    {"Q4_K", 256, 144},
	Q5_K:    {"Q5_K", 256, 176},
	Q6_K:    {"Q6_K", 256, 210},
	IQ4_NL:  {"IQ4_NL", 32, 18},
	IQ4_XS:  {"IQ4_XS", 256, 136},
	MXFP4:   {"MXFP4", 32, 17},
	IQ1_S:   {"IQ1_S", 256, 50},
	IQ1_M:   {"IQ1_M", 256, 56},
	IQ2_XXS: {"IQ2_XXS", 256, 66},
	IQ2_XS:  {"IQ2_XS", 256, 74},
	IQ2_S:   {"IQ2_S", 256, 82},
	IQ3_XXS: {"IQ3_XXS", 256, 98},
	IQ3_S:   {"IQ3_S", 256, 110},
	TQ1_0:   {"TQ1_0", 256, 54},
	TQ2_0:   {"TQ2_0", 256, 66},
	NVFP4:   {"NVFP4", 64, 36},
	Q1_0:    {"Q1_0", 128, 18},
	Q2_0:    {"Q2_0", 64, 18},
}

// grouped is the first grouped type. Grouped types are the types of packed weights in folders: codes of a few bits in
// groups, each with a binary16 scale and either a zero point, in a byte, or a binary16 minimum. Package quant has the
// layout. A type's lowest bits are the bits of codes less 2 (three bits), log2(group/32) (two bits), and 1 for zero
// points.
const grouped DType = 0x80

// F8_32 is a type of GPUs alone, not quantized: a float32 scale, and 32 codes as in F8_E4M3.
const F8_32 = grouped - 1

// Grouped returns the type of codes of 2 to 6 or 8 bits, in groups of 32, 64 or 128.
func Grouped(bits, group int, zero bool) DType {
	d := grouped | DType(bits-2) | DType(group/64)<<3
	if zero {
		d |= 1 << 5
	}
	return d
}

// Groups returns the bits of a grouped type's codes, 0 for other types, and whether groups have zero points.
func (d DType) Groups() (bits int, zero bool) {
	if d < grouped || layouts[d].bytes == 0 {
		return 0, false
	}
	return int(d&7) + 2, d>>5&1 == 1
}

func init() {
	layouts[F8_32].name, layouts[F8_32].elements, layouts[F8_32].bytes = "F8_32", 32, 36
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, n := range []int{32, 64, 128} {
			of := &layouts[Grouped(bits, n, true)]
			of.name, of.elements, of.bytes = fmt.Sprintf("Z%d_%d", bits, n), n, 3+n*bits/8
			of = &layouts[Grouped(bits, n, false)]
			of.name, of.elements, of.bytes = fmt.Sprintf("M%d_%d", bits, n), n, 4+n*bits/8
		}
	}
}

func (d DType) String() string {
	if layouts[d].bytes > 0 {
		return layouts[d].name
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// ParseDType inverts String, except for grouped types; ParseDType reports false for an unknown name.
func ParseDType(name string) (DType, bool) {
	for d := F32; d < numDTypes; d++ {
		if layouts[d].name == name {
			return d, true
		}
	}
	return Invalid, false
}

// BlockSize returns the number of elements stored together, 1 if d is not quantized.
func (d DType) BlockSize() int { return layouts[d].elements }

// BlockBytes returns the number of bytes of a block.
func (d DType) BlockBytes() int { return layouts[d].bytes }

// Quantized reports whether d stores blocks of integers with a scale.
func (d DType) Quantized() bool { return d >= Q4_0 && d != F8_32 && layouts[d].bytes > 0 }

// QuantizedTypes lists the quantized types.
func QuantizedTypes() (all []DType) {
	for i := range layouts {
		if d := DType(i); d.Quantized() {
			all = append(all, d)
		}
	}
	return all
}

// Float reports whether d is F32, F16, BF16 or F64.
func (d DType) Float() bool { return d >= F32 && d <= F64 }

// lanes has masks of a type's numbers in eight bytes: of exponents that are not finite, of their lowest bits and signs.
type lanes struct{ infinite, lowest, sign uint64 }

var lanesOf = map[DType]lanes{
	F32:     {0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000},
	F16:     {0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000},
	BF16:    {0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000},
	F8_E4M3: {0x7f7f7f7f_7f7f7f7f, 0x01010101_01010101, 0x80808080_80808080},
}

// NotFinite returns the place of the first NaN or infinity among numbers of a float type, -1 where there is none.
// Blocks and other types are not examined.
func NotFinite(d DType, b []byte) int {
	m := lanesOf[d]
	if d == F8_E8M0 {
		return bytes.IndexByte(b, 255)
	} else if m.sign == 0 {
		return -1
	}
	carry := func(b []byte) uint64 { return binary.LittleEndian.Uint64(b)&m.infinite + m.lowest }
	i := 0
	for ; i+32 <= len(b); i += 32 {
		c := b[i : i+32 : i+32]
		if (carry(c)|carry(c[8:])|carry(c[16:])|carry(c[24:]))&m.sign != 0 {
			break
		}
	}
	for ; i < len(b); i += 8 {
		var some [8]byte
		copy(some[:], b[i:])
		if c := carry(some[:]) & m.sign; c != 0 {
			return (i + bits.TrailingZeros64(c)/8) / d.BlockBytes()
		}
	}
	return -1
}

// RowBytes returns the size of n elements, n being a multiple of the block size.
func (d DType) RowBytes(n int) int { return n / d.BlockSize() * d.BlockBytes() }

// Shape is row-major: the last dimension varies fastest. GGUF's ne reversed.
type Shape []int

// Size returns the number of elements; 1 for the empty shape. Size is meaningful only for a shape accepted by
// CheckedSize.
func (s Shape) Size() int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// CheckedSize returns the number of elements, or an error where a dimension is negative or the product does not fit in
// an int.
func (s Shape) CheckedSize() (int, error) {
	n := uint64(1)
	for _, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("shape %v: negative dimension", []int(s))
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, fmt.Errorf("shape %v: more elements than an int holds", []int(s))
		}
		n = lo
	}
	return int(n), nil
}

// Last returns the last dimension, the direction of blocks and dot products.
func (s Shape) Last() int {
	if len(s) == 0 {
		return 1
	}
	return s[len(s)-1]
}

// Trimmed returns s without leading ones, as ggml writes shapes: [128] for [1 128].
func (s Shape) Trimmed() Shape {
	for len(s) > 1 && s[0] == 1 {
		s = s[1:]
	}
	return s
}

// RowError is a row other than whole blocks of its type.
type RowError struct {
	DType DType
	Shape Shape
}

func (e *RowError) Error() string {
	return fmt.Sprintf("shape %v: rows of %d elements are no multiple of %v's blocks of %d", []int(e.Shape),
		e.Shape.Last(), e.DType, e.DType.BlockSize())
}

// Bytes returns the size of a tensor of type d and shape s, or an error where the last dimension is no multiple of the
// block or the size does not fit in an int.
func Bytes(d DType, s Shape) (int, error) {
	if d == Invalid || layouts[d].bytes == 0 {
		return 0, fmt.Errorf("element type %v", d)
	}
	n, err := s.CheckedSize()
	if err != nil {
		return 0, err
	}
	if s.Last()%d.BlockSize() != 0 {
		return 0, &RowError{d, s}
	}
	blocks := n / d.BlockSize()
	hi, lo := bits.Mul64(uint64(blocks), uint64(d.BlockBytes()))
	if hi != 0 || lo > math.MaxInt {
		return 0, fmt.Errorf("shape %v of %v: more bytes than an int holds", []int(s), d)
	}
	return int(lo), nil
}

// Tensor is a named array: len(Data) is Bytes(DType, Shape).
type Tensor struct {
	Name  string
	DType DType
	Shape Shape
	Data  []byte // little-endian; may be mapped memory, so read-only

	// Source has the bytes, from At on, of a tensor without Data: a large tensor in a file beyond mapping, or
	// a tensor stored in another form (Join, Turn, Pick, Weave). Source is nil for all others.
	Source io.ReaderAt
	At     int64

	// Order maps rows of the last dimension to rows of Data; nil for rows in order.
	Order func(row int) int
}

// There reports whether t is a tensor, and not the lack of a tensor.
func (t *Tensor) There() bool { return t.Data != nil || t.Source != nil }

// Size returns the number of t's bytes, of a shape accepted by Bytes.
func (t *Tensor) Size() int {
	if t.Source != nil {
		return t.Shape.Size() / t.DType.BlockSize() * t.DType.BlockBytes()
	}
	return len(t.Data)
}

// Part returns a range of t's rows of the last dimension as a tensor [rows, last] with Data: of t's, or read
// from Source.
func (t *Tensor) Part(from, to int) (Tensor, error) {
	n := t.DType.RowBytes(t.Shape.Last())
	p := Tensor{Name: t.Name, DType: t.DType, Shape: Shape{to - from, t.Shape.Last()}, Data: t.Data}
	switch {
	case t.Source != nil:
		p.Data = make([]byte, (to-from)*n)
		size, row := len(p.Data), func(i int) int { return i } // rows read at once
		if t.Order != nil {
			size, row = n, t.Order
		}
		for at := 0; at < len(p.Data); at += size {
			if k, err := t.Source.ReadAt(p.Data[at:at+size], t.At+int64(row(from+at/n)*n)); k < size {
				return p, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
		}
	case t.Order != nil:
		p.Order = func(row int) int { return t.Order(from + row) }
	default:
		p.Data = t.Data[from*n : to*n : to*n]
	}
	return p, nil
}

// Row returns the i-th row of the last dimension, of a tensor in memory.
func (t *Tensor) Row(i int) []byte {
	if t.Order != nil {
		i = t.Order(i)
	}
	n := t.DType.RowBytes(t.Shape.Last())
	switch v := t.Source.(type) {
	case nil:
	case Joined:
		rows := v[0].Rows()
		return v[i/rows].Row(i % rows)
	default:
		row := make([]byte, n)
		t.fill(row, i*n)
		return row
	}
	return t.Data[i*n : (i+1)*n : (i+1)*n]
}

// RowPart sets p to bytes of the i-th row of the last dimension, of a tensor in memory.
func (t *Tensor) RowPart(i, from int, p []byte) {
	if t.Source == nil {
		copy(p, t.Row(i)[from:])
		return
	}
	if t.Order != nil {
		i = t.Order(i)
	}
	t.fill(p, i*t.DType.RowBytes(t.Shape.Last())+from)
}

// fill sets p to bytes of t's Source from an offset on, and panics if the Source lacks bytes: zeros would be weights.
func (t *Tensor) fill(p []byte, from int) {
	if n, err := t.Source.ReadAt(p, t.At+int64(from)); n < len(p) {
		panic(fmt.Errorf("tensor %s: %d bytes of %d: %w", t.Name, n, len(p), err))
	}
}

// Span returns a range of rows without gaps: of Data where rows follow each other, else copied to buf,
// enlarged if need be.
func (t *Tensor) Span(from, to int, buf *[]byte) []byte {
	if n := t.DType.RowBytes(t.Shape.Last()); t.Order == nil && t.Source == nil {
		return t.Data[from*n : to*n : to*n]
	}
	*buf = (*buf)[:0]
	if _, joined := t.Source.(Joined); t.Order == nil && !joined {
		n := t.DType.RowBytes(t.Shape.Last())
		*buf = slices.Grow(*buf, (to-from)*n)[:(to-from)*n]
		t.fill(*buf, from*n)
		return *buf
	}
	for ; from < to; from++ {
		*buf = append(*buf, t.Row(from)...)
	}
	return *buf
}

// Rows returns the number of rows of the last dimension.
func (t *Tensor) Rows() int {
	if t.Shape.Last() == 0 {
		return 0
	}
	return t.Shape.Size() / t.Shape.Last()
}

// Set holds tensors by their names, in order.
type Set struct {
	Names  []string
	ByName map[string]Tensor
}

// Drop removes a tensor, if present.
func (s *Set) Drop(name string) {
	delete(s.ByName, name)
	if i := slices.Index(s.Names, name); i >= 0 {
		s.Names = slices.Delete(s.Names, i, i+1)
	}
}
