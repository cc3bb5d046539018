package simd

import (
	"encoding/binary"
	"math"

	"github.com/karat-run/karat/internal/float16"
)

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
