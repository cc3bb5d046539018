#include "textflag.h"
#include "tier_amd64.h"
#include "exp_amd64.h"

// Kernels around Exp, over a multiple of 16 elements, 8 at a time:
//
//	DI        dst
//	SI        x, or the gates
//	DX        the gated values
//	CX        elements left
//	R8        expConst
//	Y4        x
//	Y12       1
//	Y13, Y14  the bounds of Exp's argument

#define CONSTANTS \
	VMOVUPS ONE(R8), Y12;  \
	VMOVUPS HIGH(R8), Y13; \
	VMOVUPS LOW(R8), Y14

// EXP sets Y0 to Exp(Y0). VMAXPS and VMINPS return their first operand, as
// written here, if there is a NaN. It overwrites Y1, Y2 and Y3.
#define EXP \
	VMAXPS      Y0, Y14, Y0;       \
	VMINPS      Y0, Y13, Y0;       \
	VMULPS      LOG2E(R8), Y0, Y1; \
	VADDPS      MAGIC(R8), Y1, Y1; \
	VSUBPS      MAGIC(R8), Y1, Y1; \
	VFMADD231PS LN2HI(R8), Y1, Y0; \
	VFMADD231PS LN2LO(R8), Y1, Y0; \
	VMOVUPS     C6(R8), Y2;        \
	VFMADD213PS C5(R8), Y0, Y2;    \
	VFMADD213PS C4(R8), Y0, Y2;    \
	VFMADD213PS C3(R8), Y0, Y2;    \
	VFMADD213PS C2(R8), Y0, Y2;    \
	VFMADD213PS Y12, Y0, Y2;       \
	VFMADD213PS Y12, Y0, Y2;       \
	VCVTTPS2DQ  Y1, Y1;            \
	VPSRAD      $1, Y1, Y3;        \
	VPSUBD      Y3, Y1, Y1;        \
	VPSLLD      $23, Y3, Y3;       \
	VPSLLD      $23, Y1, Y1;       \
	VPADDD      Y12, Y3, Y3;       \
	VPADDD      Y12, Y1, Y1;       \
	VMULPS      Y3, Y2, Y2;        \
	VMULPS      Y1, Y2, Y0

// SILU sets Y0 to the argument of Exp, and GELU likewise.
#define SILU \
	VXORPS SIGN(R8), Y4, Y0

#define GELU \
	VMULPS      Y4, Y4, Y0;     \
	VMOVUPS     G1(R8), Y1;     \
	VFMADD231PS G3(R8), Y0, Y1; \
	VMULPS      Y4, Y1, Y0

#define ACTIVATE(ARGUMENT) \
	ARGUMENT;            \
	EXP;                 \
	VADDPS Y12, Y0, Y0;  \
	VDIVPS Y0, Y4, Y0

// ACT is the body of func(dst, x []float32).
#define ACT(ARGUMENT) \
	MOVQ dst_base+0(FP), DI; \
	MOVQ x_base+24(FP), SI;  \
	MOVQ x_len+32(FP), CX;   \
	MOVQ ·expConst(SB), R8;  \
	CONSTANTS;               \
	TESTQ CX, CX;            \
	JZ   done;               \
loop:                        \
	VMOVUPS (SI), Y4;        \
	ACTIVATE(ARGUMENT);      \
	VMOVUPS Y0, (DI);        \
	ADDQ $32, SI;            \
	ADDQ $32, DI;            \
	SUBQ $8, CX;             \
	JNZ  loop;               \
done:                        \
	VZEROUPPER;              \
	RET

// GLU is the body of func(dst, gate, up []float32).
#define GLU(ARGUMENT) \
	MOVQ dst_base+0(FP), DI;   \
	MOVQ gate_base+24(FP), SI; \
	MOVQ gate_len+32(FP), CX;  \
	MOVQ up_base+48(FP), DX;   \
	MOVQ ·expConst(SB), R8;    \
	CONSTANTS;                 \
	TESTQ CX, CX;              \
	JZ   done;                 \
loop:                          \
	VMOVUPS (SI), Y4;          \
	ACTIVATE(ARGUMENT);        \
	VMULPS (DX), Y0, Y0;       \
	VMOVUPS Y0, (DI);          \
	ADDQ $32, SI;              \
	ADDQ $32, DX;              \
	ADDQ $32, DI;              \
	SUBQ $8, CX;               \
	JNZ  loop;                 \
done:                          \
	VZEROUPPER;                \
	RET

// func siluVec(dst, x []float32)
TEXT ·siluVec(SB), NOSPLIT, $0-48
	UPGRADE(·siluAVX512)
	ACT(SILU)

// func geluVec(dst, x []float32)
TEXT ·geluVec(SB), NOSPLIT, $0-48
	UPGRADE(·geluAVX512)
	ACT(GELU)

// func swigluVec(dst, gate, up []float32)
TEXT ·swigluVec(SB), NOSPLIT, $0-72
	UPGRADE(·swigluAVX512)
	GLU(SILU)

// func gegluVec(dst, gate, up []float32)
TEXT ·gegluVec(SB), NOSPLIT, $0-72
	UPGRADE(·gegluAVX512)
	GLU(GELU)

// func softcapVec(dst, x []float32, by float32)
TEXT ·softcapVec(SB), NOSPLIT, $0-52
	UPGRADE(·softcapAVX512)
	MOVQ dst_base+0(FP), DI
	MOVQ x_base+24(FP), SI
	MOVQ x_len+32(FP), CX
	VBROADCASTSS by+48(FP), Y11
	MOVQ ·expConst(SB), R8
	CONSTANTS
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (SI), Y4
	VDIVPS  Y11, Y4, Y4
	VANDPS  ABS(R8), Y4, Y5 // a

	// Y0 = 1 - 2/(Exp(2a) + 1)
	VADDPS  Y5, Y5, Y0
	EXP
	VADDPS  Y12, Y0, Y0
	VMOVUPS TWO(R8), Y1
	VDIVPS  Y0, Y1, Y0
	VSUBPS  Y0, Y12, Y0

	// Y2 = a + a*y*p, y being a*a
	VMULPS      Y5, Y5, Y1
	VMOVUPS     T4(R8), Y2
	VFMADD213PS T3(R8), Y1, Y2
	VFMADD213PS T2(R8), Y1, Y2
	VFMADD213PS T1(R8), Y1, Y2
	VFMADD213PS T0(R8), Y1, Y2
	VMULPS      Y2, Y1, Y2
	VFMADD213PS Y5, Y5, Y2

	// Y2 where a < 0.625, with the sign of x
	VCMPPS    $1, SMALL(R8), Y5, Y1
	VBLENDVPS Y1, Y2, Y0, Y0
	VANDPS    SIGN(R8), Y4, Y4
	VORPS     Y4, Y0, Y0
	VMULPS    Y11, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ  loop

done:
	VZEROUPPER
	RET

// WEIGHT sets Y0 to weight(Y0), Y14 being the least exponent.
#define WEIGHT \
	VCMPPS $5, Y14, Y0, Y8; \
	EXP;                    \
	VANDPS Y8, Y0, Y0

// func expSumVec(sums *[16]float32, dst, x []float32, top float32)
TEXT ·expSumVec(SB), NOSPLIT, $0-60
	UPGRADE(·expSumAVX512)
	MOVQ dst_base+8(FP), DI
	MOVQ x_base+32(FP), SI
	MOVQ x_len+40(FP), CX
	VBROADCASTSS top+56(FP), Y11
	MOVQ ·expConst(SB), R8
	CONSTANTS
	MOVL $0xc2800000, AX // the least exponent
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	VXORPS Y9, Y9, Y9    // sums 0 to 7
	VXORPS Y10, Y10, Y10 // sums 8 to 15
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (SI), Y0
	VSUBPS  Y11, Y0, Y0
	WEIGHT
	VMOVUPS Y0, (DI)
	VADDPS  Y0, Y9, Y9
	VMOVUPS 32(SI), Y0
	VSUBPS  Y11, Y0, Y0
	WEIGHT
	VMOVUPS Y0, 32(DI)
	VADDPS  Y0, Y10, Y10
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop

done:
	MOVQ sums+0(FP), DI
	VMOVUPS Y9, (DI)
	VMOVUPS Y10, 32(DI)
	VZEROUPPER
	RET
