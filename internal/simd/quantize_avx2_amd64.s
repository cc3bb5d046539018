#include "textflag.h"

// Activations with AVX2.

DATA pairs<>+0(SB)/8, $0x0706030205040100
DATA pairs<>+8(SB)/8, $0x0f0e0b0a0d0c0908
GLOBL pairs<>(SB), RODATA|NOPTR, $16

// HIGHER sets each lane of X4 to the greater of it and another one.
#define HIGHER(order) \
	VPSHUFD  $order, X4, X5; \
	VPMAXUD  X5, X4, X4

// ROUND sets a to the integers of 16 numbers, a being the first 8 of them and b
// the others.
#define ROUND(a, b) \
	VMULPS    Y5, a, a;    \
	VMULPS    Y5, b, b;    \
	VCVTPS2DQ a, a;        \
	VCVTPS2DQ b, b;        \
	VPACKSSDW b, a, a;     \
	VPERMQ    $0xd8, a, a; \
	VPSHUFB   Y13, a, a

// func quantizeVec(q []int16, dx, x []float32)
//
//	DI      q
//	SI      x
//	R8      dx, CX left
//	Y0-Y3   a group
//	X4      bits of its largest magnitude
//	Y13     the order of pairs
//	X14     32767
//	Y15     all bits but the sign
TEXT ·quantizeVec(SB), NOSPLIT, $0-72
	MOVQ     q_base+0(FP), DI
	MOVQ     dx_base+24(FP), R8
	MOVQ     dx_len+32(FP), CX
	MOVQ     x_base+48(FP), SI
	VPCMPEQD Y15, Y15, Y15
	VPSRLD   $1, Y15, Y15
	MOVL     $0x46fffe00, AX
	VMOVD    AX, X14
	VBROADCASTI128 pairs<>(SB), Y13
	TESTQ    CX, CX
	JZ       done
loop:
	VMOVUPS 0(SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3
	VPAND   Y15, Y0, Y4
	VPAND   Y15, Y1, Y5
	VPAND   Y15, Y2, Y6
	VPAND   Y15, Y3, Y7
	VPMAXUD Y5, Y4, Y4
	VPMAXUD Y7, Y6, Y6
	VPMAXUD Y6, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPMAXUD X5, X4, X4
	HIGHER(0x4e)
	HIGHER(0xb1)
	VMOVD   X4, AX
	CMPL    AX, $0x0da24260 // 1e-30
	JCS     none
	CMPL    AX, $0x7f800000
	JCC     nan
	VDIVSS  X4, X14, X5
	VDIVSS  X14, X4, X6
	VBROADCASTSS X5, Y5
	ROUND(Y0, Y1)
	ROUND(Y2, Y3)
	VMOVSS  X6, (R8)
store:
	VMOVDQU Y0, 0(DI)
	VMOVDQU Y2, 32(DI)
	ADDQ    $128, SI
	ADDQ    $64, DI
	ADDQ    $4, R8
	DECQ    CX
	JNZ     loop
done:
	VZEROUPPER
	RET
none:
	XORL  AX, AX
	JMP   special
nan:
	MOVL  $0x7fc00000, AX
special:
	MOVL  AX, (R8)
	VPXOR Y0, Y0, Y0
	VPXOR Y2, Y2, Y2
	JMP   store

// SUM16 and SUM32 set y to partial sums of group i.
#define SUM16(i, y) \
	VPMADDWD (i*32)(SI), Y15, y

#define SUM32(i, y) \
	VMOVDQU (i*64)(SI), y;            \
	VPMADDWD (i*64+32)(SI), Y15, Y8;  \
	VPMADDWD y, Y15, y;               \
	VPADDD   Y8, y, y

// SUMS leaves the sums of eight groups in Y0.
#define SUMS(SUM) \
	SUM(0, Y0);                   \
	SUM(1, Y1);                   \
	SUM(2, Y2);                   \
	SUM(3, Y3);                   \
	SUM(4, Y4);                   \
	SUM(5, Y5);                   \
	SUM(6, Y6);                   \
	SUM(7, Y7);                   \
	VPHADDD    Y1, Y0, Y0;        \
	VPHADDD    Y3, Y2, Y2;        \
	VPHADDD    Y5, Y4, Y4;        \
	VPHADDD    Y7, Y6, Y6;        \
	VPHADDD    Y2, Y0, Y0;        \
	VPHADDD    Y6, Y4, Y4;        \
	VPERM2I128 $0x20, Y4, Y0, Y1; \
	VPERM2I128 $0x31, Y4, Y0, Y0; \
	VPADDD     Y1, Y0, Y0

// SUMHEAD has the result in DI, eights of groups in CX, and 1 in every integer
// of Y15.
#define SUMHEAD(dst, len, q, done) \
	MOVQ     dst, DI;       \
	MOVQ     len, CX;       \
	MOVQ     q, SI;         \
	VPCMPEQW Y15, Y15, Y15; \
	VPSRLW   $15, Y15, Y15; \
	SHRQ     $3, CX;        \
	JZ       done

// NEXT goes to the next eight groups, of so many integers each.
#define NEXT(group, loop) \
	ADDQ $(16*group), SI; \
	ADDQ $32, DI;         \
	DECQ CX;              \
	JNZ  loop

// func groupSumsVec(sums []float32, q *int16, dx *float32, group int)
TEXT ·groupSumsVec(SB), NOSPLIT, $0-48
	SUMHEAD(sums_base+0(FP), sums_len+8(FP), q+24(FP), done)
	MOVQ dx+32(FP), DX
	CMPQ group+40(FP), $16
	JEQ  sixteen
loop:
	SUMS(SUM32)
	VCVTDQ2PS Y0, Y0
	VMULPS    (DX), Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $32, DX
	NEXT(32, loop)
	JMP done
sixteen:
	SUMS(SUM16)
	VCVTDQ2PS Y0, Y0
	VPMOVZXDQ (DX), Y1 // a scale for two groups
	VMOVSLDUP Y1, Y1
	VMULPS    Y1, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, DX
	NEXT(16, sixteen)
done:
	VZEROUPPER
	RET

// func groupInitVec(init []int32, q *int16, group int, factor int32)
TEXT ·groupInitVec(SB), NOSPLIT, $0-44
	SUMHEAD(init_base+0(FP), init_len+8(FP), q+24(FP), done)
	MOVL         factor+40(FP), AX
	VMOVD        AX, X14
	VPBROADCASTD X14, Y14
	CMPQ group+32(FP), $16
	JEQ  sixteen
loop:
	SUMS(SUM32)
	VPMULLD Y14, Y0, Y0
	VMOVDQU Y0, (DI)
	NEXT(32, loop)
	JMP done
sixteen:
	SUMS(SUM16)
	VPMULLD Y14, Y0, Y0
	VMOVDQU Y0, (DI)
	NEXT(16, sixteen)
done:
	VZEROUPPER
	RET
