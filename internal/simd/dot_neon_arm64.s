#include "textflag.h"
#include "words_arm64.h"

// Kernels that add the products of four rows of w and one of x to their 16
// partial sums: four registers of sums for each row.
//
//	R0       sums
//	R2 to R5 rows of w from the current block of 16 on
//	R6       x from there on
//	R7       blocks left
//	R8       bytes from one row of w to the next
//	V16 to V19 a block of w as float32, V20 to V23 one of x

#define LOADF32(row) \
	VLD1.P 64(row), [V16.S4, V17.S4, V18.S4, V19.S4]

#define LOADF16(row) \
	VLD1.P 32(row), [V24.H8, V25.H8]; \
	VFCVTL_S4(v24, v16);              \
	VFCVTL2_S4(v24, v17);             \
	VFCVTL_S4(v25, v18);              \
	VFCVTL2_S4(v25, v19)

// V31 is zero.
#define LOADBF16(row) \
	VLD1.P 32(row), [V24.H8, V25.H8]; \
	VZIP1  V24.H8, V31.H8, V16.H8;    \
	VZIP2  V24.H8, V31.H8, V17.H8;    \
	VZIP1  V25.H8, V31.H8, V18.H8;    \
	VZIP2  V25.H8, V31.H8, V19.H8

// FUSED adds w times x to a row's sums.
#define FUSED(a, b, c, d) \
	VFMLA V20.S4, V16.S4, a.S4; \
	VFMLA V21.S4, V17.S4, b.S4; \
	VFMLA V22.S4, V18.S4, c.S4; \
	VFMLA V23.S4, V19.S4, d.S4

// ADDDOTS is the body of the kernels. An element of w has 1<<shift bytes.
#define ADDDOTS(LOAD, shift) \
	MOVD sums+0(FP), R0;       \
	MOVD w_base+8(FP), R2;     \
	MOVD stride+32(FP), R8;    \
	MOVD x_base+40(FP), R6;    \
	MOVD x_len+48(FP), R7;     \
	LSL  $shift, R8, R8;       \
	LSR  $4, R7, R7;           \
	CBZ  R7, done;             \
	ADD  R8, R2, R3;           \
	ADD  R8, R3, R4;           \
	ADD  R8, R4, R5;           \
	VEOR V31.B16, V31.B16, V31.B16; \
	VLD1.P 64(R0), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]; \
	VLD1.P 64(R0), [V8.S4, V9.S4, V10.S4, V11.S4]; \
	VLD1 (R0), [V12.S4, V13.S4, V14.S4, V15.S4]; \
	SUB  $192, R0, R0;         \
loop:                          \
	VLD1.P 64(R6), [V20.S4, V21.S4, V22.S4, V23.S4]; \
	LOAD(R2);                  \
	FUSED(V0, V1, V2, V3);     \
	LOAD(R3);                  \
	FUSED(V4, V5, V6, V7);     \
	LOAD(R4);                  \
	FUSED(V8, V9, V10, V11);   \
	LOAD(R5);                  \
	FUSED(V12, V13, V14, V15); \
	SUBS $1, R7, R7;           \
	BNE  loop;                 \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0); \
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0); \
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R0); \
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R0); \
done:                          \
	RET

// func addDotsF32Vec(sums *dotSums, w []float32, stride int, x []float32)
TEXT ·addDotsF32Vec(SB), NOSPLIT, $0-64
	ADDDOTS(LOADF32, 2)

// func addDotsF16Vec(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsF16Vec(SB), NOSPLIT, $0-64
	ADDDOTS(LOADF16, 1)

// func addDotsBF16Vec(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsBF16Vec(SB), NOSPLIT, $0-64
	ADDDOTS(LOADBF16, 1)

// LOADE4M3 makes binary16 numbers, of 1/256 of the values, of codes extended to 16 bits: a shift leaves bit 14 equal to
// the sign, and adding 1<<7 carries into the bit where all below are set, in NaN. V30 has 1<<7 in each word, V31 1<<14,
// and V29 the scales of the rows.
#define LOADE4M3(row, i) \
	VLD1.P 16(row), [V24.B16];       \
	VSSHLL_H8(7, v24, v25);          \
	VSSHLL2_H8(7, v24, v26);         \
	VADD   V30.H8, V25.H8, V27.H8;   \
	VADD   V30.H8, V26.H8, V28.H8;   \
	VAND   V31.B16, V27.B16, V27.B16; \
	VAND   V31.B16, V28.B16, V28.B16; \
	VEOR   V27.B16, V25.B16, V25.B16; \
	VEOR   V28.B16, V26.B16, V26.B16; \
	VFCVTL_S4(v25, v16);             \
	VFCVTL2_S4(v25, v17);            \
	VFCVTL_S4(v26, v18);             \
	VFCVTL2_S4(v26, v19);            \
	VFMUL_S4_LANE(i, v29, v16, v16); \
	VFMUL_S4_LANE(i, v29, v17, v17); \
	VFMUL_S4_LANE(i, v29, v18, v18); \
	VFMUL_S4_LANE(i, v29, v19, v19)

// func addDotsE4M3Vec(sums *dotSums, w []byte, stride int, x []float32, scales *[dotRows]*float32, per int)
TEXT ·addDotsE4M3Vec(SB), NOSPLIT, $0-80
	MOVD sums+0(FP), R0
	MOVD w_base+8(FP), R2
	MOVD stride+32(FP), R8
	MOVD x_base+40(FP), R6
	MOVD x_len+48(FP), R7
	MOVD scales+64(FP), R13
	MOVD per+72(FP), R9
	LSR  $4, R7, R7
	CBZ  R7, done
	ADD  R8, R2, R3
	ADD  R8, R3, R4
	ADD  R8, R4, R5
	LDP  (R13), (R10, R11)
	LDP  16(R13), (R12, R13)
	MOVD $0x80, R1
	VDUP R1, V30.H8
	MOVD $0x4000, R1
	VDUP R1, V31.H8
	VLD1.P 64(R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R0), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1 (R0), [V12.S4, V13.S4, V14.S4, V15.S4]
	SUB  $192, R0, R0

group:
	VLD1.P 4(R10), V29.S[0]
	VLD1.P 4(R11), V29.S[1]
	VLD1.P 4(R12), V29.S[2]
	VLD1.P 4(R13), V29.S[3]
	MOVD   R9, R1

loop:
	VLD1.P 64(R6), [V20.S4, V21.S4, V22.S4, V23.S4]
	LOADE4M3(R2, 0)
	FUSED(V0, V1, V2, V3)
	LOADE4M3(R3, 1)
	FUSED(V4, V5, V6, V7)
	LOADE4M3(R4, 2)
	FUSED(V8, V9, V10, V11)
	LOADE4M3(R5, 3)
	FUSED(V12, V13, V14, V15)
	SUBS   $1, R7, R7
	BEQ    store
	SUBS   $1, R1, R1
	BNE    loop
	B      group

store:
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R0)
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R0)

done:
	RET

// HALVES adds sums 8 to 15 to sums 0 to 7, and then 4 to 7 to 0 to 3, in a.
#define HALVES(a, b, c, d) \
	VFADD_S4(c, a, a); \
	VFADD_S4(d, b, b); \
	VFADD_S4(b, a, a)

// func sumDotsVec(dst *[dotRows]float32, sums *dotSums)
TEXT ·sumDotsVec(SB), NOSPLIT, $0-16
	MOVD   dst+0(FP), R0
	MOVD   sums+8(FP), R1
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R1), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1   (R1), [V12.S4, V13.S4, V14.S4, V15.S4]
	HALVES(v0, v1, v2, v3)
	HALVES(v4, v5, v6, v7)
	HALVES(v8, v9, v10, v11)
	HALVES(v12, v13, v14, v15)
	VZIP1  V4.D2, V0.D2, V1.D2
	VZIP2  V4.D2, V0.D2, V2.D2
	VZIP1  V12.D2, V8.D2, V5.D2
	VZIP2  V12.D2, V8.D2, V6.D2
	VFADD_S4(v2, v1, v1)
	VFADD_S4(v6, v5, v5)
	VFADDP_S4(v5, v1, v1)
	VST1   [V1.S4], (R0)
	RET
