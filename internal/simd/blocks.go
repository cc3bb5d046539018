package simd

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/float16"
)

// BlockWeights is the number of weights in the blocks that BlocksQ8_0 and
// BlocksQ4_0 write.
const BlockWeights = 32

// The bytes of a block: a scale of binary16, and the codes.
const (
	bytesQ8_0 = 2 + BlockWeights
	bytesQ4_0 = 2 + BlockWeights/2
)

// BlocksQ8_0 writes x, whole blocks of finite numbers, as blocks of GGUF's Q8_0. Each step is rounded:
//
//	scale = max |x[i]| / 127, inverse = 1/scale, or 0 where infinite
//	code = x[i]*inverse, rounded to an integer, halves away from zero
func BlocksQ8_0(dst []byte, x []float32) {
	n := len(x) / BlockWeights
	if dst, x = dst[:n*bytesQ8_0], x[:n*BlockWeights]; tier >= avx2 && n > 0 {
		blocksQ8_0AVX2(&dst[0], x)
		return
	}
	blocksQ8_0Generic(dst, x)
}

// BlocksQ4_0 writes x, whole blocks of finite numbers, as blocks of GGUF's Q4_0. Each step is rounded:
//
//	peak = the first x[i] of the largest magnitude, +0 if all are zeros
//	scale = peak / -8, inverse = 1/scale, or 0 where infinite
//	code = x[i]*inverse + 8.5, without its fraction, at most 15
func BlocksQ4_0(dst []byte, x []float32) {
	n := len(x) / BlockWeights
	if dst, x = dst[:n*bytesQ4_0], x[:n*BlockWeights]; tier >= avx2 && n > 0 {
		blocksQ4_0AVX2(&dst[0], x)
		return
	}
	blocksQ4_0Generic(dst, x)
}

// Largest returns the largest magnitude in x, 0 if x is empty, NaN if x holds a NaN.
func Largest(x []float32) float32 {
	n := 0
	if tier >= avx2 {
		n = wideLength(len(x))
	}
	top := largestGeneric(x[n:])
	if n == 0 {
		return top
	}
	return largestGeneric([]float32{top, largestAVX2(x[:n])})
}

func blocksQ8_0Generic(dst []byte, x []float32) {
	for ; len(x) > 0; dst, x = dst[bytesQ8_0:], x[BlockWeights:] {
		inverse := blockScale(dst, largestGeneric(x[:BlockWeights])/127)
		for i, v := range x[:BlockWeights] {
			v = float32(v * inverse)
			half := math.Float32frombits(math.Float32bits(v)&(1<<31) | math.Float32bits(0x0.ffffffp-1))
			dst[2+i] = byte(int32(v + half)) // half is the number below 0.5, so that only halves reach the next integer
		}
	}
}

func blocksQ4_0Generic(dst []byte, x []float32) {
	for ; len(x) > 0; dst, x = dst[bytesQ4_0:], x[BlockWeights:] {
		var peak, high float32
		for _, v := range x[:BlockWeights] {
			if a := abs(v); a > high {
				high, peak = a, v
			}
		}
		inverse := blockScale(dst, peak/-8)
		for i := range BlockWeights / 2 {
			low, high := float32(x[i]*inverse)+8.5, float32(x[i+BlockWeights/2]*inverse)+8.5
			dst[2+i] = byte(min(15, int32(low)) | min(15, int32(high))<<4)
		}
	}
}

// blockScale writes a block's scale and returns its inverse.
func blockScale(dst []byte, scale float32) float32 {
	binary.LittleEndian.PutUint16(dst, float16.ToF16(scale))
	if v := 1 / scale; abs(v) <= math.MaxFloat32 {
		return v
	}
	return 0
}

func largestGeneric(x []float32) float32 {
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31)) // without signs, float32 numbers are ordered as their bits are
	}
	return math.Float32frombits(top)
}
