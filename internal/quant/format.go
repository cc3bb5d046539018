package quant

import (
	"github.com/karat-run/karat/internal/tensor"
)

// format describes a quantized type.
type format struct {
	group  int       // weights sharing a scale
	scale  int       // place of the block's scale; a minimum follows it
	min    bool      // groups have an added minimum
	offset byte      // difference of codes and the integers of weights
	table  *[16]int8 // integers of weights by code, instead of offset
	levels []int8    // integers of weights, where few of the codes between are used
	unit   float32   // value of a group's scale of 1 in a block with scale 1
}

// formats holds the format of each quantized type. simd writes Q8_0, and Q4_0 without importance.
var formats = [...]format{
	tensor.Q4_0:    {group: 32, offset: 8},
	tensor.Q4_1:    {group: 32, min: true},
	tensor.Q5_0:    {group: 32, offset: 16},
	tensor.Q5_1:    {group: 32, min: true},
	tensor.Q8_0:    {group: 32, offset: 128},
	tensor.IQ4_NL:  {group: 32, table: &iq4},
	tensor.MXFP4:   {group: 32, table: &e2m1},
	tensor.Q2_K:    {group: 16, unit: 1, scale: 80, min: true},
	tensor.Q3_K:    {group: 16, unit: 1, scale: 108, offset: 4},
	tensor.Q4_K:    {group: 32, unit: 1, min: true},
	tensor.Q5_K:    {group: 32, unit: 1, min: true},
	tensor.Q6_K:    {group: 16, unit: 1, scale: 208, offset: 32},
	tensor.IQ4_XS:  {group: 32, unit: 1, table: &iq4},
	tensor.IQ1_S:   {group: 32, offset: 128, levels: levelsIQ1, unit: 1. / 8},
	tensor.IQ1_M:   {group: 16, offset: 128, levels: levelsIQ1, unit: 1. / 8},
	tensor.IQ2_XXS: {group: 32, offset: 128, levels: levelsIQ2, unit: 1. / 8},
	tensor.IQ2_XS:  {group: 16, offset: 128, levels: levelsIQ2, unit: 1. / 8},
	tensor.IQ2_S:   {group: 16, offset: 128, levels: levelsIQ2, unit: 1. / 8},
	tensor.IQ3_XXS: {group: 32, offset: 128, levels: levelsIQ3_XXS, unit: 1. / 4},
	tensor.IQ3_S:   {group: 32, offset: 128, levels: levelsIQ3_S, unit: 1},
	tensor.TQ1_0:   {group: 32, scale: 52, unit: 1, offset: 1},
	tensor.TQ2_0:   {group: 32, scale: 64, unit: 1, offset: 1},
	tensor.NVFP4:   {group: 16, offset: 128, levels: levelsE2M1},
	tensor.Q1_0:    {group: 32, offset: 1},
	tensor.Q2_0:    {group: 32, offset: 1},
}

// encoders are the functions that write a block of x, with importance w or nil; nil for types not written. The list is
// apart from formats, so that a program that encodes nothing links no encoder.
var encoders = [...]func(e *encoder, b []byte, x, w []float32){
	tensor.Q4_0:    (*encoder).q4_0,
	tensor.Q4_1:    (*encoder).q4_1,
	tensor.Q5_0:    (*encoder).q5_0,
	tensor.Q5_1:    (*encoder).q5_1,
	tensor.IQ4_NL:  (*encoder).iq4_NL,
	tensor.MXFP4:   (*encoder).mxfp4,
	tensor.Q2_K:    (*encoder).q2_K,
	tensor.Q3_K:    (*encoder).q3_K,
	tensor.Q4_K:    (*encoder).q4_K,
	tensor.Q5_K:    (*encoder).q5_K,
	tensor.Q6_K:    (*encoder).q6_K,
	tensor.IQ4_XS:  (*encoder).iq4_XS,
	tensor.IQ1_S:   (*encoder).iq1_S,
	tensor.IQ1_M:   (*encoder).iq1_M,
	tensor.IQ2_XXS: (*encoder).iq2_XXS,
	tensor.IQ2_XS:  (*encoder).iq2_XS,
	tensor.IQ2_S:   (*encoder).iq2_S,
	tensor.IQ3_XXS: (*encoder).iq3_XXS,
	tensor.IQ3_S:   (*encoder).iq3_S,
	tensor.TQ1_0:   (*encoder).tq1_0,
	tensor.TQ2_0:   (*encoder).tq2_0,
	tensor.NVFP4:   (*encoder).nvfp4,
	tensor.Q1_0:    (*encoder).q1_0,
	tensor.Q2_0:    (*encoder).q2_0,
}

// withZeros and withMinimums are the formats of grouped types.
var withZeros, withMinimums = format{group: 32, offset: 128}, format{group: 32, min: true}

// formatOf returns the format of d, empty if d is not quantized.
func formatOf(d tensor.DType) *format {
	switch bits, zero := d.Groups(); {
	case bits > 0 && zero:
		return &withZeros
	case bits > 0:
		return &withMinimums
	case int(d) < len(formats):
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
		fours(q, b[2:10], 0)
		fours(q[32:], b[10:18], 0)
	default:
		codesGrouped(d, q, b)
	}
}
