#include "textflag.h"
#include "words_arm64.h"

// Kernels over a multiple of 16 elements, 16 at a time:
//
//	R0  dst
//	R1  the first input
//	R2  the second
//	R3  elements left

#define BINARY(OP) \
	MOVD dst_base+0(FP), R0; \
	MOVD a_base+24(FP), R1;  \
	MOVD a_len+32(FP), R3;   \
	MOVD b_base+48(FP), R2;  \
	CBZ  R3, done;           \
loop:                        \
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]; \
	OP(v4, v0, v0);          \
	OP(v5, v1, v1);          \
	OP(v6, v2, v2);          \
	OP(v7, v3, v3);          \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0); \
	SUBS $16, R3, R3;        \
	BNE  loop;               \
done:                        \
	RET

// WITH applies OP to x and the number s.
#define WITH(OP) \
	MOVD  dst_base+0(FP), R0; \
	MOVD  x_base+24(FP), R1;  \
	MOVD  x_len+32(FP), R3;   \
	FMOVS s+48(FP), F4;       \
	VDUP  V4.S[0], V4.S4;     \
	CBZ   R3, done;           \
loop:                         \
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	OP(v4, v0, v0);           \
	OP(v4, v1, v1);           \
	OP(v4, v2, v2);           \
	OP(v4, v3, v3);           \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0); \
	SUBS $16, R3, R3;         \
	BNE  loop;                \
done:                         \
	RET

// CONVERT has WIDEN make V0 to V3 of 16 elements of two bytes in V4 and V5.
#define CONVERT(WIDEN) \
	MOVD dst_base+0(FP), R0;  \
	MOVD src_base+24(FP), R1; \
	MOVD src_len+32(FP), R3;  \
	VEOR V6.B16, V6.B16, V6.B16; \
	CBZ  R3, done;            \
loop:                         \
	VLD1.P 32(R1), [V4.H8, V5.H8]; \
	WIDEN;                    \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0); \
	SUBS $16, R3, R3;         \
	BNE  loop;                \
done:                         \
	RET

#define WIDENF16 \
	VFCVTL_S4(v4, v0);  \
	VFCVTL2_S4(v4, v1); \
	VFCVTL_S4(v5, v2);  \
	VFCVTL2_S4(v5, v3)

// Zeros go below each element.
#define WIDENBF16 \
	VZIP1 V4.H8, V6.H8, V0.H8; \
	VZIP2 V4.H8, V6.H8, V1.H8; \
	VZIP1 V5.H8, V6.H8, V2.H8; \
	VZIP2 V5.H8, V6.H8, V3.H8

// func addVec(dst, a, b []float32)
TEXT ·addVec(SB), NOSPLIT, $0-72
	BINARY(VFADD_S4)

// func mulVec(dst, a, b []float32)
TEXT ·mulVec(SB), NOSPLIT, $0-72
	BINARY(VFMUL_S4)

// func scaleVec(dst, x []float32, s float32)
TEXT ·scaleVec(SB), NOSPLIT, $0-52
	WITH(VFMUL_S4)

// func divideVec(dst, x []float32, s float32)
TEXT ·divideVec(SB), NOSPLIT, $0-52
	WITH(VFDIV_S4)

// func addScaledVec(dst, x []float32, s float32)
TEXT ·addScaledVec(SB), NOSPLIT, $0-52
	MOVD  dst_base+0(FP), R0
	MOVD  x_base+24(FP), R1
	MOVD  x_len+32(FP), R3
	FMOVS s+48(FP), F8
	VDUP  V8.S[0], V8.S4
	CBZ   R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1   (R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	VFMLA  V0.S4, V8.S4, V4.S4
	VFMLA  V1.S4, V8.S4, V5.S4
	VFMLA  V2.S4, V8.S4, V6.S4
	VFMLA  V3.S4, V8.S4, V7.S4
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET

// func normVec(dst, x, w []float32, r, offset float32)
TEXT ·normVec(SB), NOSPLIT, $0-80
	MOVD  dst_base+0(FP), R0
	MOVD  x_base+24(FP), R1
	MOVD  x_len+32(FP), R3
	MOVD  w_base+48(FP), R2
	FMOVS r+72(FP), F8
	FMOVS offset+76(FP), F9
	VDUP  V8.S[0], V8.S4
	VDUP  V9.S[0], V9.S4
	CBZ   R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	VFMUL_S4(v8, v0, v0)
	VFMUL_S4(v8, v1, v1)
	VFMUL_S4(v8, v2, v2)
	VFMUL_S4(v8, v3, v3)
	VFADD_S4(v9, v4, v4)
	VFADD_S4(v9, v5, v5)
	VFADD_S4(v9, v6, v6)
	VFADD_S4(v9, v7, v7)
	VFMUL_S4(v4, v0, v0)
	VFMUL_S4(v5, v1, v1)
	VFMUL_S4(v6, v2, v2)
	VFMUL_S4(v7, v3, v3)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET

// func turnVec(lo, hi, cos, sin []float32)
TEXT ·turnVec(SB), NOSPLIT, $0-96
	MOVD lo_base+0(FP), R0
	MOVD hi_base+24(FP), R1
	MOVD cos_base+48(FP), R4
	MOVD cos_len+56(FP), R3
	MOVD sin_base+72(FP), R5
	CBZ  R3, done

loop:
	VLD1   (R0), [V0.S4]   // a
	VLD1   (R1), [V1.S4]   // b
	VLD1.P 16(R4), [V2.S4] // cos
	VLD1.P 16(R5), [V3.S4] // sin
	VFMUL_S4(v3, v1, v4)
	VFMUL_S4(v3, v0, v5)
	VFNEG_S4(v4, v4)
	VFMLA  V2.S4, V0.S4, V4.S4 // a*cos - b*sin
	VFMLA  V2.S4, V1.S4, V5.S4 // b*cos + a*sin
	VST1.P [V4.S4], 16(R0)
	VST1.P [V5.S4], 16(R1)
	SUBS   $4, R3, R3
	BNE    loop

done:
	RET

// func maxVec(x []float32) float32
// The largest of 16 numbers or more, or a NaN if there is one.
TEXT ·maxVec(SB), NOSPLIT, $0-28
	MOVD x_base+0(FP), R1
	MOVD x_len+8(FP), R3
	VLD1 (R1), [V0.S4, V1.S4, V2.S4, V3.S4]

loop:
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4]
	VFMAX_S4(v4, v0, v0)
	VFMAX_S4(v5, v1, v1)
	VFMAX_S4(v6, v2, v2)
	VFMAX_S4(v7, v3, v3)
	SUBS   $16, R3, R3
	BNE    loop

	VFMAX_S4(v1, v0, v0)
	VFMAX_S4(v3, v2, v2)
	VFMAX_S4(v2, v0, v0)
	VFMAXV_S4(v0, v0)
	FMOVS F0, ret+24(FP)
	RET

// func loadF16Vec(dst []float32, src []uint16)
TEXT ·loadF16Vec(SB), NOSPLIT, $0-48
	CONVERT(WIDENF16)

// func loadBF16Vec(dst []float32, src []uint16)
TEXT ·loadBF16Vec(SB), NOSPLIT, $0-48
	CONVERT(WIDENBF16)

// func storeF16Vec(dst []uint16, src []float32)
TEXT ·storeF16Vec(SB), NOSPLIT, $0-48
	MOVD dst_base+0(FP), R0
	MOVD src_base+24(FP), R1
	MOVD src_len+32(FP), R3
	CBZ  R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VFCVTN_H4(v0, v4)
	VFCVTN2_H8(v1, v4)
	VFCVTN_H4(v2, v5)
	VFCVTN2_H8(v3, v5)
	VST1.P [V4.H8, V5.H8], 32(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET
