// Package quant reads and writes the block formats of GGUF.
//
// A block is 32 to 256 consecutive weights of a row, stored as small integers with shared scales. Codes and Header give
// the integers and the scales as stored, for integer dot products; Dequantize gives the weights as float32, also of the
// plain float types. Quantize writes all types.
//
// In every format a weight is scale*q, or scale*q + min, where q fits an int8, or with min a byte, and scale and min
// belong to a group of 16 or 32 weights (GroupSize). The scale is the product of the block's scale and the group's,
// which float32 holds exactly, and so is scale*q (23 bits are the longest, in Q6_K and IQ4_XS). Only the addition of
// min rounds, which is why the weights equal llama.cpp's bit for bit whatever the order of operations, fused
// multiply-add included.
//
// The layouts are ggml's (ggml-common.h and ggml-quants.c in llama.cpp); MXFP4 is also in the OCP Microscaling Formats
// specification, version 1.0.
//
// Files, users before the used: format.go has the table of formats; encode1.go, encodegrid.go, search.go (scales),
// encodeternary.go, encode256.go and encode32.go write a block, and encode.go a row; block256.go has the larger
// blocks' codes, grouped.go grouped types, quant.go reads, grid.go the codes with a grid, bits.go the parts of bytes.
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// maxBlock and maxGroups bound a block of any format.
const (
	maxBlock  = 256
	maxGroups = 16
)

// GroupSize returns the number of consecutive weights sharing a scale: 16 in Q2_K, Q3_K, Q6_K, IQ1_M, IQ2_XS, IQ2_S and
// NVFP4, 32 in the other quantized types, 0 if d is not quantized.
func GroupSize(d tensor.DType) int { return formatOf(d).group }

// HasMin reports whether d's groups have a minimum, added to scale*q.
func HasMin(d tensor.DType) bool { return formatOf(d).min }

// Offset returns the difference between d's codes and the integers of its weights.
func Offset(d tensor.DType) byte { return formatOf(d).offset }

// Unit returns the factor of a group's scale that a Header leaves out.
func Unit(d tensor.DType) float32 { return formatOf(d).unit }

// Table returns the integers of d's weights by code, or nil where the integers are the codes less Offset(d).
func Table(d tensor.DType) *[16]int8 { return formatOf(d).table }

// Levels returns the integers of d's weights, least first, if d's codes have gaps between at most 16 values; else nil.
func Levels(d tensor.DType) []int8 { return formatOf(d).levels }

// Codes sets dst to the codes of src: whole blocks of the quantized type d, with exactly len(dst) weights.
func Codes(d tensor.DType, dst, src []byte) error {
	if !d.Quantized() {
		return fmt.Errorf("%v has no blocks", d)
	}
	if err := checkRow(d, len(dst), len(src)); err != nil {
		return err
	}
	for len(dst) > 0 {
		codes(d, dst, src)
		dst, src = dst[d.BlockSize():], src[d.BlockBytes():]
	}
	return nil
}

// Unpack reads whole blocks of the quantized type d, a type without minima: the codes, and each group's scale to every
// step-th of scales.
func Unpack(d tensor.DType, codesOf []byte, scales []float32, step int, src []byte) {
	var h Header
	f, size := formatOf(d), d.BlockSize()
	groups := size / f.group
	for ; len(src) > 0; codesOf, src = codesOf[size:], src[d.BlockBytes():] {
		codes(d, codesOf, src)
		h.Read(d, src)
		first, factor := scales[:(groups-1)*step+1], float16.F16(h.D)
		scales = scales[min(groups*step, len(scales)):]
		switch {
		case d == tensor.NVFP4:
			for g := range groups {
				first[g*step] = float16.F16(h.Each[g])
			}
		case f.unit == 0:
			for g := range groups {
				first[g*step] = factor
			}
		default:
			factor *= f.unit // exact, as are the products
			for g := range groups {
				first[g*step] = factor * float32(h.Scales[g])
			}
		}
	}
}

// A Header is a block's scales as stored. In a block of fewer than 256 weights the scale is D, and Min is added. In a
// block of 256 the scale of group g is D*Scales[g]*Unit(d), and Min*Mins[g] is subtracted. In NVFP4 the scale of group
// g is Each[g], and D the largest. All are binary16; MXFP4's D is bfloat16. Zero is the zero point of a block of a
// grouped type, which Codes and Offset(d) account for.
type Header struct {
	D, Min       uint16
	Zero         byte
	Scales, Mins [maxGroups]int8
	Each         [4]uint16
}

// Read reads the header of the block of the quantized type d at the start of b.
func (h *Header) Read(d tensor.DType, b []byte) {
	h.readHalves(d, formatOf(d), b)
	switch d {
	case tensor.Q2_K:
		scalesQ2_K(h, b)
	case tensor.Q3_K:
		scalesQ3_K(h, b)
	case tensor.Q4_K, tensor.Q5_K:
		scalesK(h, b)
	case tensor.Q6_K:
		scalesQ6_K(h, b)
	case tensor.IQ4_XS:
		scalesIQ4_XS(h, b)
	case tensor.IQ1_S:
		scalesIQ1_S(h, b)
	case tensor.IQ1_M:
		scalesIQ1_M(h, b)
	case tensor.IQ2_XXS:
		scalesIQ2_XXS(h, b)
	case tensor.IQ2_XS:
		oddHalves(h, b[66:74])
	case tensor.IQ2_S:
		oddHalves(h, b[74:82])
	case tensor.IQ3_XXS:
		scalesIQ3_XXS(h, b)
	case tensor.IQ3_S:
		oddHalves(h, b[106:110])
	case tensor.TQ1_0, tensor.TQ2_0:
		for i := range 8 {
			h.Scales[i] = 1
		}
	}
}

// readHalves reads D, Min and Each.
func (h *Header) readHalves(d tensor.DType, f *format, b []byte) {
	switch d {
	case tensor.MXFP4:
		h.D = uint16(math.Float32bits(halfE8M0(b[0])) >> 16)
	case tensor.NVFP4:
		h.D = 0
		for i := range h.Each {
			h.Each[i] = halfE4M3(b[i])
			h.D = max(h.D, h.Each[i])
		}
	case tensor.IQ1_M:
		h.D = 0
		for i := range 4 {
			h.D |= half16(b[48+2*i:]) >> 12 << (4 * i)
		}
	default:
		h.D = half16(b[f.scale:])
	}
	if f.min {
		h.Min = half16(b[f.scale+2:])
	}
	if _, zero := d.Groups(); zero {
		h.Zero = b[2]
	}
}

// floats returns D and Min.
func (h *Header) floats(d tensor.DType) (scale, min float32) {
	if d == tensor.MXFP4 {
		return float16.BF16(h.D), 0
	}
	return float16.F16(h.D), float16.F16(h.Min)
}

// group returns the scale and the minimum of group g, of a block with floats scale and min.
func (h *Header) group(d tensor.DType, g int, scale, min float32) (float32, float32) {
	switch unit := formatOf(d).unit; {
	case d == tensor.NVFP4:
		return float16.F16(h.Each[g]), 0
	case unit == 0:
		return scale, min
	default:
		return scale * float32(h.Scales[g]) * unit, -(min * float32(h.Mins[g]))
	}
}

// Dequantize reads len(dst) elements of type d, a quantized or a float type. src holds these elements alone, and
// len(dst) is a multiple of d's block size; anything else is an error, and nothing is written. F64 is rounded to
// nearest.
func Dequantize(d tensor.DType, dst []float32, src []byte) error {
	if !d.Quantized() && !d.Float() {
		return fmt.Errorf("%v elements are not weights", d)
	}
	if err := checkRow(d, len(dst), len(src)); err != nil {
		return err
	}
	switch d {
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case tensor.F16:
		eachWords(dst, src, simd.LoadF16)
	case tensor.BF16:
		eachWords(dst, src, simd.LoadBF16)
	case tensor.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	default:
		dequantizeBlocks(d, dst, src)
	}
	return nil
}

// eachWords loads dst from the 16-bit numbers in src.
func eachWords(dst []float32, src []byte, load func(dst []float32, src []uint16)) {
	if w := float16.Words(src); w != nil {
		load(dst, w)
		return
	}
	var words [256]uint16
	for len(dst) > 0 {
		n := min(len(dst), len(words))
		for i := range words[:n] {
			words[i] = half16(src[2*i:])
		}
		load(dst[:n], words[:n])
		dst, src = dst[n:], src[2*n:]
	}
}

// dequantizeBlocks multiplies the blocks' integers by their scales.
func dequantizeBlocks(d tensor.DType, dst []float32, src []byte) {
	var q [maxBlock]byte
	var h Header
	f := formatOf(d)
	group, offset, table := f.group, int32(f.offset), f.table
	for len(dst) > 0 {
		codes(d, q[:], src)
		h.Read(d, src)
		d0, min0 := h.floats(d)
		for g := range d.BlockSize() / group {
			out, in := dst[g*group:(g+1)*group], q[g*group:(g+1)*group]
			scale, min := h.group(d, g, d0, min0)
			switch out = out[:len(in)]; {
			case table != nil:
				for j, v := range in {
					out[j] = scale * float32(table[v])
				}
			case f.min:
				for j, v := range in {
					out[j] = float32(scale*float32(int32(v)-offset)) + min
				}
			default: // -0 + 0 would lose the sign
				for j, v := range in {
					out[j] = scale * float32(int32(v)-offset)
				}
			}
		}
		dst, src = dst[d.BlockSize():], src[d.BlockBytes():]
	}
}

// checkRow reports whether n elements of d are whole blocks of just size bytes.
func checkRow(d tensor.DType, n, size int) error {
	if n%d.BlockSize() != 0 {
		return fmt.Errorf("%v: %d elements are no multiple of the block of %d", d, n, d.BlockSize())
	}
	if blocks := n / d.BlockSize(); size%d.BlockBytes() != 0 || size/d.BlockBytes() != blocks {
		return fmt.Errorf("%v: %d bytes for %d elements, need %d blocks of %d", d, size, n, blocks, d.BlockBytes())
	}
	return nil
}

// half16 returns the bits of the little-endian binary16 at the start of b.
func half16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
