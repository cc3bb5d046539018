#include "textflag.h"
#include "words_arm64.h"

// Kernels of one vector w of k elements, a multiple of 16, and the rows of x,
// all in 16 partial sums: four registers of sums for each row.
//
//	R0        dst
//	R1        rows left
//	R2        w
//	R3        blocks of 16 in w
//	R4        first of the rows left
//	R5        bytes in a row
//	R6        w from the current block on
//	R7 to R10 rows from the current block on
//	R11       blocks left
//	V16 to V19 a block of w as float32, V20 to V23 one of x

#define LOADF32 \
	VLD1.P 64(R6), [V16.S4, V17.S4, V18.S4, V19.S4]

#define LOADF16 \
	VLD1.P 32(R6), [V24.H8, V25.H8]; \
	VFCVTL_S4(v24, v16);             \
	VFCVTL2_S4(v24, v17);            \
	VFCVTL_S4(v25, v18);             \
	VFCVTL2_S4(v25, v19)

// V31 is zero.
#define LOADBF16 \
	VLD1.P 32(R6), [V24.H8, V25.H8]; \
	VZIP1  V24.H8, V31.H8, V16.H8;   \
	VZIP2  V24.H8, V31.H8, V17.H8;   \
	VZIP1  V25.H8, V31.H8, V18.H8;   \
	VZIP2  V25.H8, V31.H8, V19.H8

// A step adds w times a block of one row to the row's sums, fused.
#define STEPF32(row, a, b, c, d) \
	VLD1.P 64(row), [V20.S4, V21.S4, V22.S4, V23.S4]; \
	FUSED(a, b, c, d)

#define FUSED(a, b, c, d) \
	VFMLA V20.S4, V16.S4, a.S4; \
	VFMLA V21.S4, V17.S4, b.S4; \
	VFMLA V22.S4, V18.S4, c.S4; \
	VFMLA V23.S4, V19.S4, d.S4

#define ZERO(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16; \
	VEOR b.B16, b.B16, b.B16; \
	VEOR c.B16, c.B16, c.B16; \
	VEOR d.B16, d.B16, d.B16

// HALVES adds sums 8 to 15 to sums 0 to 7, and then 4 to 7 to 0 to 3, in a.
#define HALVES(a, b, c, d) \
	VFADD_S4(c, a, a); \
	VFADD_S4(d, b, b); \
	VFADD_S4(b, a, a)

// DOTROWS is the body of the kernels. A block of x has xbytes.
#define DOTROWS(LOAD, STEP, xbytes) \
	MOVD dst_base+0(FP), R0;   \
	MOVD dst_len+8(FP), R1;    \
	MOVD w_base+24(FP), R2;    \
	MOVD w_len+32(FP), R3;     \
	MOVD x_base+48(FP), R4;    \
	LSR  $4, R3, R3;           \
	MOVD $xbytes, R5;          \
	MUL  R3, R5, R5;           \
	VEOR V31.B16, V31.B16, V31.B16; \
four:                          \
	CMP  $4, R1;               \
	BLT  one;                  \
	MOVD R2, R6;               \
	MOVD R4, R7;               \
	ADD  R5, R7, R8;           \
	ADD  R5, R8, R9;           \
	ADD  R5, R9, R10;          \
	ADD  R5, R10, R4;          \
	ZERO(V0, V1, V2, V3);      \
	ZERO(V4, V5, V6, V7);      \
	ZERO(V8, V9, V10, V11);    \
	ZERO(V12, V13, V14, V15);  \
	MOVD R3, R11;              \
	CBZ  R11, foursum;         \
fourloop:                      \
	LOAD;                      \
	STEP(R7, V0, V1, V2, V3);  \
	STEP(R8, V4, V5, V6, V7);  \
	STEP(R9, V8, V9, V10, V11); \
	STEP(R10, V12, V13, V14, V15); \
	SUBS $1, R11, R11;         \
	BNE  fourloop;             \
foursum:                       \
	HALVES(v0, v1, v2, v3);    \
	HALVES(v4, v5, v6, v7);    \
	HALVES(v8, v9, v10, v11);  \
	HALVES(v12, v13, v14, v15); \
	VZIP1 V4.D2, V0.D2, V1.D2; \
	VZIP2 V4.D2, V0.D2, V2.D2; \
	VZIP1 V12.D2, V8.D2, V5.D2; \
	VZIP2 V12.D2, V8.D2, V6.D2; \
	VFADD_S4(v2, v1, v1);      \
	VFADD_S4(v6, v5, v5);      \
	VFADDP_S4(v5, v1, v1);     \
	VST1.P [V1.S4], 16(R0);    \
	SUB  $4, R1, R1;           \
	JMP  four;                 \
one:                           \
	CBZ  R1, done;             \
	MOVD R2, R6;               \
	MOVD R4, R7;               \
	ADD  R5, R4, R4;           \
	ZERO(V0, V1, V2, V3);      \
	MOVD R3, R11;              \
	CBZ  R11, onesum;          \
oneloop:                       \
	LOAD;                      \
	STEP(R7, V0, V1, V2, V3);  \
	SUBS $1, R11, R11;         \
	BNE  oneloop;              \
onesum:                        \
	HALVES(v0, v1, v2, v3);    \
	VEXT $8, V0.B16, V0.B16, V1.B16; \
	VFADD_S4(v1, v0, v0);      \
	VFADDP_S4(v0, v0, v0);     \
	FMOVS F0, (R0);            \
	ADD  $4, R0, R0;           \
	SUB  $1, R1, R1;           \
	JMP  one;                  \
done:                          \
	RET

// func dotRowsF32NEON(dst, w, x []float32)
TEXT ·dotRowsF32NEON(SB), NOSPLIT, $0-72
	DOTROWS(LOADF32, STEPF32, 64)

// func dotRowsF16NEON(dst []float32, w []uint16, x []float32)
TEXT ·dotRowsF16NEON(SB), NOSPLIT, $0-72
	DOTROWS(LOADF16, STEPF32, 64)

// func dotRowsBF16NEON(dst []float32, w []uint16, x []float32)
TEXT ·dotRowsBF16NEON(SB), NOSPLIT, $0-72
	DOTROWS(LOADBF16, STEPF32, 64)
