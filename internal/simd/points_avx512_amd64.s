#include "textflag.h"
#include "fetch_avx512_amd64.h"
#include "digits_avx512_amd64.h"

// One row by blocks with points of 8 weights, levels of 2 bits, and one sign for a group (IQ1_S), with AVX-512, VBMI
// and VNNI: points are gathered, and levels multiplied by the bytes of activations, high ones and low ones apart. A
// code is first + 8*level, and less more with the sign. As for other rows, panels at several places go by together.
//
//	BX       the block at the first place, R11 left
//	R8       activations of a block, R12 their scales; R14 Init, which R9 further belongs to the next block
//	SI       the block at a place, DX bytes from the first one; DI sums of its panel
//	R10      bytes of the block's activations: of four columns four high ones, of two fours each, and so the low ones;
//	         behind them, for each group, the sum with all levels 0 and what a sign adds
//	R13      points by number
//	AX, CX   free
//	Z0       the sums
//	Z1-Z5    free, Z10-Z12 likewise
//	Z6-Z9    integer sums: of high bytes and of low ones
//	Z15      odd numbers, scales by their bits and a sign's
//	Z16, Z17 shifts of levels, Z18 their mask
//	Z19      scales of the block
//	Z20      shifts of the high bits of points' numbers, Z22 their mask
//	Z23-Z26  places of the low bytes of a point's number
//	Z27-Z30  places of the high ones
//	Z31      1 in each 16-bit integer
//	K1       what is gathered, K2 signs
#define SUMS 512
#define LESS 544

DATA pointsHalves<>+0(SB)/8, $0x0f0b0d0907030501
DATA pointsHalves<>+8(SB)/8, $0x0e0a0c0806020400
GLOBL pointsHalves<>(SB), RODATA|NOPTR, $16

DATA pointsOdd<>+0(SB)/8, $0x404000003f800000
DATA pointsOdd<>+8(SB)/8, $0x40e0000040a00000
DATA pointsOdd<>+16(SB)/8, $0x4130000041100000
DATA pointsOdd<>+24(SB)/8, $0x4170000041500000
GLOBL pointsOdd<>(SB), RODATA|NOPTR, $32

DATA pointsLow<>+0(SB)/8, $0x8080800480808000
DATA pointsLow<>+8(SB)/8, $0x8080800c80808008
GLOBL pointsLow<>(SB), RODATA|NOPTR, $16

DATA pointsHigh<>+0(SB)/8, $0x8080048080800080
DATA pointsHigh<>+8(SB)/8, $0x80800c8080800880
GLOBL pointsHigh<>(SB), RODATA|NOPTR, $16

#define QUADS(n, z) \
	MOVQ         $n, AX; \
	VPBROADCASTQ AX, z

#define FETCH(i) \
	PREFETCHT0 (i*64+NEAR)(SI); \
	PREFETCHT1 (i*64+FAR)(SI)

// SPLIT prepares the activations of group i.
#define SPLIT(i) \
	VMOVDQU32     (64*i)(R8), Z1;     \
	VPMADDWD      Z31, Z1, Z2;        \
	VPSHUFB       Z21, Z1, Z1;        \
	VMOVDQU32     Z1, (64*i)(R10);    \
	VEXTRACTI64X4 $1, Z2, Y3;         \
	VPADDD        Y3, Y2, Y2;         \
	VEXTRACTI128  $1, Y2, X3;         \
	VPADDD        X3, X2, X2;         \
	VPSHUFD       $0x4e, X2, X3;      \
	VPADDD        X3, X2, X2;         \
	VPSHUFD       $0xb1, X2, X3;      \
	VPADDD        X3, X2, X2;         \
	VMOVD         X2, AX;             \
	MOVL          AX, CX;             \
	IMULL         first+96(FP), AX;  \
	ADDL          (4*i)(R14), AX;     \
	MOVL          AX, (SUMS+4*i)(R10); \
	IMULL         less+104(FP), CX;   \
	MOVL          CX, (LESS+4*i)(R10)

// LEVELS adds the products of four columns' levels with vector v of the block's codes.
#define LEVELS(shifts, v, high, low) \
	VPMULTISHIFTQB Z5, shifts, Z10;             \
	VPANDD        Z18, Z10, Z10;                \
	VPDPBUSD.BCST (v/2*16+v%2*4)(R10), Z10, high; \
	VPBROADCASTD  (v/2*16+v%2*4+8)(R10), Z11;   \
	VPDPBUSD      Z10, Z11, low

// POINT adds the products of a point of each row.
#define POINT(lows, highs, v) \
	VPSHUFB    lows, Z1, Z4;         \
	VPSHUFB    highs, Z3, Z5;        \
	VPORD      Z5, Z4, Z4;           \
	KXNORQ     K1, K1, K1;           \
	VPXORD     Z5, Z5, Z5;           \
	VPGATHERDD (R13)(Z4*2), K1, Z5;  \
	LEVELS(Z16, v, Z6, Z7);          \
	LEVELS(Z17, (v+1), Z8, Z9)

// GROUP adds those of group g, whose high bits, scale and sign HALF brings to the upper half of Z2.
#define GROUP(g, HALF) \
	VMOVDQU32 (64+64*g)(SI), Z1;           \
	VMOVDQU32 (64+512+g/2*64)(SI), Z2;     \
	HALF;                                  \
	VPMULTISHIFTQB Z2, Z20, Z3;            \
	VPANDD    Z22, Z3, Z3;                 \
	VPXORD    Z6, Z6, Z6;                  \
	VPXORD    Z7, Z7, Z7;                  \
	VPXORD    Z8, Z8, Z8;                  \
	VPXORD    Z9, Z9, Z9;                  \
	POINT(Z23, Z27, (8*g));                \
	POINT(Z24, Z28, (8*g+2));              \
	POINT(Z25, Z29, (8*g+4));              \
	POINT(Z26, Z30, (8*g+6));              \
	VPADDD    Z8, Z6, Z6;                  \
	VPADDD    Z9, Z7, Z7;                  \
	VPSLLD    $8, Z6, Z6;                  \
	VPADDD    Z7, Z6, Z6;                  \
	VPSLLD    $3, Z6, Z6;                  \
	VPMOVD2M  Z2, K2;                      \
	VPADDD.BCST (SUMS+4*g)(R10), Z6, Z6;   \
	VPADDD.BCST (LESS+4*g)(R10), Z6, K2, Z6; \
	VCVTDQ2PS Z6, Z6;                      \
	VMULPS.BCST (4*g)(R12), Z6, Z6;        \
	VPSRLD    $28, Z2, Z2;                 \
	VPERMPS   Z15, Z2, Z12;                \
	VMULPS    Z19, Z12, Z12;               \
	VFMADD231PS Z12, Z6, Z0

#define EVEN VPSLLD $16, Z2, Z2
#define ODD NOP

// func addPointsAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, step, gap, sumgap, end int, points *byte, unit float32, first, less int)
TEXT ·addPointsAVX512(SB), 0, $640-112
	BEGIN(640, R14)
	MOVQ points+80(FP), R13
	VBROADCASTI32X4 pointsHalves<>(SB), Z21
	VBROADCASTI64X4 pointsOdd<>(SB), Z15
	VBROADCASTI32X4 pointsLow<>(SB), Z23
	VBROADCASTI32X4 pointsHigh<>(SB), Z27
	MOVL   $0x00000001, AX
	VPBROADCASTD AX, Z2
	VPADDD Z2, Z23, Z24
	VPADDD Z2, Z24, Z25
	VPADDD Z2, Z25, Z26
	MOVL   $0x00000100, AX
	VPBROADCASTD AX, Z2
	VPADDD Z2, Z27, Z28
	VPADDD Z2, Z28, Z29
	VPADDD Z2, Z29, Z30
	MOVL   $0x00010001, AX
	VPBROADCASTD AX, Z31
	BYTES(3, Z18)
	BYTES(7, Z22)
	QUADS(0x2624222006040200, Z16)
	QUADS(0x2e2c2a280e0c0a08, Z17)
	QUADS(0x3936333019161310, Z20)
chunk:
	SPLITS
place:
	LEAQ        (BX)(DX*1), SI
	VMOVUPS     (DI), Z0
	VCVTPH2PS   (SI), Z19
	VMULPS.BCST unit+88(FP), Z19, Z19
	FETCH(0)
	FETCH(1)
	GROUP(0, EVEN)
	FETCH(2)
	FETCH(3)
	GROUP(1, ODD)
	FETCH(4)
	FETCH(5)
	GROUP(2, EVEN)
	FETCH(6)
	FETCH(7)
	GROUP(3, ODD)
	FETCH(8)
	FETCH(9)
	GROUP(4, EVEN)
	FETCH(10)
	FETCH(11)
	GROUP(5, ODD)
	FETCH(12)
	GROUP(6, EVEN)
	GROUP(7, ODD)
	NEXT(832, R14)
