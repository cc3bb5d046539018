// Package quant reads the block formats of GGUF.
//
// A block is 32 or 256 consecutive weights of a row, stored as small integers
// with shared scales. Unpack gives the integers and the scales as they are, for
// integer dot products; Dequantize gives the weights as float32, and reads the
// plain float types too.
//
// In every format a weight is scale*q, or scale*q + min, where q fits an int8
// and scale and min belong to a group of 16 or 32 weights (GroupSize). The scale
// is the product of the block's scale and the group's, which float32 holds
// exactly, and so is scale*q (23 bits are the longest, in Q6_K and IQ4_XS).
// Only the addition of min rounds, which is why the weights equal llama.cpp's
// bit for bit whatever the order of operations, fused multiply-add included.
//
// The layouts are those of ggml (ggml-common.h and ggml-quants.c in llama.cpp);
// MXFP4 is also in the OCP Microscaling Formats specification, version 1.0.
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// maxBlock and maxGroups bound what one block of any format holds.
const (
	maxBlock  = 256
	maxGroups = 16
)

// GroupSize is the number of consecutive weights that share a scale: 16 in
// Q2_K, Q3_K and Q6_K, 32 in the other quantized types, 0 if d is not quantized.
func GroupSize(d tensor.DType) int {
	switch d {
	case tensor.Q2_K, tensor.Q3_K, tensor.Q6_K:
		return 16
	}
	if d.Quantized() {
		return 32
	}
	return 0
}

// HasMin reports whether d's groups have a minimum that is added to scale*q.
func HasMin(d tensor.DType) bool {
	switch d {
	case tensor.Q4_1, tensor.Q5_1, tensor.Q2_K, tensor.Q4_K, tensor.Q5_K:
		return true
	}
	return false
}

// Unpack splits a row of the quantized type d into integers and scales: weight
// i is scale[g]*q[i], or scale[g]*q[i] + min[g] if HasMin(d), g = i/GroupSize(d).
// Scales and minima carry their sign and may be any float32, NaN included.
//
// len(q) is the row's length, src its bytes, and len(scale) the number of its
// groups, as is len(min) if HasMin(d); without a minimum, min is not used and
// may be nil. Anything else is an error, and nothing is written.
func Unpack(d tensor.DType, q []int8, scale, min []float32, src []byte) error {
	if !d.Quantized() {
		return fmt.Errorf("quant: %v has no blocks", d)
	}
	if err := checkRow(d, len(q), len(src)); err != nil {
		return err
	}
	groups := len(q) / GroupSize(d)
	if len(scale) != groups {
		return fmt.Errorf("quant: %v: room for %d scales, the row has %d", d, len(scale), groups)
	}
	perBlock := d.BlockSize() / GroupSize(d)
	if !HasMin(d) {
		min = nil
	} else if len(min) != groups {
		return fmt.Errorf("quant: %v: room for %d minima, the row has %d", d, len(min), groups)
	}
	for len(q) > 0 {
		unpackBlock(d, q, scale, min, src)
		q, scale, src = q[d.BlockSize():], scale[perBlock:], src[d.BlockBytes():]
		if min != nil {
			min = min[perBlock:]
		}
	}
	return nil
}

// unpackBlock unpacks the first block of src, for which there is room.
func unpackBlock(d tensor.DType, q []int8, scale, min []float32, src []byte) {
	switch d {
	case tensor.Q4_0:
		unpackQ4_0(q, scale, src)
	case tensor.Q4_1:
		unpackQ4_1(q, scale, min, src)
	case tensor.Q5_0:
		unpackQ5_0(q, scale, src)
	case tensor.Q5_1:
		unpackQ5_1(q, scale, min, src)
	case tensor.Q8_0:
		unpackQ8_0(q, scale, src)
	case tensor.Q2_K:
		unpackQ2_K(q, scale, min, src)
	case tensor.Q3_K:
		unpackQ3_K(q, scale, src)
	case tensor.Q4_K:
		unpackQ4_K(q, scale, min, src)
	case tensor.Q5_K:
		unpackQ5_K(q, scale, min, src)
	case tensor.Q6_K:
		unpackQ6_K(q, scale, src)
	case tensor.IQ4_NL:
		unpackIQ4_NL(q, scale, src)
	case tensor.IQ4_XS:
		unpackIQ4_XS(q, scale, src)
	case tensor.MXFP4:
		unpackMXFP4(q, scale, src)
	}
}

// Dequantize reads len(dst) elements of type d, a quantized or a float type.
// src holds just these elements, and len(dst) is a multiple of d's block size;
// anything else is an error, and nothing is written. F64 is rounded to nearest.
func Dequantize(d tensor.DType, dst []float32, src []byte) error {
	if !d.Quantized() && !d.Float() {
		return fmt.Errorf("quant: %v elements are not weights", d)
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
		for i := range dst {
			dst[i] = half(src[2*i:])
		}
	case tensor.BF16:
		for i := range dst {
			dst[i] = float16.BF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case tensor.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	default:
		dequantizeBlocks(d, dst, src)
	}
	return nil
}

// dequantizeBlocks multiplies what unpackBlock gives.
func dequantizeBlocks(d tensor.DType, dst []float32, src []byte) {
	var q [maxBlock]int8
	var scale, min [maxGroups]float32 // min stays 0 in formats without
	group, hasMin := GroupSize(d), HasMin(d)
	for len(dst) > 0 {
		unpackBlock(d, q[:], scale[:], min[:], src)
		for i := range d.BlockSize() / group {
			out, in, s := dst[i*group:(i+1)*group], q[i*group:(i+1)*group], scale[i]
			if hasMin {
				for j, v := range in {
					out[j] = float32(s*float32(v)) + min[i]
				}
				continue
			}
			for j, v := range in { // no min: -0 + 0 would lose the sign
				out[j] = s * float32(v)
			}
		}
		dst, src = dst[d.BlockSize():], src[d.BlockBytes():]
	}
}

// checkRow reports whether n elements of d are whole blocks of just size bytes.
func checkRow(d tensor.DType, n, size int) error {
	if n%d.BlockSize() != 0 {
		return fmt.Errorf("quant: %v: %d elements are no multiple of the block of %d", d, n, d.BlockSize())
	}
	if blocks := n / d.BlockSize(); size%d.BlockBytes() != 0 || size/d.BlockBytes() != blocks {
		return fmt.Errorf("quant: %v: %d bytes for %d elements, need %d blocks of %d", d, size, n, blocks, d.BlockBytes())
	}
	return nil
}

// half is the little-endian binary16 at the start of b.
func half(b []byte) float32 { return float16.F16(binary.LittleEndian.Uint16(b)) }
