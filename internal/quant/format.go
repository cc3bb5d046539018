package quant

import (
	"encoding/binary"
	"slices"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// format describes a quantized type.
type format struct {
	group  int                                        // weights sharing a scale
	scale  int                                        // place of the block's scale; a minimum follows it
	min    bool                                       // groups have an added minimum
	offset byte                                       // difference of codes and the integers of weights
	table  *[16]int8                                  // integers of weights by code, instead of offset
	levels []int8                                     // integers of weights, where few of the codes between are used
	unit   float32                                    // value of a group's scale of 1 in a block with scale 1
	encode func(e *encoder, b []byte, x, w []float32) // writes a block of x, with importance w or nil
}

// formats holds the format of each quantized type. simd writes Q8_0, and Q4_0 without importance.
var formats = [...]format{
	tensor.Q4_0:    {group: 32, offset: 8, encode: (*encoder).q4_0},
	tensor.Q4_1:    {group: 32, min: true, encode: (*encoder).q4_1},
	tensor.Q5_0:    {group: 32, offset: 16, encode: (*encoder).q5_0},
	tensor.Q5_1:    {group: 32, min: true, encode: (*encoder).q5_1},
	tensor.Q8_0:    {group: 32, offset: 128},
	tensor.IQ4_NL:  {group: 32, table: &iq4, encode: (*encoder).iq4_NL},
	tensor.MXFP4:   {group: 32, table: &e2m1, encode: (*encoder).mxfp4},
	tensor.Q2_K:    {group: 16, unit: 1, scale: 80, min: true, encode: (*encoder).q2_K},
	tensor.Q3_K:    {group: 16, unit: 1, scale: 108, offset: 4, encode: (*encoder).q3_K},
	tensor.Q4_K:    {group: 32, unit: 1, min: true, encode: (*encoder).q4_K},
	tensor.Q5_K:    {group: 32, unit: 1, min: true, encode: (*encoder).q5_K},
	tensor.Q6_K:    {group: 16, unit: 1, scale: 208, offset: 32, encode: (*encoder).q6_K},
	tensor.IQ4_XS:  {group: 32, unit: 1, table: &iq4, encode: (*encoder).iq4_XS},
	tensor.IQ1_S:   {group: 32, offset: 128, levels: levelsIQ1, unit: 1. / 8, encode: (*encoder).iq1_S},
	tensor.IQ1_M:   {group: 16, offset: 128, levels: levelsIQ1, unit: 1. / 8, encode: (*encoder).iq1_M},
	tensor.IQ2_XXS: {group: 32, offset: 128, levels: levelsIQ2, unit: 1. / 8, encode: (*encoder).iq2_XXS},
	tensor.IQ2_XS:  {group: 16, offset: 128, levels: levelsIQ2, unit: 1. / 8, encode: (*encoder).iq2_XS},
	tensor.IQ2_S:   {group: 16, offset: 128, levels: levelsIQ2, unit: 1. / 8, encode: (*encoder).iq2_S},
	tensor.IQ3_XXS: {group: 32, offset: 128, levels: levelsIQ3_XXS, unit: 1. / 4, encode: (*encoder).iq3_XXS},
	tensor.IQ3_S:   {group: 32, offset: 128, levels: levelsIQ3_S, unit: 1, encode: (*encoder).iq3_S},
	tensor.TQ1_0:   {group: 32, scale: 52, unit: 1, offset: 1, encode: (*encoder).tq1_0},
	tensor.TQ2_0:   {group: 32, scale: 64, unit: 1, offset: 1, encode: (*encoder).tq2_0},
	tensor.NVFP4:   {group: 16, offset: 128, levels: levelsE2M1, encode: (*encoder).nvfp4},
	tensor.Q1_0:    {group: 32, offset: 1, encode: (*encoder).q1_0},
	tensor.Q2_0:    {group: 32, offset: 1, encode: (*encoder).q2_0},
}

// formatOf returns the format of d, empty if d is not quantized.
func formatOf(d tensor.DType) *format {
	if int(d) < len(formats) {
		return &formats[d]
	}
	return &format{}
}

// codes reads the codes of a block. A case shows the layout of its type: the place in the block, name, and type. Where
// a byte holds two weights of a block of 32, byte j holds weight j in its low half and weight j+16 in its high half.
// The calls are direct, so that q stays on its caller's stack.
func codes(d tensor.DType, q, b []byte) {
	switch d {
	case tensor.Q4_0: // 0 d float16, 2 qs [16]byte, two weights each. weight = d * (qs - 8)
		halves(q, b[2:18])
	case tensor.Q4_1: // 0 d float16, 2 m float16, 4 qs [16]byte, two weights each. weight = d*qs + m
		halves(q, b[4:20])
	case tensor.Q5_0: // 0 d float16, 2 qh uint32, bit i is the fifth bit of weight i, 6 qs [16]byte, the low four bits,
		// two weights each. weight = d * ((qh<<4 | qs) - 16)
		fifth(q, b[2:6], b[6:22])
	case tensor.Q5_1: // 0 d float16, 2 m float16, 4 qh and 8 qs as in Q5_0. weight = d*(qh<<4 | qs) + m
		fifth(q, b[4:8], b[8:24])
	case tensor.Q8_0: // 0 d float16, 2 qs [32]int8. weight = d * qs
		qs, q := b[2:34], q[:32]
		for j := 0; j < 32; j += 8 {
			store8(q[j:], load8(qs[j:])^128*each)
		}
	case tensor.IQ4_NL: // 0 d float16, 2 qs [16]byte, two indices each. weight = d * iq4[qs]
		halves(q, b[2:18])
	case tensor.MXFP4: // 0 e E8M0, the scale 2^(e-127), 1 qs [16]byte, two E2M1 floats each.
		// weight = 2^(e-127) * E2M1(qs), here 2^(e-128) * e2m1[qs]
		halves(q, b[1:17])
	case tensor.Q2_K:
		codesQ2_K(q, b)
	case tensor.Q3_K:
		codesQ3_K(q, b)
	case tensor.Q4_K:
		codesQ4_K(q, b)
	case tensor.Q5_K:
		codesQ5_K(q, b)
	case tensor.Q6_K:
		codesQ6_K(q, b)
	case tensor.IQ4_XS:
		codesIQ4_XS(q, b)
	case tensor.IQ1_S:
		codesIQ1_S(q, b)
	case tensor.IQ1_M:
		codesIQ1_M(q, b)
	case tensor.IQ2_XXS:
		codesIQ2_XXS(q, b)
	case tensor.IQ2_XS:
		codesIQ2_XS(q, b)
	case tensor.IQ2_S:
		codesIQ2_S(q, b)
	case tensor.IQ3_XXS:
		codesIQ3_XXS(q, b)
	case tensor.IQ3_S:
		codesIQ3_S(q, b)
	case tensor.TQ1_0:
		codesTQ1_0(q, b)
	case tensor.TQ2_0: // 0 qs [64]byte, four weights each in the order of Q2_K, 64 d float16. weight = d * (qs - 1)
		quarters(q, b[:64])
	case tensor.NVFP4:
		codesNVFP4(q, b)
	case tensor.Q1_0: // 0 d float16, 2 qs [16]byte, eight weights each. weight = d * (2*qs - 1)
		q := q[:128]
		for i, v := range b[2:18] {
			store8(q[8*i:], signs[v]&(2*each))
		}
	case tensor.Q2_0: // 0 d float16, 2 qs [16]byte, four weights each, the first lowest. weight = d * (qs - 1)
		for i, v := range b[2:18] { // spread to the bytes of a word
			x := uint32(v)
			binary.LittleEndian.PutUint32(q[4*i:], (x|x<<6|x<<12|x<<18)&0x03030303)
		}
	}
}

// iq4 is the table of the non-linear four-bit formats IQ4_NL and IQ4_XS.
var iq4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// e2m1 holds twice the values of a four-bit float with two exponent bits and one mantissa bit (0, 0.5, 1, 1.5, 2, 3, 4,
// 6 and their negatives): integers. Negative zero has no integer; like llama.cpp's, ours is 0.
var e2m1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// levelsE2M1 lists e2m1's integers.
var levelsE2M1 = bothSigns(0, 1, 2, 3, 4, 6, 8, 12)

// bothSigns lists integers, least first, and their negatives before them.
func bothSigns(positive ...int8) []int8 {
	var all []int8
	for _, v := range positive {
		if all = append(all, v); v != 0 {
			all = slices.Insert(all, 0, -v)
		}
	}
	return all
}

// halves reads two codes from each of 16 bytes.
func halves(q, qs []byte) {
	q, qs = q[:32], qs[:16]
	x, y := load8(qs), load8(qs[8:])
	store8(q, x&(15*each))
	store8(q[8:], y&(15*each))
	store8(q[16:], x>>4&(15*each))
	store8(q[24:], y>>4&(15*each))
}

// fifth reads the low four bits of 32 codes from qs, and their fifth from qh.
func fifth(q, qh, qs []byte) {
	halves(q, qs)
	for j := 0; j < 32; j += 8 {
		store8(q[j:], load8(q[j:])|spread8(qh[j/8])<<4)
	}
}

// halfE8M0 returns 2^(e-128), and NaN for 255.
func halfE8M0(e byte) float32 { return float16.E8M0(e) / 2 }

// codesNVFP4 reads
//
//	0  scales [4]byte, of each 16 weights, an unsigned E4M3 float
//	4  qs     [32]byte, two E2M1 floats each: of eight bytes the low halves are before the high ones
//
// weight = scale * E2M1(qs), here scale/2 * e2m1[qs], and the code is the integer with 128 added.
func codesNVFP4(q, b []byte) {
	for g := range 4 {
		q, qs := q[16*g:16*g+16], b[4+8*g:12+8*g]
		for i, v := range qs {
			q[i], q[i+8] = codesE2M1[v&15], codesE2M1[v>>4]
		}
	}
}

// codesE2M1 holds e2m1's integers with 128 added.
var codesE2M1 = func() (codes [16]byte) {
	for i, v := range e2m1 {
		codes[i] = byte(v) ^ 128
	}
	return codes
}()

// halfE4M3 returns half of an E4M3 float without its sign, as binary16, and 0 for 127. As in ggml, 255 is 480.
func halfE4M3(e byte) uint16 {
	switch {
	case e == 127:
		return 0
	case e>>3&15 == 0:
		return float16.ToF16(float32(e&7) / 1024)
	}
	return uint16(e&127)<<7 + 7<<10
}

// Eight bytes at a time, in a uint64: one operation where a loop over bytes has eight.

// each is 1 in every byte.
const each = 0x0101010101010101

// load8 reads b[:8].
func load8(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// store8 writes q[:8].
func store8(q []byte, v uint64) { binary.LittleEndian.PutUint64(q, v) }

// spread8 returns bit i of b as byte i, 0 or 1.
func spread8(b byte) uint64 {
	v := uint64(b) * each & 0x8040201008040201 // byte i has bit i of b, at its place
	return (v + 127*each) & (128 * each) >> 7
}
