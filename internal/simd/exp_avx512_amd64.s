#include "textflag.h"
#include "exp_amd64.h"
#include "exp_avx512_amd64.h"

// Kernels around Exp, over a multiple of 16 elements, 16 at a time:
//
//	DI       dst
//	SI       x, or the gates
//	DX       the gated values
//	CX       elements left
//	R8       expConst
//	Z4       x
//	Z16 on   the constants of Exp, in the order of expConst

// SILU sets Z0 to the argument of Exp, and GELU likewise, with its constants.
#define SILU \
	VPXORD Z28, Z4, Z0

#define GELU \
	VMULPS      Z4, Z4, Z0;   \
	VMOVAPS     Z29, Z1;      \
	VFMADD231PS Z30, Z0, Z1;  \
	VMULPS      Z4, Z1, Z0

#define ACTIVATE(ARGUMENT) \
	ARGUMENT;            \
	EXP;                 \
	VADDPS Z27, Z0, Z0;  \
	VDIVPS Z0, Z4, Z0

// ACT is the body of func(dst, x []float32).
#define ACT(ARGUMENT) \
	MOVQ dst_base+0(FP), DI;   \
	MOVQ x_base+24(FP), SI;    \
	MOVQ x_len+32(FP), CX;     \
	MOVQ ·expConst(SB), R8;    \
	CONSTANTS;                 \
	VBROADCASTSS G1(R8), Z29;  \
	VBROADCASTSS G3(R8), Z30;  \
	TESTQ CX, CX;              \
	JZ   done;                 \
loop:                          \
	VMOVUPS (SI), Z4;          \
	ACTIVATE(ARGUMENT);        \
	VMOVUPS Z0, (DI);          \
	ADDQ $64, SI;              \
	ADDQ $64, DI;              \
	SUBQ $16, CX;              \
	JNZ  loop;                 \
done:                          \
	VZEROUPPER;                \
	RET

// GLU is the body of func(dst, gate, up []float32).
#define GLU(ARGUMENT) \
	MOVQ dst_base+0(FP), DI;   \
	MOVQ gate_base+24(FP), SI; \
	MOVQ gate_len+32(FP), CX;  \
	MOVQ up_base+48(FP), DX;   \
	MOVQ ·expConst(SB), R8;    \
	CONSTANTS;                 \
	VBROADCASTSS G1(R8), Z29;  \
	VBROADCASTSS G3(R8), Z30;  \
	TESTQ CX, CX;              \
	JZ   done;                 \
loop:                          \
	VMOVUPS (SI), Z4;          \
	ACTIVATE(ARGUMENT);        \
	VMULPS (DX), Z0, Z0;       \
	VMOVUPS Z0, (DI);          \
	ADDQ $64, SI;              \
	ADDQ $64, DX;              \
	ADDQ $64, DI;              \
	SUBQ $16, CX;              \
	JNZ  loop;                 \
done:                          \
	VZEROUPPER;                \
	RET

// func siluAVX512(dst, x []float32)
TEXT ·siluAVX512(SB), NOSPLIT, $0-48
	ACT(SILU)

// func geluAVX512(dst, x []float32)
TEXT ·geluAVX512(SB), NOSPLIT, $0-48
	ACT(GELU)

// func swigluAVX512(dst, gate, up []float32)
TEXT ·swigluAVX512(SB), NOSPLIT, $0-72
	GLU(SILU)

// func gegluAVX512(dst, gate, up []float32)
TEXT ·gegluAVX512(SB), NOSPLIT, $0-72
	GLU(GELU)

// func softcapAVX512(dst, x []float32, by float32)
TEXT ·softcapAVX512(SB), NOSPLIT, $0-52
	MOVQ dst_base+0(FP), DI
	MOVQ x_base+24(FP), SI
	MOVQ x_len+32(FP), CX
	VBROADCASTSS by+48(FP), Z15
	MOVQ ·expConst(SB), R8
	CONSTANTS
	VBROADCASTSS T4(R8), Z14
	VBROADCASTSS T3(R8), Z13
	VBROADCASTSS T2(R8), Z12
	VBROADCASTSS T1(R8), Z11
	VBROADCASTSS T0(R8), Z10
	VBROADCASTSS SMALL(R8), Z9
	VBROADCASTSS TWO(R8), Z8
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (SI), Z4
	VDIVPS  Z15, Z4, Z4
	VPANDND Z4, Z28, Z5 // a

	// Z0 = 1 - 2/(Exp(2a) + 1)
	VADDPS Z5, Z5, Z0
	EXP
	VADDPS Z27, Z0, Z0
	VDIVPS Z0, Z8, Z0
	VSUBPS Z0, Z27, Z0

	// Z2 = a + a*y*p, y being a*a
	VMULPS      Z5, Z5, Z1
	VMOVAPS     Z14, Z2
	VFMADD213PS Z13, Z1, Z2
	VFMADD213PS Z12, Z1, Z2
	VFMADD213PS Z11, Z1, Z2
	VFMADD213PS Z10, Z1, Z2
	VMULPS      Z2, Z1, Z2
	VFMADD213PS Z5, Z5, Z2

	// Z2 where a < 0.625, with the sign of x
	VCMPPS  $1, Z9, Z5, K1
	VMOVAPS Z2, K1, Z0
	VPANDD  Z28, Z4, Z4
	VPORD   Z4, Z0, Z0
	VMULPS  Z15, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop

done:
	VZEROUPPER
	RET

// func expSumAVX512(sums *[16]float32, dst, x []float32, top float32)
TEXT ·expSumAVX512(SB), NOSPLIT, $0-60
	MOVQ dst_base+8(FP), DI
	MOVQ x_base+32(FP), SI
	MOVQ x_len+40(FP), CX
	VBROADCASTSS top+56(FP), Z15
	MOVQ ·expConst(SB), R8
	CONSTANTS
	LEASTEXPONENT
	VPXORD Z14, Z14, Z14 // sums
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (SI), Z0
	VSUBPS  Z15, Z0, Z0
	WEIGHT
	VMOVUPS Z0, (DI)
	VADDPS  Z0, Z14, Z14
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop

done:
	MOVQ sums+0(FP), DI
	VMOVUPS Z14, (DI)
	VZEROUPPER
	RET
