// Package float16 converts single values of the two 16-bit float formats, IEEE 754 binary16 (F16) and bfloat16 (BF16),
// from and to float32. Encoding rounds to nearest, ties to even; NaNs stay NaNs. Floats of 8 and 4 bits are read.
//
// Files in reading order: float16.go, small.go.
package float16

import (
	"math"
	"unsafe"
)

// F16 is the value of a binary16 bit pattern, exact.
func F16(b uint16) float32 {
	sign, exp, frac := uint32(b>>15)<<31, uint32(b>>10)&31, uint32(b)&0x3ff
	switch exp {
	case 0: // zero or subnormal: frac * 2^-24, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// ToF16 is the binary16 bit pattern nearest to x; beyond 65504 it is an infinity.
func ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN: quiet, payload's top kept
		return sign | 0x7e00 | uint16(abs>>13)&0x3ff
	case abs >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: subnormal, in units of 2^-24
		f := math.Float32frombits(abs) + 0.5 // the unit in the last place of 0.5 is 2^-24
		return sign | uint16(math.Float32bits(f)-0x3f000000)
	}
	abs += 0xfff + (abs>>13)&1
	return sign | uint16((abs-0x38000000)>>13)
}

// BF16 is the value of a bfloat16 bit pattern, exact.
func BF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 is the bfloat16 bit pattern nearest to x.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// LittleEndian reports whether the machine's numbers have the order of bytes that files have.
var LittleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// Words is b in place as numbers of 16 bits, without an odd last byte; nil where
// the machine's order of bytes, or b's alignment, does not allow that.
func Words(b []byte) []uint16 {
	if n := len(b) / 2; n > 0 && LittleEndian && uintptr(unsafe.Pointer(&b[0]))%2 == 0 {
		return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), n) // n*2 <= len(b)
	}
	return nil
}
