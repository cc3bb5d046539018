#include "textflag.h"
#include "words_arm64.h"

// Activations with NEON.

// ROUND sets a to the integers of 8 numbers, a and b, in the order of pairs.
#define ROUND(a, b, A) \
	VFMUL_S4(v17, a, a); \
	VFMUL_S4(v17, b, b); \
	VFCVTNS_S4(a, a);    \
	VFCVTNS_S4(b, b);    \
	VXTN_H4(a, a);       \
	VXTN2_H8(b, a);      \
	VTBL V18.B16, [A.B16], A.B16

// func quantizeVec(q []int16, dx, x []float32)
//
//	R0       q
//	R1       x
//	R2       dx, R3 left
//	V0 to V7 a group
//	V16      bits of its largest magnitude
//	V18      the order of pairs, in bytes
//	F19      32767
TEXT ·quantizeVec(SB), NOSPLIT, $0-72
	MOVD  q_base+0(FP), R0
	MOVD  dx_base+24(FP), R2
	MOVD  dx_len+32(FP), R3
	MOVD  x_base+48(FP), R1
	MOVD  $0x0706030205040100, R4
	VMOV  R4, V18.D[0]
	MOVD  $0x0f0e0b0a0d0c0908, R4
	VMOV  R4, V18.D[1]
	MOVD  $0x46fffe00, R4
	FMOVS R4, F19
	MOVD  $0x0da24260, R5 // 1e-30
	MOVD  $0x7f800000, R6
	CBZ   R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4]
	VFABS_S4(v0, v16)
	VFABS_S4(v1, v17)
	VFABS_S4(v2, v20)
	VFABS_S4(v3, v21)
	VFABS_S4(v4, v22)
	VFABS_S4(v5, v23)
	VFABS_S4(v6, v24)
	VFABS_S4(v7, v25)
	VUMAX  V17.S4, V16.S4, V16.S4
	VUMAX  V21.S4, V20.S4, V20.S4
	VUMAX  V23.S4, V22.S4, V22.S4
	VUMAX  V25.S4, V24.S4, V24.S4
	VUMAX  V20.S4, V16.S4, V16.S4
	VUMAX  V24.S4, V22.S4, V22.S4
	VUMAX  V22.S4, V16.S4, V16.S4
	VEXT   $8, V16.B16, V16.B16, V17.B16
	VUMAX  V17.S4, V16.S4, V16.S4
	VEXT   $4, V16.B16, V16.B16, V17.B16
	VUMAX  V17.S4, V16.S4, V16.S4
	FMOVS  F16, R4
	CMPW   R5, R4
	BLO    none
	CMPW   R6, R4
	BHS    nan
	FDIVS  F16, F19, F17
	FDIVS  F19, F16, F16
	VDUP   V17.S[0], V17.S4
	ROUND(v0, v1, V0)
	ROUND(v2, v3, V2)
	ROUND(v4, v5, V4)
	ROUND(v6, v7, V6)
	FMOVS.P F16, 4(R2)

store:
	VST1.P [V0.H8], 16(R0)
	VST1.P [V2.H8], 16(R0)
	VST1.P [V4.H8], 16(R0)
	VST1.P [V6.H8], 16(R0)
	SUBS   $1, R3, R3
	BNE    loop

done:
	RET

none:
	MOVD ZR, R4
	JMP  special

nan:
	MOVD $0x7fc00000, R4

special:
	MOVW.P R4, 4(R2)
	VEOR   V0.B16, V0.B16, V0.B16
	VEOR   V2.B16, V2.B16, V2.B16
	VEOR   V4.B16, V4.B16, V4.B16
	VEOR   V6.B16, V6.B16, V6.B16
	JMP    store

// SUM16 and SUM32 set y to partial sums of a group.
#define SUM16(y) \
	VLD1.P 32(R1), [V4.H8, V5.H8]; \
	VSADDLP_S4(v4, y); \
	VSADALP_S4(v5, y)

#define SUM32(y) \
	VLD1.P 64(R1), [V4.H8, V5.H8, V6.H8, V7.H8]; \
	VSADDLP_S4(v4, y); \
	VSADALP_S4(v5, y); \
	VSADALP_S4(v6, y); \
	VSADALP_S4(v7, y)

// SUMS leaves the sums of four groups in V0.
#define SUMS(SUM) \
	SUM(v0); \
	SUM(v1); \
	SUM(v2); \
	SUM(v3); \
	VADDP V1.S4, V0.S4, V0.S4; \
	VADDP V3.S4, V2.S4, V2.S4; \
	VADDP V2.S4, V0.S4, V0.S4

// func groupSumsVec(sums []float32, q *int16, dx *float32, group int)
// Of a multiple of four groups.
TEXT ·groupSumsVec(SB), NOSPLIT, $0-48
	MOVD sums_base+0(FP), R0
	MOVD sums_len+8(FP), R3
	MOVD q+24(FP), R1
	MOVD dx+32(FP), R2
	MOVD group+40(FP), R4
	CBZ  R3, done
	CMP  $16, R4
	BEQ  sixteen

loop:
	SUMS(SUM32)
	VLD1.P 16(R2), [V16.S4]
	VSCVTF_S4(v0, v0)
	VFMUL_S4(v16, v0, v0)
	VST1.P [V0.S4], 16(R0)
	SUBS   $4, R3, R3
	BNE    loop

done:
	RET

sixteen:
	SUMS(SUM16)
	VLD1.P 8(R2), [V16.S2] // a scale for two groups
	VZIP1  V16.S4, V16.S4, V16.S4
	VSCVTF_S4(v0, v0)
	VFMUL_S4(v16, v0, v0)
	VST1.P [V0.S4], 16(R0)
	SUBS   $4, R3, R3
	BNE    sixteen
	RET

// func groupInitVec(init []int32, q *int16, group int, factor int32)
// Of a multiple of four groups.
TEXT ·groupInitVec(SB), NOSPLIT, $0-44
	MOVD init_base+0(FP), R0
	MOVD init_len+8(FP), R3
	MOVD q+24(FP), R1
	MOVD group+32(FP), R4
	MOVW factor+40(FP), R5
	VDUP R5, V16.S4
	CBZ  R3, done
	CMP  $16, R4
	BEQ  sixteen

loop:
	SUMS(SUM32)
	VMUL_S4(v16, v0, v0)
	VST1.P [V0.S4], 16(R0)
	SUBS   $4, R3, R3
	BNE    loop

done:
	RET

sixteen:
	SUMS(SUM16)
	VMUL_S4(v16, v0, v0)
	VST1.P [V0.S4], 16(R0)
	SUBS   $4, R3, R3
	BNE    sixteen
	RET
