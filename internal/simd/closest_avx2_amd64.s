#include "textflag.h"

// The points closest to weights, eight points at a time.
//
//	SI      points, CX eights of them left
//	Y0-Y2   of each lane the least sum, its point, and when
//	Y3, Y7  the number of the eights, and 1
//	Y4-Y6   points, and their sums
//	Y8-Y15  costs of a weight's levels

// COST makes the costs of weight i.
#define COST(i, y) \
	VBROADCASTSS (4*i)(R8), Y4; \
	VBROADCASTSS (4*i)(R9), Y5; \
	VSUBPS       Y4, Y6, Y4;    \
	VMULPS       Y4, Y5, Y5;    \
	VMULPS       Y4, Y5, y

// ADD2 and ADD3 add the cost of a weight's level to sums.
#define ADD2(i, y) \
	VPSRLD    $(2*i), Y4, Y5; \
	VPERMILPS Y5, y, Y5;      \
	VADDPS    Y5, Y6, Y6

#define ADD3(i, y) \
	VPSRLD  $(3*i), Y4, Y5; \
	VPERMPS y, Y5, Y5;      \
	VADDPS  Y5, Y6, Y6

#define BEGIN \
	MOVQ near_base+0(FP), SI; \
	MOVQ near_len+8(FP), CX;  \
	SHRQ $3, CX;              \
	MOVQ x+24(FP), R8;        \
	MOVQ w+32(FP), R9;        \
	MOVQ values+40(FP), R10;  \
	MOVL         $0x7f7fffff, AX; \
	VMOVD        AX, X0;      \
	VPBROADCASTD X0, Y0;      \
	VPXOR        Y1, Y1, Y1;  \
	VPXOR        Y2, Y2, Y2;  \
	VPXOR        Y3, Y3, Y3;  \
	VPCMPEQD     Y7, Y7, Y7;  \
	VPABSD       Y7, Y7

// LESS keeps points with lesser sums.
#define LESS(loop) \
	VCMPPS    $1, Y0, Y6, Y5;     \
	VBLENDVPS Y5, Y6, Y0, Y0;     \
	VBLENDVPS Y5, Y4, Y1, Y1;     \
	VBLENDVPS Y5, Y3, Y2, Y2;     \
	VPADDD    Y7, Y3, Y3;         \
	ADDQ      $32, SI;            \
	DECQ      CX;                 \
	JNZ       loop

// ACROSS sets every lane of y to the result of OP over all lanes.
#define ACROSS(OP, y) \
	VPERM2I128 $1, y, y, Y4; \
	OP         Y4, y, y;     \
	VPSHUFD    $0x4e, y, Y4; \
	OP         Y4, y, y;     \
	VPSHUFD    $0xb1, y, Y4; \
	OP         Y4, y, y

// FIRST returns the point of the least sum, the first of several: by the number of the eights, and by lanes.
#define FIRST \
	VMOVDQA   Y0, Y8;            \
	ACROSS(VMINPS, Y8);      \
	VPCMPEQD  Y8, Y0, Y5;        \
	VPCMPEQD  Y6, Y6, Y6;        \
	VBLENDVPS Y5, Y2, Y6, Y2;    \
	VMOVDQA   Y2, Y9;            \
	ACROSS(VPMINUD, Y9);     \
	VPCMPEQD  Y9, Y2, Y5;        \
	VMOVMSKPS Y5, AX;            \
	BSFL      AX, AX;            \
	VMOVD     AX, X4;            \
	VPERMD    Y1, Y4, Y1;        \
	VMOVD     X1, AX;            \
	MOVL      AX, ret+48(FP);    \
	VZEROUPPER;                  \
	RET

// func closest8AVX2(near []uint32, x, w *float32, values *[8]float32) uint32
TEXT ·closest8AVX2(SB), NOSPLIT, $0-52
	BEGIN
	VBROADCASTF128 (R10), Y6
	COST(0, Y8)
	COST(1, Y9)
	COST(2, Y10)
	COST(3, Y11)
	COST(4, Y12)
	COST(5, Y13)
	COST(6, Y14)
	COST(7, Y15)
loop:
	VMOVDQU   (SI), Y4
	VPERMILPS Y4, Y8, Y6
	ADD2(1, Y9)
	ADD2(2, Y10)
	ADD2(3, Y11)
	ADD2(4, Y12)
	ADD2(5, Y13)
	ADD2(6, Y14)
	ADD2(7, Y15)
	LESS(loop)
	FIRST

// func closest4AVX2(near []uint32, x, w *float32, values *[8]float32) uint32
TEXT ·closest4AVX2(SB), NOSPLIT, $0-52
	BEGIN
	VMOVUPS (R10), Y6
	COST(0, Y8)
	COST(1, Y9)
	COST(2, Y10)
	COST(3, Y11)
loop:
	VMOVDQU (SI), Y4
	VPERMPS Y8, Y4, Y6
	ADD3(1, Y9)
	ADD3(2, Y10)
	ADD3(3, Y11)
	LESS(loop)
	FIRST

// LEVEL makes the levels of 8 weights.
#define LEVEL(at, y) \
	VMULPS  (at)(SI), Y8, y; \
	VSUBPS  Y9, y, y;        \
	VMULPS  Y10, y, y;       \
	VADDPS  Y11, y, y;       \
	VPSUBD  Y11, y, y;       \
	VPMAXSD Y13, y, y;       \
	VPMINSD Y12, y, y

#define EACH(n, x, y) \
	MOVL         $n, AX; \
	VMOVD        AX, x;  \
	VPBROADCASTD x, y

// func levelsAVX2(q []byte, x []float32, inverse float32, top int32)
TEXT ·levelsAVX2(SB), NOSPLIT, $0-56
	MOVQ q_base+0(FP), DI
	MOVQ x_base+24(FP), SI
	MOVQ x_len+32(FP), CX
	SHRQ $4, CX
	JZ   done
	VBROADCASTSS inverse+48(FP), Y8
	MOVL         top+52(FP), AX
	VMOVD        AX, X12
	VPBROADCASTD X12, Y12
	EACH(0x3f800000, X9, Y9)   // 1
	EACH(0x3f000000, X10, Y10) // 0.5
	EACH(0x4b400000, X11, Y11) // 3<<22
	VPXOR Y13, Y13, Y13
loop:
	LEVEL(0, Y0)
	LEVEL(32, Y1)
	VPACKUSDW    Y1, Y0, Y0
	VPACKUSWB    Y0, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPUNPCKLDQ   X1, X0, X0
	VMOVDQU      X0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
done:
	RET

// SHIFT makes a mask of the lanes whose sums are more than the score, for a shift.
#define SHIFT(i, before, after, to) \
	VBROADCASTSS (1600+4*i)(SI), Y8;             \
	VMULPS       Y8, Y2, Y4;                     \
	VMULPS       Y8, Y3, Y5;                     \
	VMULPS       Y8, Y5, Y5;                     \
	VBROADCASTSS (before)(SI)(R8*4), Y6;         \
	VBROADCASTSS (before+160)(SI)(R8*4), Y7;     \
	VADDPS       Y4, Y6, Y4;                     \
	VADDPS       Y5, Y7, Y5;                     \
	VADDPS       (after)(SI)(R9*4), Y4, Y4;      \
	VADDPS       (after+160)(SI)(R9*4), Y5, Y5;  \
	VMULPS       Y4, Y4, Y4;                     \
	VMULPS       Y5, Y10, Y6;                    \
	VCMPPS       $1, Y4, Y6, Y6;                 \
	VCMPPS       $1, Y5, Y9, Y5;                 \
	VPAND        Y5, Y6, to

// func firstSplitAVX2(s *Splits, i1, from, n int, score float32) int
TEXT ·firstSplitAVX2(SB), NOSPLIT, $0-48
	MOVQ s+0(FP), SI
	MOVQ i1+8(FP), R8
	MOVQ from+16(FP), R9
	MOVQ n+24(FP), CX
	VBROADCASTSS score+32(FP), Y10
	VXORPS       Y9, Y9, Y9
	VBROADCASTSS (SI)(R8*4), Y0
	VBROADCASTSS 160(SI)(R8*4), Y1
loop:
	VMOVUPS   (SI)(R9*4), Y2
	VMOVUPS   160(SI)(R9*4), Y3
	VSUBPS    Y0, Y2, Y2
	VSUBPS    Y1, Y3, Y3
	SHIFT(0, 320, 960, Y11)
	SHIFT(1, 640, 1280, Y12)
	VPOR      Y11, Y12, Y11
	VMOVMSKPS Y11, AX
	TESTL     AX, AX
	JNZ       found
	ADDQ      $8, R9
	CMPQ      R9, CX
	JLE       loop
	MOVQ      R9, ret+40(FP)
	VZEROUPPER
	RET
found:
	BSFL AX, AX
	ADDQ AX, R9
	MOVQ R9, ret+40(FP)
	VZEROUPPER
	RET
