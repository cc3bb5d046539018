#include "textflag.h"

// Blocks with points, with AVX-512, VBMI and GFNI.
//
//	DI       codes, SI the block, R9 the step, CX steps left
//	R10      points, R13 points by number to be gathered, or 0
//	BX, AX   places in the block
//	Z0       low bits of points' numbers, four of each row
//	Z1, Z2   high bits, and signs
//	Z3, Z4   the low and high bytes of points
//	Z13-Z15  1, 2 and 4 in each byte; Z11 the high bits in each, Z12 255 in each 32-bit integer
//	Z16-Z19  shifts of levels, Z20-Z27 of signs
//	Z28      the matrix of signs, Z29 codes, Z30 8 in each byte
//	K2-K5    bits 7 to 10 of points' numbers
//	K6       bytes of the second place of a pick

#define SET(byte, z) \
	MOVL         $(byte*0x01010101), AX; \
	VPBROADCASTD AX, z

#define PICK(at, z) \
	MOVL           (at)(R9), AX;            \
	MOVL           (at+4)(R9), BX;          \
	VPBROADCASTQ   (at+8)(R9), Z9;          \
	VPMULTISHIFTQB (SI)(AX*1), Z9, z;       \
	VPMULTISHIFTQB (SI)(BX*1), Z9, K6, z

// LOOK7 to LOOK11 look up bytes of 128 to 2048 points.
#define LOOK7(at, z) \
	VMOVDQU64 (at)(R10), z; \
	VPERMT2B  (at+64)(R10), Z0, z

#define LOOK8(at, z, a) \
	LOOK7(at, z);     \
	LOOK7(at+256, a); \
	VMOVDQU8 a, K2, z

#define LOOK9(at, z, a, b) \
	LOOK8(at, z, a);     \
	LOOK8(at+512, a, b); \
	VMOVDQU8 a, K3, z

#define LOOK10(at, z, a, b, c) \
	LOOK9(at, z, a, b);      \
	LOOK9(at+1024, a, b, c); \
	VMOVDQU8 a, K4, z

#define LOOK11(at, z, a, b, c, d) \
	LOOK10(at, z, a, b, c);      \
	LOOK10(at+2048, a, b, c, d); \
	VMOVDQU8 a, K5, z

// SIGNED puts the codes of Z9 with signs.
#define SIGNED(signs, at) \
	VPMULTISHIFTQB Z2, signs, Z10;      \
	VPTERNLOGD     $0xd8, Z30, Z10, Z9; \
	VPERMB         Z29, Z9, Z9;         \
	VMOVDQU64      Z9, (at)(DI)

// EIGHT is a point of 8 weights, QUAD of 4.
#define EIGHT(levels, first, second, at) \
	VPMULTISHIFTQB Z3, levels, Z9; \
	SIGNED(first, at);             \
	VPMULTISHIFTQB Z4, levels, Z9; \
	SIGNED(second, at+64)

#define QUAD(levels, signs, at) \
	VPMULTISHIFTQB Z3, levels, Z9;     \
	VPMULTISHIFTQB Z4, levels, K6, Z9; \
	SIGNED(signs, at)

// GATHER makes the codes of point p of 8 weights of each row.
#define GATHER(p, first, second) \
	VPSRLD         $(8*p), Z0, Z5;      \
	VPSRLD         $(8*p), Z1, Z6;      \
	VPANDD         Z12, Z5, Z5;         \
	VPANDD         Z12, Z6, Z6;         \
	VPSLLD         $8, Z6, Z6;          \
	VPORD          Z6, Z5, Z5;          \
	KXNORQ         K1, K1, K1;          \
	VPXORD         Z3, Z3, Z3;          \
	VPGATHERDD     (R13)(Z5*2), K1, Z3; \
	VPMULTISHIFTQB Z3, Z16, Z9;         \
	SIGNED(first, p*128);               \
	VPMULTISHIFTQB Z3, Z17, Z9;         \
	SIGNED(second, p*128+64)

// func unpackGridAVX512(dst, src *byte, steps *gridStep, n int, shape *gridShape, points, words *byte, index, four int)
TEXT ·unpackGridAVX512(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ steps+16(FP), R9
	MOVQ n+24(FP), CX
	MOVQ shape+32(FP), R8
	MOVQ points+40(FP), R10
	MOVQ words+48(FP), R13
	MOVQ index+56(FP), R11
	MOVQ four+64(FP), R12
	MOVQ            $0xcccccccccccccccc, AX
	KMOVQ           AX, K6
	VPBROADCASTQ    0(R8), Z16
	VPBROADCASTQ    8(R8), Z17
	VPBROADCASTQ    16(R8), Z18
	VPBROADCASTQ    24(R8), Z19
	VPBROADCASTQ    32(R8), Z20
	VPBROADCASTQ    40(R8), Z21
	VPBROADCASTQ    48(R8), Z22
	VPBROADCASTQ    56(R8), Z23
	VPBROADCASTQ    64(R8), Z24
	VPBROADCASTQ    72(R8), Z25
	VPBROADCASTQ    80(R8), Z26
	VPBROADCASTQ    88(R8), Z27
	VPBROADCASTQ    96(R8), Z28
	VBROADCASTI32X4 104(R8), Z29
	SET(1, Z13)
	SET(2, Z14)
	SET(4, Z15)
	SET(8, Z30)
	LEAQ            -8(R11), CX
	MOVL            $0x01010101, AX
	MOVL            AX, BX
	SHLL            CX, AX
	SUBL            BX, AX
	VPBROADCASTD    AX, Z11
	MOVQ            n+24(FP), CX
	MOVL            $255, AX
	VPBROADCASTD    AX, Z12
loop:
	PICK(0, Z0)
	VPMOVB2M       Z0, K2
	PICK(32, Z2)
	VGF2P8AFFINEQB $0, Z28, Z2, Z2
	CMPQ           R11, $8
	JEQ            bits8
	PICK(16, Z1)
	VPTESTMB       Z13, Z1, K3
	CMPQ           R11, $9
	JEQ            bits9
	TESTQ          R13, R13
	JNZ            gather
	VPTESTMB       Z14, Z1, K4
	CMPQ           R11, $10
	JEQ            bits10
	VPTESTMB       Z15, Z1, K5
	LOOK11(0, Z3, Z5, Z6, Z7, Z8)
	LOOK11(128, Z4, Z5, Z6, Z7, Z8)
	JMP            points
bits10:
	LOOK10(0, Z3, Z5, Z6, Z7)
	LOOK10(128, Z4, Z5, Z6, Z7)
	JMP            points
bits9:
	LOOK9(0, Z3, Z5, Z6)
	LOOK9(128, Z4, Z5, Z6)
	JMP            points
bits8:
	LOOK8(0, Z3, Z5)
	LOOK8(128, Z4, Z5)
	JMP            points
gather:
	VPANDD         Z11, Z1, Z1
	GATHER(0, Z20, Z21)
	GATHER(1, Z22, Z23)
	GATHER(2, Z24, Z25)
	GATHER(3, Z26, Z27)
	ADDQ           $256, DI
	JMP            next
points:
	TESTQ          R12, R12
	JNZ            quads
	EIGHT(Z16, Z20, Z21, 0)
	EIGHT(Z17, Z22, Z23, 128)
	EIGHT(Z18, Z24, Z25, 256)
	EIGHT(Z19, Z26, Z27, 384)
	ADDQ           $256, DI
	JMP            next
quads:
	QUAD(Z16, Z20, 0)
	QUAD(Z17, Z21, 64)
	QUAD(Z18, Z22, 128)
	QUAD(Z19, Z23, 192)
next:
	ADDQ           $256, DI
	ADDQ           $48, R9
	DECQ           CX
	JNZ            loop
	VZEROUPPER
	RET

// func gridScalesAVX512(dst *float32, src *byte, places *gridPlace, n int, mask uint32, unit float32)
TEXT ·gridScalesAVX512(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         places+16(FP), R9
	MOVQ         n+24(FP), CX
	MOVL         mask+32(FP), AX
	VPBROADCASTD AX, Z3
	VCVTPH2PS    (SI), Z0
	VMULPS.BCST  unit+36(FP), Z0, Z0
	MOVL         $1, AX
	VPBROADCASTD AX, Z4
	ADDQ         $64, SI
loop:
	MOVL         0(R9), AX
	VMOVDQU32    (SI)(AX*1), Z1
	VPBROADCASTD 4(R9), Z2
	VPSRLVD      Z2, Z1, Z1
	VPANDD       Z3, Z1, Z1
	VPADDD       Z1, Z1, Z1
	VPORD        Z4, Z1, Z1
	VCVTDQ2PS    Z1, Z1
	VMULPS       Z1, Z0, Z1
	VMOVUPS      Z1, (DI)
	ADDQ         $64, DI
	ADDQ         $8, R9
	DECQ         CX
	JNZ          loop
	VZEROUPPER
	RET
