package main

import (
	"fmt"
	"strings"
)

// The classes of Advanced SIMD instructions by their bit fields. (Arm
// Architecture Reference Manual for A-profile, DDI 0487, C4.1.) q is 1 for 128
// bits, or the upper halves of the registers; u and size tell
// instructions of one opcode apart.

// same3 has three registers of one arrangement.
func same3(q, u, size, opcode uint32) uint32 {
	return q<<30 | u<<29 | 0b01110<<24 | size<<22 | 1<<21 | opcode<<11 | 1<<10
}

// extra3 is same3's extension.
func extra3(q, u, size, opcode uint32) uint32 {
	return q<<30 | u<<29 | 0b01110<<24 | size<<22 | 1<<15 | opcode<<11 | 1<<10
}

// misc2 has two registers.
func misc2(q, u, size, opcode uint32) uint32 {
	return q<<30 | u<<29 | 0b01110<<24 | size<<22 | 0b10000<<17 | opcode<<12 | 0b10<<10
}

// across has one register, and the result of its lanes.
func across(q, u, size, opcode uint32) uint32 {
	return q<<30 | u<<29 | 0b01110<<24 | size<<22 | 0b11000<<17 | opcode<<12 | 0b10<<10
}

// shift has a constant in immh:immb.
func shift(q, u, opcode uint32) uint32 {
	return q<<30 | u<<29 | 0b011110<<23 | opcode<<11 | 1<<10
}

// lane has one lane of the last operand.
func lane(q, u, size, opcode uint32) uint32 {
	return q<<30 | u<<29 | 0b01111<<24 | size<<22 | opcode<<12
}

// A macro's operands, and the fields that they go to.
const (
	two    = "n, d: n<<5 | d"
	three  = "m, n, d: m<<16 | n<<5 | d"
	laneS  = "i, m, n, d: (i&1)<<21 | (i&2)<<10 | m<<16 | n<<5 | d"            // L, H
	laneH  = "i, m, n, d: (i&1)<<20 | (i&2)<<20 | (i&4)<<9 | m<<16 | n<<5 | d" // M, L, H
	rightS = "i, n, d: (64-i)<<16 | n<<5 | d"
	leftB  = "i, n, d: (8+i)<<16 | n<<5 | d"
	leftH  = "i, n, d: (16+i)<<16 | n<<5 | d"
	leftS  = "i, n, d: (32+i)<<16 | n<<5 | d"
)

var words = []struct {
	comment    string // above the following ones
	name, form string
	base       uint32
	feature    string // beyond Advanced SIMD
}{
	{comment: "d = n op m"},
	{name: "FADD_S4", form: three, base: same3(1, 0, 0, 0b11010)},
	{name: "FSUB_S4", form: three, base: same3(1, 0, 2, 0b11010)},
	{name: "FMUL_S4", form: three, base: same3(1, 1, 0, 0b11011)},
	{name: "FDIV_S4", form: three, base: same3(1, 1, 0, 0b11111)},
	{name: "FMAX_S4", form: three, base: same3(1, 0, 0, 0b11110)},
	{name: "FMIN_S4", form: three, base: same3(1, 0, 2, 0b11110)},
	{name: "FADDP_S4", form: three, base: same3(1, 1, 0, 0b11010)},
	{name: "FCMGT_S4", form: three, base: same3(1, 1, 2, 0b11100)},
	{comment: "d = n*m, or the sums of n's pairs, or d + those, of integers"},
	{name: "MUL_S4", form: three, base: same3(1, 0, 2, 0b10011)},
	{name: "SADDLP_S4", form: two, base: misc2(1, 0, 1, 0b00010)},
	{name: "SADALP_S4", form: two, base: misc2(1, 0, 1, 0b00110)},
	{comment: "what it has, for macros of register numbers: d = n, d + n*m, n + m, n<<i"},
	{name: "MOV_B16", form: "n, d: n<<16 | n<<5 | d", base: same3(1, 0, 2, 0b00011)},
	{name: "FMLA_S4", form: three, base: same3(1, 0, 0, 0b11001)},
	{name: "ADD_S4", form: three, base: same3(1, 0, 2, 0b10000)},
	{name: "SHL_S4", form: leftS, base: shift(1, 0, 0b01010)},
	{comment: "d = n<<m, or n>>-m; all bits where n and m share bits; where n is more than m"},
	{name: "USHL_S4", form: three, base: same3(1, 1, 2, 0b01000)},
	{name: "CMTST_B16", form: three, base: same3(1, 0, 0, 0b10001)},
	{name: "CMHI_B16", form: three, base: same3(1, 1, 0, 0b00110)},
	{comment: "d = d + n*m[i], or n*m[i]"},
	{name: "FMLA_S4_LANE", form: laneS, base: lane(1, 0, 2, 0b0001)},
	{name: "FMUL_S4_LANE", form: laneS, base: lane(1, 0, 2, 0b1001)},
	{comment: "d = op n"},
	{name: "FABS_S4", form: two, base: misc2(1, 0, 2, 0b01111)},
	{name: "FNEG_S4", form: two, base: misc2(1, 1, 2, 0b01111)},
	{name: "SCVTF_S4", form: two, base: misc2(1, 0, 0, 0b11101)},
	{name: "FCVTZS_S4", form: two, base: misc2(1, 0, 2, 0b11011)},
	{name: "FCVTL_S4", form: two, base: misc2(0, 0, 0, 0b10111)},
	{name: "FCVTL2_S4", form: two, base: misc2(1, 0, 0, 0b10111)},
	{name: "FCVTN_H4", form: two, base: misc2(0, 0, 0, 0b10110)},
	{name: "FCVTN2_H8", form: two, base: misc2(1, 0, 0, 0b10110)},
	{name: "FCVTNS_S4", form: two, base: misc2(1, 0, 0, 0b11010)},
	{name: "XTN_H4", form: two, base: misc2(0, 0, 1, 0b10010)},
	{name: "XTN2_H8", form: two, base: misc2(1, 0, 1, 0b10010)},
	{name: "FMAXV_S4", form: two, base: across(1, 1, 0, 0b01111)},
	{comment: "d = n>>i, or n<<i of twice the width"},
	{name: "SSHR_S4", form: rightS, base: shift(1, 0, 0b00000)},
	{name: "SSHLL_H8", form: leftB, base: shift(0, 0, 0b10100)},
	{name: "SSHLL2_H8", form: leftB, base: shift(1, 0, 0b10100)},
	{name: "SSHLL_S4", form: leftH, base: shift(0, 0, 0b10100)},
	{name: "SSHLL2_S4", form: leftH, base: shift(1, 0, 0b10100)},
	{comment: "d = d + n*m[i], of 16-bit integers; m is v0 to v15"},
	{name: "SMLAL_S4_LANE", form: laneH, base: lane(0, 0, 1, 0b0010)},
	{name: "SMLAL2_S4_LANE", form: laneH, base: lane(1, 0, 1, 0b0010)},
	{comment: "FEAT_DotProd: d[j] = d[j] + the sum of n[4j+k]*m[4j+k], or of n[4j+k]*m[4i+k], k < 4"},
	{name: "SDOT_S4", form: three, base: extra3(1, 0, 2, 0b0010), feature: "ASIMDDP"},
	{name: "SDOT_S4_LANE", form: laneS, base: lane(1, 0, 2, 0b1110), feature: "ASIMDDP"},
	{name: "UDOT_S4_LANE", form: laneS, base: lane(1, 1, 2, 0b1110), feature: "ASIMDDP"},
}

func arm64() string {
	var b strings.Builder
	b.WriteString(`// Code generated by internal/dev/simdgen. DO NOT EDIT.

// Vector instructions that Go's assembler lacks. Names are as it would have
// them: V, the manual's, and the arrangement of the result where there are
// several. Operands are in its order, the destination last; registers are v0 to
// v31. A 2 at the end of the manual's name stands for upper halves: of what a
// longer result is made of, or where a shorter one goes.

`)
	for i := range 32 {
		fmt.Fprintf(&b, "#define v%d %d\n", i, i)
	}
	for _, w := range words {
		if w.comment != "" {
			fmt.Fprintf(&b, "\n// %s\n", w.comment)
			continue
		}
		operands, fields, _ := strings.Cut(w.form, ": ")
		fmt.Fprintf(&b, "#define V%s(%s) WORD $(%#08x | %s)\n", w.name, operands, w.base, fields)
	}
	return b.String()
}
