#include "textflag.h"

// Kernels over a multiple of 16 elements, 16 at a time:
//
//	DI  dst
//	SI  the first input
//	DX  the second
//	CX  elements left

#define BINARY(OP) \
	MOVQ dst_base+0(FP), DI; \
	MOVQ a_base+24(FP), SI;  \
	MOVQ a_len+32(FP), CX;   \
	MOVQ b_base+48(FP), DX;  \
	TESTQ CX, CX;            \
	JZ   done;               \
loop:                        \
	VMOVUPS (SI), Y0;        \
	VMOVUPS 32(SI), Y1;      \
	OP (DX), Y0, Y0;         \
	OP 32(DX), Y1, Y1;       \
	VMOVUPS Y0, (DI);        \
	VMOVUPS Y1, 32(DI);      \
	ADDQ $64, SI;            \
	ADDQ $64, DX;            \
	ADDQ $64, DI;            \
	SUBQ $16, CX;            \
	JNZ  loop;               \
done:                        \
	VZEROUPPER;              \
	RET

// WITH applies OP to x and the number s.
#define WITH(OP) \
	MOVQ dst_base+0(FP), DI;   \
	MOVQ x_base+24(FP), SI;    \
	MOVQ x_len+32(FP), CX;     \
	VBROADCASTSS s+48(FP), Y2; \
	TESTQ CX, CX;              \
	JZ   done;                 \
loop:                          \
	VMOVUPS (SI), Y0;          \
	VMOVUPS 32(SI), Y1;        \
	OP Y2, Y0, Y0;             \
	OP Y2, Y1, Y1;             \
	VMOVUPS Y0, (DI);          \
	VMOVUPS Y1, 32(DI);        \
	ADDQ $64, SI;              \
	ADDQ $64, DI;              \
	SUBQ $16, CX;              \
	JNZ  loop;                 \
done:                          \
	VZEROUPPER;                \
	RET

// CONVERT has LOAD read 16 elements of two bytes to Y0 and Y1, and stores them.
#define CONVERT(LOAD) \
	MOVQ dst_base+0(FP), DI;  \
	MOVQ src_base+24(FP), SI; \
	MOVQ src_len+32(FP), CX;  \
	TESTQ CX, CX;             \
	JZ   done;                \
loop:                         \
	LOAD;                     \
	VMOVUPS Y0, (DI);         \
	VMOVUPS Y1, 32(DI);       \
	ADDQ $32, SI;             \
	ADDQ $64, DI;             \
	SUBQ $16, CX;             \
	JNZ  loop;                \
done:                         \
	VZEROUPPER;               \
	RET

#define LOADF16 \
	VCVTPH2PS (SI), Y0;  \
	VCVTPH2PS 16(SI), Y1

#define LOADBF16 \
	VPMOVZXWD (SI), Y0;    \
	VPMOVZXWD 16(SI), Y1;  \
	VPSLLD    $16, Y0, Y0; \
	VPSLLD    $16, Y1, Y1

// func addVec(dst, a, b []float32)
TEXT ·addVec(SB), NOSPLIT, $0-72
	BINARY(VADDPS)

// func mulVec(dst, a, b []float32)
TEXT ·mulVec(SB), NOSPLIT, $0-72
	BINARY(VMULPS)

// func scaleVec(dst, x []float32, s float32)
TEXT ·scaleVec(SB), NOSPLIT, $0-52
	WITH(VMULPS)

// func divideVec(dst, x []float32, s float32)
TEXT ·divideVec(SB), NOSPLIT, $0-52
	WITH(VDIVPS)

// func addScaledVec(dst, x []float32, s float32)
TEXT ·addScaledVec(SB), NOSPLIT, $0-52
	MOVQ dst_base+0(FP), DI
	MOVQ x_base+24(FP), SI
	MOVQ x_len+32(FP), CX
	VBROADCASTSS s+48(FP), Y2
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VFMADD231PS (SI), Y2, Y0
	VFMADD231PS 32(SI), Y2, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop

done:
	VZEROUPPER
	RET

// func normVec(dst, x, w []float32, r, offset float32)
TEXT ·normVec(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ x_base+24(FP), SI
	MOVQ x_len+32(FP), CX
	MOVQ w_base+48(FP), DX
	VBROADCASTSS r+72(FP), Y4
	VBROADCASTSS offset+76(FP), Y5
	TESTQ CX, CX
	JZ   done

loop:
	VMULPS  (SI), Y4, Y0
	VMULPS  32(SI), Y4, Y1
	VADDPS  (DX), Y5, Y2
	VADDPS  32(DX), Y5, Y3
	VMULPS  Y2, Y0, Y0
	VMULPS  Y3, Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DX
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop

done:
	VZEROUPPER
	RET

// func turnVec(lo, hi, cos, sin []float32)
TEXT ·turnVec(SB), NOSPLIT, $0-96
	MOVQ lo_base+0(FP), DI
	MOVQ hi_base+24(FP), SI
	MOVQ cos_base+48(FP), R8
	MOVQ cos_len+56(FP), CX
	MOVQ sin_base+72(FP), R9
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (DI), Y0 // a
	VMOVUPS (SI), Y1 // b
	VMOVUPS (R8), Y2 // cos
	VMOVUPS (R9), Y3 // sin
	VMULPS  Y3, Y1, Y4
	VMULPS  Y3, Y0, Y5
	VFMSUB213PS Y4, Y2, Y0 // a*cos - b*sin
	VFMADD213PS Y5, Y2, Y1 // b*cos + a*sin
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (SI)
	ADDQ $32, DI
	ADDQ $32, SI
	ADDQ $32, R8
	ADDQ $32, R9
	SUBQ $8, CX
	JNZ  loop

done:
	VZEROUPPER
	RET

// func maxVec(x []float32) (top float32, nans uint32)
// The largest of 16 numbers or more; any are NaN if nans is not 0.
TEXT ·maxVec(SB), NOSPLIT, $0-28
	MOVQ x_base+0(FP), SI
	MOVQ x_len+8(FP), CX
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VXORPS Y2, Y2, Y2 // lanes that saw a NaN

loop:
	VMOVUPS (SI), Y3
	VMOVUPS 32(SI), Y4
	VMAXPS  Y3, Y0, Y0
	VMAXPS  Y4, Y1, Y1
	VCMPPS  $3, Y4, Y3, Y3 // unordered
	VORPS   Y3, Y2, Y2
	ADDQ $64, SI
	SUBQ $16, CX
	JNZ  loop

	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VMAXPS X1, X0, X0
	VMOVSHDUP X0, X1
	VMAXSS X1, X0, X0
	VMOVMSKPS Y2, AX
	TESTL AX, AX
	JZ   done
	MOVL $0x7fc00000, AX // NaN
	VMOVD AX, X0

done:
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

// func loadF16Vec(dst []float32, src []uint16)
TEXT ·loadF16Vec(SB), NOSPLIT, $0-48
	CONVERT(LOADF16)

// func loadBF16Vec(dst []float32, src []uint16)
TEXT ·loadBF16Vec(SB), NOSPLIT, $0-48
	CONVERT(LOADBF16)

// func storeF16Vec(dst []uint16, src []float32)
TEXT ·storeF16Vec(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	TESTQ CX, CX
	JZ   done

loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VCVTPS2PH $0, Y0, (DI) // to nearest even
	VCVTPS2PH $0, Y1, 16(DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $16, CX
	JNZ  loop

done:
	VZEROUPPER
	RET
