package quant

import "math"

// Formats with blocks of 32 weights and one scale. Where a byte holds two
// weights, byte j holds weight j in its low half and weight j+16 in its high half.

// codesQ4_0 reads
//
//	0  d  float16
//	2  qs [16]byte, two weights each
//
// weight = d * (qs - 8).
func codesQ4_0(q, b []byte) { halves(q, b[2:18]) }

// halves reads two codes from each of 16 bytes.
func halves(q, qs []byte) {
	q, qs = q[:32], qs[:16]
	x, y := load8(qs), load8(qs[8:])
	store8(q, x&(15*each))
	store8(q[8:], y&(15*each))
	store8(q[16:], x>>4&(15*each))
	store8(q[24:], y>>4&(15*each))
}

// codesQ4_1 reads
//
//	0  d  float16
//	2  m  float16
//	4  qs [16]byte, two weights each
//
// weight = d*qs + m.
func codesQ4_1(q, b []byte) { halves(q, b[4:20]) }

// codesQ5_0 reads
//
//	0  d  float16
//	2  qh uint32, bit i is the fifth bit of weight i
//	6  qs [16]byte, the low four bits, two weights each
//
// weight = d * ((qh<<4 | qs) - 16).
func codesQ5_0(q, b []byte) { fifth(q, b[2:6], b[6:22]) }

// fifth reads the low four bits of 32 codes from qs, and their fifth from qh.
func fifth(q, qh, qs []byte) {
	halves(q, qs)
	for j := 0; j < 32; j += 8 {
		store8(q[j:], load8(q[j:])|spread8(qh[j/8])<<4)
	}
}

// codesQ5_1 reads
//
//	0  d  float16
//	2  m  float16
//	4  qh uint32, bit i is the fifth bit of weight i
//	8  qs [16]byte, the low four bits, two weights each
//
// weight = d*(qh<<4 | qs) + m.
func codesQ5_1(q, b []byte) { fifth(q, b[4:8], b[8:24]) }

// codesQ8_0 reads
//
//	0  d  float16
//	2  qs [32]int8
//
// weight = d * qs.
func codesQ8_0(q, b []byte) {
	qs, q := b[2:34], q[:32]
	for j := 0; j < 32; j += 8 {
		store8(q[j:], load8(qs[j:])^128*each)
	}
}

// iq4 is the table of the non-linear four-bit formats IQ4_NL and IQ4_XS.
var iq4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// codesIQ4_NL reads
//
//	0  d  float16
//	2  qs [16]byte, two indices each
//
// weight = d * iq4[qs].
func codesIQ4_NL(q, b []byte) { halves(q, b[2:18]) }

// e2m1 holds twice the values of a four-bit float with two exponent bits and
// one mantissa bit (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives): integers.
// Negative zero has no integer; like llama.cpp's, ours is 0.
var e2m1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// codesMXFP4 reads
//
//	0  e  E8M0, the scale 2^(e-127)
//	1  qs [16]byte, two E2M1 floats each
//
// weight = 2^(e-127) * E2M1(qs), here 2^(e-128) * e2m1[qs].
func codesMXFP4(q, b []byte) { halves(q, b[1:17]) }

// halfE8M0 is 2^(e-128), and NaN for 255, as the specification has it
// (section 5.4.1; llama.cpp reads 255 as one more power of two).
func halfE8M0(e byte) float32 {
	switch e {
	case 0, 1: // subnormal
		return math.Float32frombits(0x00200000 << e)
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(e-1) << 23)
}
