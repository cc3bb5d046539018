package quant

import "math"

// Formats with blocks of 32 weights and one scale. Where a byte holds two
// weights, byte j holds weight j in its low half and weight j+16 in its high half.

// unpackQ4_0 reads
//
//	0  d  float16
//	2  qs [16]byte, two weights each
//
// weight = d * (qs - 8).
func unpackQ4_0(q []int8, scale []float32, b []byte) {
	qs, q := b[2:18], q[:32]
	scale[0] = half(b)
	for j := 0; j < 16; j += 8 {
		x := load8(qs[j:])
		store8(q[j:], less8(x&(15*each), 8))
		store8(q[j+16:], less8(x>>4&(15*each), 8))
	}
}

// unpackQ4_1 reads
//
//	0  d  float16
//	2  m  float16
//	4  qs [16]byte, two weights each
//
// weight = d*qs + m.
func unpackQ4_1(q []int8, scale, min []float32, b []byte) {
	qs, q := b[4:20], q[:32]
	scale[0], min[0] = half(b), half(b[2:])
	for j := 0; j < 16; j += 8 {
		x := load8(qs[j:])
		store8(q[j:], x&(15*each))
		store8(q[j+16:], x>>4&(15*each))
	}
}

// unpackQ5_0 reads
//
//	0  d  float16
//	2  qh uint32, bit i is the fifth bit of weight i
//	6  qs [16]byte, the low four bits, two weights each
//
// weight = d * ((qh<<4 | qs) - 16).
func unpackQ5_0(q []int8, scale []float32, b []byte) {
	qs, q := b[6:22], q[:32]
	scale[0] = half(b)
	qh := b[2:6]
	for j := 0; j < 16; j += 8 {
		x := load8(qs[j:])
		store8(q[j:], less8(x&(15*each)|spread8(qh[j/8])<<4, 16))
		store8(q[j+16:], less8(x>>4&(15*each)|spread8(qh[j/8+2])<<4, 16))
	}
}

// unpackQ5_1 reads
//
//	0  d  float16
//	2  m  float16
//	4  qh uint32, bit i is the fifth bit of weight i
//	8  qs [16]byte, the low four bits, two weights each
//
// weight = d*(qh<<4 | qs) + m.
func unpackQ5_1(q []int8, scale, min []float32, b []byte) {
	qs, q := b[8:24], q[:32]
	scale[0], min[0] = half(b), half(b[2:])
	qh := b[4:8]
	for j := 0; j < 16; j += 8 {
		x := load8(qs[j:])
		store8(q[j:], x&(15*each)|spread8(qh[j/8])<<4)
		store8(q[j+16:], x>>4&(15*each)|spread8(qh[j/8+2])<<4)
	}
}

// unpackQ8_0 reads
//
//	0  d  float16
//	2  qs [32]int8
//
// weight = d * qs.
func unpackQ8_0(q []int8, scale []float32, b []byte) {
	qs, q := b[2:34], q[:32]
	scale[0] = half(b)
	for j := 0; j < 32; j += 8 {
		store8(q[j:], load8(qs[j:]))
	}
}

// iq4 is the table of the non-linear four-bit formats IQ4_NL and IQ4_XS.
var iq4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// unpackIQ4_NL reads
//
//	0  d  float16
//	2  qs [16]byte, two indices each
//
// weight = d * iq4[qs].
func unpackIQ4_NL(q []int8, scale []float32, b []byte) {
	scale[0] = half(b)
	lookup(q, b[2:18], &iq4)
}

// e2m1 holds twice the values of a four-bit float with two exponent bits and
// one mantissa bit (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives): integers.
// Negative zero has no integer; like llama.cpp's, ours is 0.
var e2m1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// unpackMXFP4 reads
//
//	0  e  E8M0, the scale 2^(e-127)
//	1  qs [16]byte, two E2M1 floats each
//
// weight = 2^(e-127) * E2M1(qs), here 2^(e-128) * e2m1[qs].
func unpackMXFP4(q []int8, scale []float32, b []byte) {
	scale[0] = halfE8M0(b[0])
	lookup(q, b[1:17], &e2m1)
}

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

// lookup replaces the indices of 32 weights by the table's values.
func lookup(q []int8, qs []byte, table *[16]int8) {
	q, qs = q[:32], qs[:16]
	for j, x := range qs {
		q[j] = table[x&15]
		q[j+16] = table[x>>4]
	}
}
