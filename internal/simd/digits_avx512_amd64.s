#include "textflag.h"
#include "fetch_avx512_amd64.h"
#include "digits_avx512_amd64.h"

// One row by blocks of digits to the base of 3, with AVX-512, VBMI and VNNI. Tables give a byte's digits as bit
// fields of two bytes, and the fields are multiplied where they are by the bytes of activations, high ones and low
// ones apart. As for other rows, panels at several places go by together.
//
//	BX       the block at the first place, R11 left
//	R8       activations of a block, R12 their scales; R13 Init, which R9 further belongs to the next block
//	SI       the block at a place, DX bytes from the first one; DI sums of its panel
//	R10      bytes of the block's activations: of four columns four high ones, of two fours each, and so the low ones
//	Z0       the sums
//	Z1-Z4    digits
//	Z5, Z16  free
//	Z6-Z15   integer sums, by digits: of high bytes and of low ones
//	Z19      scales
//	Z20-Z22  masks of the fields
//	Z23      the order of activations
//	Z24-Z31  the tables
//	K1       bytes from 128 on

DATA halves<>+0(SB)/8, $0x0f0b0d0907030501
DATA halves<>+8(SB)/8, $0x0e0a0c0806020400
GLOBL halves<>(SB), RODATA|NOPTR, $16

#define ZERO(sum) VPXORD sum, sum, sum

#define FETCH(i) \
	PREFETCHT0 (i*64+NEAR)(SI); \
	PREFETCHT1 (i*64+FAR)(SI)

// TABLES looks up the digits of vector i of a block: three in Z1, two in Z3.
#define TABLES(i) \
	FETCH(i);                    \
	VMOVDQU32 (64+i*64)(SI), Z1; \
	VMOVDQA32 Z1, Z2;            \
	VMOVDQA32 Z1, Z3;            \
	VMOVDQA32 Z1, Z4;            \
	VPMOVB2M  Z1, K1;            \
	VPERMI2B  Z25, Z24, Z1;      \
	VPERMI2B  Z27, Z26, Z2;      \
	VPERMI2B  Z29, Z28, Z3;      \
	VPERMI2B  Z31, Z30, Z4;      \
	VMOVDQU8  Z2, K1, Z1;        \
	VMOVDQU8  Z4, K1, Z3

// FIELD adds the products of codes in a field with vector v of the block's codes.
#define FIELD(mask, digits, v, high, low) \
	VPANDD        mask, digits, Z5;                \
	VPDPBUSD.BCST (v/2*16+v%2*4)(R10), Z5, high;   \
	VPBROADCASTD  (v/2*16+v%2*4+8)(R10), Z16;      \
	VPDPBUSD      Z5, Z16, low

// FIVE adds the products of five digits, whose vectors of codes are n apart.
#define FIVE(i, v, n) \
	TABLES(i);                               \
	FIELD(Z20, Z1, v, Z6, Z7);               \
	FIELD(Z21, Z1, (v+n), Z8, Z9);           \
	FIELD(Z22, Z1, (v+2*n), Z10, Z11);       \
	FIELD(Z20, Z3, (v+3*n), Z12, Z13);       \
	FIELD(Z21, Z3, (v+4*n), Z14, Z15)

#define ZEROS \
	ZERO(Z6); ZERO(Z7); ZERO(Z8); ZERO(Z9); ZERO(Z10); ZERO(Z11); ZERO(Z12); ZERO(Z13); ZERO(Z14); ZERO(Z15)

// JOINED makes the sum of products of high and low bytes.
#define JOINED(high, low) \
	VPSLLD $8, high, high; \
	VPADDD low, high, high

#define LOWERED(n, high, low) \
	JOINED(high, low); \
	VPSRAD $n, high, high

// FLOATS adds the sum of group g.
#define FLOATS(g, sum) \
	VPADDD.BCST (4*g)(R13), sum, sum; \
	VCVTDQ2PS   sum, sum;             \
	VMULPS.BCST (4*g)(R12), sum, sum; \
	VFMADD231PS Z19, sum, Z0

#define SPLIT(i) \
	VMOVDQU32 (64*i)(R8), Z1; \
	VPSHUFB   Z23, Z1, Z1;    \
	VMOVDQU32 Z1, (64*i)(R10)

// func addDigitsAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, step, gap, sumgap, end int, table *byte)
TEXT ·addDigitsAVX512(SB), 0, $576-88
	BEGIN(576, R13)
	MOVQ table+80(FP), AX
	VMOVDQU32 (AX), Z24
	VMOVDQU32 64(AX), Z25
	VMOVDQU32 128(AX), Z26
	VMOVDQU32 192(AX), Z27
	VMOVDQU32 256(AX), Z28
	VMOVDQU32 320(AX), Z29
	VMOVDQU32 384(AX), Z30
	VMOVDQU32 448(AX), Z31
	VBROADCASTI32X4 halves<>(SB), Z23
	BYTES(3, Z20)
	BYTES(12, Z21)
	BYTES(48, Z22)
chunk:
	SPLITS
place:
	LEAQ      (BX)(DX*1), SI
	VMOVUPS   (DI), Z0
	VCVTPH2PS (SI), Z19
	ZEROS
	FIVE(0, 0, 8)
	FIVE(1, 1, 8)
	FIVE(2, 2, 8)
	FIVE(3, 3, 8)
	FIVE(4, 4, 8)
	FIVE(5, 5, 8)
	FIVE(6, 6, 8)
	FIVE(7, 7, 8)
	JOINED(Z6, Z7)
	LOWERED(2, Z8, Z9)
	LOWERED(4, Z10, Z11)
	JOINED(Z12, Z13)
	LOWERED(2, Z14, Z15)
	FLOATS(0, Z6)
	FLOATS(1, Z8)
	FLOATS(2, Z10)
	FLOATS(3, Z12)
	FLOATS(4, Z14)
	ZEROS
	FIVE(8, 40, 4)
	FIVE(9, 41, 4)
	FIVE(10, 42, 4)
	FIVE(11, 43, 4)
	JOINED(Z6, Z7)
	LOWERED(2, Z8, Z9)
	LOWERED(4, Z10, Z11)
	JOINED(Z12, Z13)
	VPADDD Z8, Z6, Z6
	VPADDD Z12, Z10, Z10
	FLOATS(5, Z6)
	FLOATS(6, Z10)
	ZERO(Z6)
	ZERO(Z7)
	ZERO(Z10)
	ZERO(Z11)
	TABLES(12)
	FIELD(Z20, Z1, 60, Z6, Z7)
	FIELD(Z21, Z1, 61, Z14, Z15)
	FIELD(Z22, Z1, 62, Z10, Z11)
	FIELD(Z20, Z3, 63, Z6, Z7)
	FETCH(13)
	JOINED(Z6, Z7)
	LOWERED(2, Z14, Z15)
	LOWERED(4, Z10, Z11)
	VPADDD Z14, Z6, Z6
	VPADDD Z10, Z6, Z6
	FLOATS(7, Z6)
	NEXT(896, R13)
