package float16

import "math"

// E4M3 returns the value of an 8-bit float with four exponent bits and three mantissa bits, exact: without infinities,
// and NaN where all bits but the sign are set. (OCP 8-bit Floating Point Specification, section 5.1.)
func E4M3(b byte) float32 {
	sign, abs := uint32(b>>7)<<31, uint32(b&0x7f)
	switch {
	case abs == 0x7f:
		return float32(math.NaN())
	case abs < 8: // zero or subnormal, in units of 2^-9
		return math.Float32frombits(sign | math.Float32bits(float32(abs)*0x1p-9))
	}
	return math.Float32frombits(sign | abs<<20 + 120<<23)
}

// E5M2 returns the value of an 8-bit float with five exponent bits and two mantissa bits: the high half of binary16.
func E5M2(b byte) float32 { return F16(uint16(b) << 8) }

// E8M0 returns 2^(b-127), and NaN for 255. (OCP Microscaling Formats Specification, section 5.4.1; llama.cpp reads 255
// as one more power of two.)
func E8M0(b byte) float32 {
	switch b {
	case 0:
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << 23)
}

// E2M1 returns the value of the low four bits, a float with two exponent bits and one mantissa bit.
func E2M1(b byte) float32 {
	v := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[b&7]
	return math.Float32frombits(math.Float32bits(v) | uint32(b>>3&1)<<31)
}
