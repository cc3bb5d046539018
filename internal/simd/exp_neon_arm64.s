#include "textflag.h"
#include "words_arm64.h"

// Kernels around Exp, over a multiple of 16 elements, 4 at a time:
//
//	R0         dst
//	R1         x, or the gates
//	R2         the gated values
//	R3         elements left
//	V4         x
//	V16        log2e, -ln2hi, -ln2lo and gelu's g3
//	V17, V18   the bounds of Exp's argument
//	V19        magic
//	V20 to V25 c6 to c2, and 1
//	V26        gelu's g1

#define CONSTANTS \
	MOVD    $·expConst(SB), R4; \
	VLD1.P  16(R4), [V16.S4]; \
	VLD1R.P 4(R4), [V17.S4]; \
	VLD1R.P 4(R4), [V18.S4]; \
	VLD1R.P 4(R4), [V19.S4]; \
	VLD1R.P 4(R4), [V20.S4]; \
	VLD1R.P 4(R4), [V21.S4];    \
	VLD1R.P 4(R4), [V22.S4];    \
	VLD1R.P 4(R4), [V23.S4];    \
	VLD1R.P 4(R4), [V24.S4]; \
	VLD1R.P 4(R4), [V25.S4]; \
	VLD1R.P 4(R4), [V26.S4]

// EXP sets V0 to Exp(V0). A NaN stays. It overwrites V1, V2 and V3.
#define EXP \
	VFMAX_S4(v17, v0, v0);         \
	VFMIN_S4(v18, v0, v0);         \
	VFMUL_S4_LANE(0, v16, v0, v1); \
	VFADD_S4(v19, v1, v1);         \
	VFSUB_S4(v19, v1, v1);         \
	VFMLA_S4_LANE(1, v16, v1, v0); \
	VFMLA_S4_LANE(2, v16, v1, v0); \
	VMOV  V21.B16, V2.B16;         \
	VFMLA V0.S4, V20.S4, V2.S4;    \
	VMOV  V22.B16, V3.B16;         \
	VFMLA V0.S4, V2.S4, V3.S4;     \
	VMOV  V23.B16, V2.B16;         \
	VFMLA V0.S4, V3.S4, V2.S4;     \
	VMOV  V24.B16, V3.B16;         \
	VFMLA V0.S4, V2.S4, V3.S4;     \
	VMOV  V25.B16, V2.B16;         \
	VFMLA V0.S4, V3.S4, V2.S4;     \
	VMOV  V25.B16, V3.B16;         \
	VFMLA V0.S4, V2.S4, V3.S4;     \
	VFCVTZS_S4(v1, v1);            \
	VSSHR_S4(1, v1, v2);           \
	VSUB  V2.S4, V1.S4, V1.S4;     \
	VSHL  $23, V2.S4, V2.S4;       \
	VSHL  $23, V1.S4, V1.S4;       \
	VADD  V25.S4, V2.S4, V2.S4;    \
	VADD  V25.S4, V1.S4, V1.S4;    \
	VFMUL_S4(v2, v3, v3);          \
	VFMUL_S4(v1, v3, v0)

// SILU sets V0 to the argument of Exp, and GELU likewise.
#define SILU \
	VFNEG_S4(v4, v0)

#define GELU \
	VFMUL_S4(v4, v4, v0);          \
	VMOV V26.B16, V1.B16;          \
	VFMLA_S4_LANE(3, v16, v0, v1); \
	VFMUL_S4(v4, v1, v0)

#define ACTIVATE(ARGUMENT) \
	ARGUMENT;              \
	EXP;                   \
	VFADD_S4(v25, v0, v0); \
	VFDIV_S4(v0, v4, v0)

// ACT is the body of func(dst, x []float32).
#define ACT(ARGUMENT) \
	MOVD dst_base+0(FP), R0; \
	MOVD x_base+24(FP), R1;  \
	MOVD x_len+32(FP), R3;   \
	CONSTANTS;               \
	CBZ  R3, done;           \
loop:                        \
	VLD1.P 16(R1), [V4.S4];  \
	ACTIVATE(ARGUMENT);      \
	VST1.P [V0.S4], 16(R0);  \
	SUBS $4, R3, R3;         \
	BNE  loop;               \
done:                        \
	RET

// GLU is the body of func(dst, gate, up []float32).
#define GLU(ARGUMENT) \
	MOVD dst_base+0(FP), R0;   \
	MOVD gate_base+24(FP), R1; \
	MOVD gate_len+32(FP), R3;  \
	MOVD up_base+48(FP), R2;   \
	CONSTANTS;                 \
	CBZ  R3, done;             \
loop:                          \
	VLD1.P 16(R1), [V4.S4];    \
	VLD1.P 16(R2), [V5.S4];    \
	ACTIVATE(ARGUMENT);        \
	VFMUL_S4(v5, v0, v0);      \
	VST1.P [V0.S4], 16(R0);    \
	SUBS $4, R3, R3;           \
	BNE  loop;                 \
done:                          \
	RET

// func siluVec(dst, x []float32)
TEXT ·siluVec(SB), NOSPLIT, $0-48
	ACT(SILU)

// func geluVec(dst, x []float32)
TEXT ·geluVec(SB), NOSPLIT, $0-48
	ACT(GELU)

// func swigluVec(dst, gate, up []float32)
TEXT ·swigluVec(SB), NOSPLIT, $0-72
	GLU(SILU)

// func gegluVec(dst, gate, up []float32)
TEXT ·gegluVec(SB), NOSPLIT, $0-72
	GLU(GELU)

// func softcapVec(dst, x []float32, by float32)
TEXT ·softcapVec(SB), NOSPLIT, $0-52
	MOVD    dst_base+0(FP), R0
	MOVD    x_base+24(FP), R1
	MOVD    x_len+32(FP), R3
	FMOVS   by+48(FP), F8
	VDUP    V8.S[0], V8.S4
	CONSTANTS
	VLD1R.P 4(R4), [V27.S4] // t4
	VLD1R.P 4(R4), [V28.S4]
	VLD1R.P 4(R4), [V29.S4]
	VLD1R.P 4(R4), [V30.S4]
	VLD1R.P 4(R4), [V31.S4] // t0
	VLD1R.P 4(R4), [V9.S4]  // 0.625
	VLD1R.P 4(R4), [V10.S4] // 2
	VLD1R.P 4(R4), [V11.S4] // -0
	CBZ     R3, done

loop:
	VLD1.P 16(R1), [V4.S4]
	VFDIV_S4(v8, v4, v4)
	VFABS_S4(v4, v5) // a

	// V0 = 1 - 2/(Exp(2a) + 1)
	VFADD_S4(v5, v5, v0)
	EXP
	VFADD_S4(v25, v0, v0)
	VFDIV_S4(v0, v10, v0)
	VFSUB_S4(v0, v25, v0)

	// V3 = a + a*y*p, y being a*a in V1
	VFMUL_S4(v5, v5, v1)
	VMOV  V28.B16, V2.B16
	VFMLA V1.S4, V27.S4, V2.S4
	VMOV  V29.B16, V3.B16
	VFMLA V1.S4, V2.S4, V3.S4
	VMOV  V30.B16, V2.B16
	VFMLA V1.S4, V3.S4, V2.S4
	VMOV  V31.B16, V3.B16
	VFMLA V1.S4, V2.S4, V3.S4
	VFMUL_S4(v3, v1, v2)
	VMOV  V5.B16, V3.B16
	VFMLA V5.S4, V2.S4, V3.S4

	// V3 where a < 0.625, with the sign of x
	VFCMGT_S4(v5, v9, v1)
	VBIT   V1.B16, V3.B16, V0.B16
	VAND   V11.B16, V4.B16, V4.B16
	VORR   V4.B16, V0.B16, V0.B16
	VFMUL_S4(v8, v0, v0)
	VST1.P [V0.S4], 16(R0)
	SUBS   $4, R3, R3
	BNE    loop

done:
	RET

// EXPSUM goes on with 4 elements and adds them to sums.
#define EXPSUM(sums) \
	VLD1.P 16(R1), [V0.S4];        \
	VFSUB_S4(v8, v0, v0);          \
	VFCMGT_S4(v0, v17, v9);        \
	EXP;                           \
	VBIT   V9.B16, V10.B16, V0.B16; \
	VST1.P [V0.S4], 16(R0);        \
	VFADD_S4(v0, sums, sums)

// func expSumVec(sums *[16]float32, dst, x []float32, top float32)
TEXT ·expSumVec(SB), NOSPLIT, $0-60
	MOVD  dst_base+8(FP), R0
	MOVD  x_base+32(FP), R1
	MOVD  x_len+40(FP), R3
	FMOVS top+56(FP), F8
	VDUP  V8.S[0], V8.S4
	CONSTANTS
	MOVW  $0xc2800000, R4 // the least exponent
	VDUP  R4, V17.S4
	VEOR  V10.B16, V10.B16, V10.B16
	VEOR  V4.B16, V4.B16, V4.B16
	VEOR  V5.B16, V5.B16, V5.B16
	VEOR  V6.B16, V6.B16, V6.B16
	VEOR  V7.B16, V7.B16, V7.B16
	CBZ   R3, done

loop:
	EXPSUM(v4)
	EXPSUM(v5)
	EXPSUM(v6)
	EXPSUM(v7)
	SUBS $16, R3, R3
	BNE  loop

done:
	MOVD sums+0(FP), R0
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R0)
	RET
