#include "textflag.h"
#include "words_arm64.h"

// Kernels that add rows of values times weights to acc, whose length is a
// multiple of 16: 64 columns at a time and then 16, each over all rows in order.
//
//	R0  acc
//	R1  columns left
//	R2  first row's values from the current column on
//	R3  weights, R4 how many
//	R5  bytes in a row
//	R6  the current row's values, R7 its weight, R8 rows left
//	R9  from a row's last 16 of 64 columns to the next row
//	V24 the weight, in all lanes

#define FUSED(a, b, c, d) \
	VFMLA V16.S4, V24.S4, a.S4; \
	VFMLA V17.S4, V24.S4, b.S4; \
	VFMLA V18.S4, V24.S4, c.S4; \
	VFMLA V19.S4, V24.S4, d.S4

#define LOADF32(next) \
	VLD1.P next, [V16.S4, V17.S4, V18.S4, V19.S4]

#define LOADF16(next) \
	VLD1.P next, [V20.H8, V21.H8]; \
	VFCVTL_S4(v20, v16);           \
	VFCVTL2_S4(v20, v17);          \
	VFCVTL_S4(v21, v18);           \
	VFCVTL2_S4(v21, v19)

// WEIGH is the body of func(acc, v, p []float32, stride int), or of one whose v
// are binary16. 16 of them have bytes.
#define WEIGH(LOAD, bytes) \
	MOVD acc_base+0(FP), R0;       \
	MOVD acc_len+8(FP), R1;        \
	MOVD v_base+24(FP), R2;        \
	MOVD p_base+48(FP), R3;        \
	MOVD p_len+56(FP), R4;         \
	MOVD stride+72(FP), R5;        \
	CBZ  R4, done;                 \
	MOVD $(bytes/16), R9;          \
	MUL  R9, R5, R5;               \
	SUB  $(3*bytes), R5, R9;       \
wide:                              \
	CMP  $64, R1;                  \
	BLT  narrow;                   \
	MOVD R0, R6;                   \
	VLD1.P 64(R6), [V0.S4, V1.S4, V2.S4, V3.S4];     \
	VLD1.P 64(R6), [V4.S4, V5.S4, V6.S4, V7.S4];     \
	VLD1.P 64(R6), [V8.S4, V9.S4, V10.S4, V11.S4];   \
	VLD1   (R6), [V12.S4, V13.S4, V14.S4, V15.S4];   \
	MOVD R2, R6;                   \
	MOVD R3, R7;                   \
	MOVD R4, R8;                   \
widerow:                           \
	VLD1R.P 4(R7), [V24.S4];       \
	LOAD(bytes(R6));               \
	FUSED(V0, V1, V2, V3);         \
	LOAD(bytes(R6));               \
	FUSED(V4, V5, V6, V7);         \
	LOAD(bytes(R6));               \
	FUSED(V8, V9, V10, V11);       \
	LOAD((R6)(R9));                \
	FUSED(V12, V13, V14, V15);     \
	SUBS $1, R8, R8;               \
	BNE  widerow;                  \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0);     \
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0);     \
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R0);   \
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R0); \
	ADD  $(4*bytes), R2, R2;       \
	SUB  $64, R1, R1;              \
	JMP  wide;                     \
narrow:                            \
	CBZ  R1, done;                 \
	VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4];         \
	MOVD R2, R6;                   \
	MOVD R3, R7;                   \
	MOVD R4, R8;                   \
narrowrow:                         \
	VLD1R.P 4(R7), [V24.S4];       \
	LOAD((R6)(R5));                \
	FUSED(V0, V1, V2, V3);         \
	SUBS $1, R8, R8;               \
	BNE  narrowrow;                \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0);     \
	ADD  $bytes, R2, R2;           \
	SUB  $16, R1, R1;              \
	JMP  narrow;                   \
done:                              \
	RET

// func weighF32NEON(acc, v, p []float32, stride int)
TEXT ·weighF32NEON(SB), NOSPLIT, $0-80
	WEIGH(LOADF32, 64)

// func weighF16NEON(acc []float32, v []uint16, p []float32, stride int)
TEXT ·weighF16NEON(SB), NOSPLIT, $0-80
	WEIGH(LOADF16, 32)
