#include "textflag.h"
#include "fetch_avx512_amd64.h"
#include "row_amd64.h"

// One row with AVX-512: chunks of panels as they are stored. Their planes become
// bytes and these 16-bit integers in registers; the scales are made where they are
// used, and nothing is called between chunks: all of that is time in which memory waits.
//
//	Z0       the sums
//	Z8-Z11   integer sums
//	Z16-Z20  free
//	Z21, Z22 what scales and minima that are bytes are multiplied by
//	Z28      bits of the other planes
//	Z29      the table
//	Z30, Z31 low halves of bytes, and low bytes of 16-bit integers or their low halves

// BYTES sets every byte of z, and WORDS every 16-bit integer.
#define BYTES(n, z) \
	MOVL         $(n*0x01010101), AX; \
	VPBROADCASTD AX, z

#define WORDS(n, z) \
	MOVL         $(n*0x00010001), AX; \
	VPBROADCASTD AX, z

#define ZERO(sum) VPXORD sum, sum, sum

// INIT begins the sum of group g of a unit. With zero points Init is for an offset of 128.
#define INIT(g, sum, dot) \
	ZERO(sum);                    \
	TESTQ R13, R13;               \
	JZ    dot;                    \
	VPBROADCASTD (4*g)(R13), sum; \
	CMPQ  R15, $48;               \
	JNE   dot;                    \
	VPSRAD    $7, sum, sum;       \
	VPMOVZXBD 32(R10)(DX*1), Z19; \
	VPMULLD   Z19, sum, sum;      \
dot:

// FLOATS adds the sum of group g of a unit's groups.
#define FLOATS(g, groups, sum, byte, min, none) \
	VCVTDQ2PS   sum, sum;               \
	VMULPS.BCST (R12), sum, sum;        \
	CMPQ  R15, $16;                     \
	JEQ   byte;                         \
	VCVTPH2PS   (32*g)(R10)(DX*1), Z19; \
	VFMADD231PS Z19, sum, Z0;           \
	TESTQ R14, R14;                     \
	JZ    none;                         \
	CMPQ  R15, $64;                     \
	JEQ   3(PC);                        \
	VCVTPH2PS   (256*groups+32*g)(R10)(DX*1), Z20; \
	JMP   min;                          \
	VCVTPH2PS   32(R10)(DX*1), Z20;     \
	JMP   min;                          \
byte:                                       \
	VCVTPH2PS   (BX)(DX*1), Z21;        \
	VPMOVSXBD   (16*g)(R10)(DX*1), Z19; \
	VCVTDQ2PS   Z19, Z19;               \
	VMULPS      Z21, Z19, Z19;          \
	VFMADD231PS Z19, sum, Z0;           \
	TESTQ R14, R14;                     \
	JZ    none;                         \
	VCVTPH2PS   32(BX)(DX*1), Z22;      \
	VPMOVSXBD   (128*groups+16*g)(R10)(DX*1), Z20; \
	VCVTDQ2PS   Z20, Z20;               \
	VMULPS      Z22, Z20, Z20;          \
min:                                        \
	VFMADD231PS.BCST (4*g)(R14), Z20, Z0; \
none:

// ALL is the four sums of a group of 32.
#define ALL \
	VPADDD Z9, Z8, Z8;    \
	VPADDD Z11, Z10, Z10; \
	VPADDD Z10, Z8, Z8

#define FETCH(i) \
	PREFETCHT0 (i*64)(R9)(DX*1); \
	PREFETCHT1 (i*64+FAR-NEAR)(R9)(DX*1)

// CODES loads vector i of a unit's planes.
#define CODES(i, z) VMOVDQU32 (i*64)(SI)(DX*1), z

// NIBBLES adds the products of vector i of a unit's plane of four bits, which hold
// vectors i and i+4 of its codes.
#define NIBBLES(i) \
	FETCH(i);                             \
	CODES(i, Z16);                        \
	VPANDD     Z31, Z16, Z17;             \
	VPSRLW     $8, Z16, Z18;              \
	VPSRLW     $4, Z16, Z19;              \
	VPSRLW     $12, Z16, Z20;             \
	VPANDD     Z31, Z18, Z18;             \
	VPANDD     Z31, Z19, Z19;             \
	VPDPWSSD.BCST (i*8)(R8), Z17, Z8;     \
	VPDPWSSD.BCST (i*8+4)(R8), Z18, Z9;   \
	VPDPWSSD.BCST (i*8+32)(R8), Z19, Z10; \
	VPDPWSSD.BCST (i*8+36)(R8), Z20, Z11

// MULTIPLY adds the products of vector j of a unit's codes.
#define MULTIPLY(j, codes, a, b) \
	VPANDD     Z31, codes, Z17;         \
	VPSRLW     $8, codes, Z18;          \
	VPDPWSSD.BCST (j*8)(R8), Z17, a;    \
	VPDPWSSD.BCST (j*8+4)(R8), Z18, b

// FOUR makes bytes of vector i of the plane of four bits.
#define FOUR(i) \
	FETCH(i);                   \
	CODES(i, Z16);  \
	VPANDD    Z30, Z16, Z4;     \
	VPSRLW    $4, Z16, Z5;      \
	VPANDD    Z30, Z5, Z5

#define BOTH(i) \
	MULTIPLY(i, Z4, Z8, Z9);    \
	MULTIPLY((i+4), Z5, Z10, Z11)

// HIGH adds bits of another plane to the bytes a, shifted there by OP.
#define HIGH(OP, n, bits, a) \
	OP         $n, bits, Z17; \
	VPTERNLOGD $0xf8, Z28, Z17, a

TEXT addRow4AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	WORDS(15, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	NIBBLES(0)
	NIBBLES(1)
	NIBBLES(2)
	NIBBLES(3)
	FETCH(4)
	ALL
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(256, 5, 1)

TEXT addRowTableAVX512<>(SB), NOSPLIT, $0-128
	HEAD
	MOVQ table+80(FP), AX
	VBROADCASTI32X4 (AX), Z29
	BYTES(15, Z30)
	WORDS(255, Z31)

#define LOOKUP(i) \
	FOUR(i);              \
	VPSHUFB Z4, Z29, Z4;  \
	VPSHUFB Z5, Z29, Z5;  \
	BOTH(i)

chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	LOOKUP(0)
	LOOKUP(1)
	LOOKUP(2)
	LOOKUP(3)
	FETCH(4)
	ALL
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(256, 5, 1)

// addRowBrain has scales in bfloat16.
TEXT addRowBrainAVX512<>(SB), NOSPLIT, $0-128
	HEAD
	MOVQ table+80(FP), AX
	VBROADCASTI32X4 (AX), Z29
	BYTES(15, Z30)
	WORDS(255, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	LOOKUP(0)
	LOOKUP(1)
	LOOKUP(2)
	LOOKUP(3)
	FETCH(4)
	ALL
	VCVTDQ2PS   Z8, Z8
	VMULPS.BCST (R12), Z8, Z8
	VPMOVZXWD   (R10)(DX*1), Z19
	VPSLLD      $16, Z19, Z19
	VFMADD231PS Z19, Z8, Z0
	VMOVUPS Z0, (DI)
	NEXT(256, 5, 1)

// SMALL adds the sum of group g of a unit's two, with scales of 8 bits times the factors behind the table, which AX
// points to: as loadE4M3Vec, Scale and Divide make them. 1 divides nothing.
#define SMALL(g, sum, whole) \
	VCVTDQ2PS   sum, sum;               \
	VMULPS.BCST (R12), sum, sum;        \
	VPMOVZXBW   (16*g-32)(R10)(DX*1), Y19; \
	VPCMPW      $4, Y26, Y19, K1;       \
	VPANDD      Y26, Y19, Y19;          \
	VPSLLW.Z    $7, Y19, K1, Y19;       \
	VCVTPH2PS   Y19, Z19;               \
	VMULPS      Z27, Z19, Z19;          \
	VMULPS.BCST 16(AX), Z19, Z19;       \
	CMPL        20(AX), $0x3f800000;    \
	JEQ         whole;                  \
	VDIVPS.BCST 20(AX), Z19, Z19;       \
whole:                                      \
	VFMADD231PS Z19, sum, Z0

// addRowSmall has groups of 16 and scales of 8 bits.
TEXT addRowSmallAVX512<>(SB), NOSPLIT, $0-128
	HEAD
	WORDS(127, Z26)
	MOVL $0x43000000, AX // 128
	VPBROADCASTD AX, Z27
	BYTES(15, Z30)
	WORDS(255, Z31)
	MOVQ table+80(FP), AX
	VBROADCASTI32X4 (AX), Z29
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, low)
	INIT(1, Z10, high)
	ZERO(Z9)
	ZERO(Z11)
	LOOKUP(0)
	LOOKUP(1)
	LOOKUP(2)
	LOOKUP(3)
	FETCH(4)
	VPADDD Z9, Z8, Z8
	VPADDD Z11, Z10, Z10
	SMALL(0, Z8, whole0)
	SMALL(1, Z10, whole1)
	VMOVUPS Z0, (DI)
	NEXT(256, 5, 2)

TEXT addRow41AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	BYTES(16, Z28)
	BYTES(15, Z30)
	WORDS(255, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	CODES(4, Z1)
	FOUR(0)
	HIGH(VPSLLW, 4, Z1, Z4)
	VPTERNLOGD $0xf8, Z28, Z1, Z5
	BOTH(0)
	FOUR(1)
	HIGH(VPSLLW, 3, Z1, Z4)
	HIGH(VPSRLW, 1, Z1, Z5)
	BOTH(1)
	FOUR(2)
	HIGH(VPSLLW, 2, Z1, Z4)
	HIGH(VPSRLW, 2, Z1, Z5)
	BOTH(2)
	FOUR(3)
	HIGH(VPSLLW, 1, Z1, Z4)
	HIGH(VPSRLW, 3, Z1, Z5)
	BOTH(3)
	FETCH(4)
	FETCH(5)
	ALL
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(320, 6, 1)

// SIX adds the products of a unit's codes of six bits.
#define SIX \
	CODES(4, Z1);                  \
	CODES(5, Z2);                  \
	FOUR(0);                       \
	HIGH(VPSLLW, 4, Z1, Z4);       \
	VPTERNLOGD $0xf8, Z28, Z1, Z5; \
	BOTH(0);                       \
	FOUR(1);                       \
	HIGH(VPSLLW, 4, Z2, Z4);       \
	VPTERNLOGD $0xf8, Z28, Z2, Z5; \
	BOTH(1);                       \
	FOUR(2);                       \
	HIGH(VPSLLW, 2, Z1, Z4);       \
	HIGH(VPSRLW, 2, Z1, Z5);       \
	BOTH(2);                       \
	FOUR(3);                       \
	HIGH(VPSLLW, 2, Z2, Z4);       \
	HIGH(VPSRLW, 2, Z2, Z5);       \
	BOTH(3);                       \
	FETCH(4);                      \
	FETCH(5);                      \
	FETCH(6)

#define MASKS42 \
	BYTES(48, Z28); \
	BYTES(15, Z30); \
	WORDS(255, Z31)

TEXT addRow42AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	MASKS42
	CMPQ R15, $16
	JEQ  2(PC)
	JMP  addRow6AVX512<>(SB)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, low)
	INIT(1, Z10, high)
	ZERO(Z9)
	ZERO(Z11)
	SIX
	VPADDD Z9, Z8, Z8
	VPADDD Z11, Z10, Z10
	FLOATS(0, 2, Z8, byte0, min0, none0)
	FLOATS(1, 2, Z10, byte1, min1, none1)
	VMOVUPS Z0, (DI)
	NEXT(384, 7, 2)

// addRow6 goes on for groups of 32.
TEXT addRow6AVX512<>(SB), NOSPLIT, $0-128
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	SIX
	ALL
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(384, 7, 1)

// EIGHT adds the products of vector j of a unit.
#define EIGHT(j, a, b) \
	FETCH(j);                  \
	CODES(j, Z16); \
	MULTIPLY(j, Z16, a, b)

TEXT addRow8AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	WORDS(255, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	EIGHT(0, Z8, Z9)
	EIGHT(1, Z10, Z11)
	EIGHT(2, Z8, Z9)
	EIGHT(3, Z10, Z11)
	EIGHT(4, Z8, Z9)
	EIGHT(5, Z10, Z11)
	EIGHT(6, Z8, Z9)
	EIGHT(7, Z10, Z11)
	FETCH(8)
	ALL
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(512, 9, 1)

// PLACED adds to sum the products of vector j of a unit, whose codes are in Z16 and Z17 at a mask's place.
#define PLACED(j, mask, sum) \
	VPANDD        mask, Z16, Z18;         \
	VPANDD        mask, Z17, Z19;         \
	VPDPWSSD.BCST (j*8)(R8), Z18, sum;    \
	VPDPWSSD.BCST (j*8+4)(R8), Z19, sum

// LOWER adds a sum of products to another, n bits lower.
#define LOWER(n, a, sum) \
	VPSRAD $n, a, a; \
	VPADDD a, sum, sum

TEXT addRow2AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	WORDS(3, Z28)
	WORDS(12, Z29)
	WORDS(48, Z30)
	WORDS(192, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	FETCH(0)
	CODES(0, Z16)
	VPSRLW $8, Z16, Z17
	PLACED(0, Z28, Z8)
	PLACED(2, Z29, Z9)
	PLACED(4, Z30, Z10)
	PLACED(6, Z31, Z11)
	FETCH(1)
	CODES(1, Z16)
	VPSRLW $8, Z16, Z17
	PLACED(1, Z28, Z8)
	PLACED(3, Z29, Z9)
	PLACED(5, Z30, Z10)
	PLACED(7, Z31, Z11)
	FETCH(2)
	LOWER(2, Z9, Z8)
	LOWER(4, Z10, Z8)
	LOWER(6, Z11, Z8)
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(128, 3, 1)

// THREE adds the products of vector j of a unit, whose codes have two bits in a plane from bit n on, and one in Z1,
// shifted there by OP.
#define THREE(j, n, plane, OP, m, a, b) \
	VPSRLW     $n, plane, Z4;       \
	VPANDD     Z30, Z4, Z4;         \
	HIGH(OP, m, Z1, Z4);            \
	MULTIPLY(j, Z4, a, b)

TEXT addRow21AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	BYTES(4, Z28)
	BYTES(3, Z30)
	WORDS(255, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	INIT(0, Z8, dot)
	ZERO(Z9)
	ZERO(Z10)
	ZERO(Z11)
	FETCH(0)
	CODES(0, Z2)
	FETCH(1)
	CODES(1, Z3)
	FETCH(2)
	CODES(2, Z1)
	FETCH(3)
	THREE(0, 0, Z2, VPSLLW, 2, Z8, Z9)
	THREE(1, 0, Z3, VPSLLW, 1, Z10, Z11)
	THREE(2, 2, Z2, VPSRLW, 0, Z8, Z9)
	THREE(3, 2, Z3, VPSRLW, 1, Z10, Z11)
	THREE(4, 4, Z2, VPSRLW, 2, Z8, Z9)
	THREE(5, 4, Z3, VPSRLW, 3, Z10, Z11)
	THREE(6, 6, Z2, VPSRLW, 4, Z8, Z9)
	THREE(7, 6, Z3, VPSRLW, 5, Z10, Z11)
	ALL
	FLOATS(0, 1, Z8, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(192, 4, 1)

TEXT addRow1AVX512<>(SB), NOSPLIT, $0-128
	HEAD
	WORDS(1, Z24)
	WORDS(2, Z25)
	WORDS(4, Z26)
	WORDS(8, Z27)
	WORDS(16, Z28)
	WORDS(32, Z29)
	WORDS(64, Z30)
	WORDS(128, Z31)
chunk:
	CHUNK
unit:
	UNIT
place:
	VMOVUPS (DI), Z0
	ZERO(Z1)
	ZERO(Z3)
	ZERO(Z4)
	ZERO(Z5)
	ZERO(Z6)
	ZERO(Z7)
	ZERO(Z8)
	INIT(0, Z2, dot)
	FETCH(0)
	CODES(0, Z16)
	VPSRLW $8, Z16, Z17
	PLACED(0, Z24, Z1)
	PLACED(1, Z25, Z2)
	PLACED(2, Z26, Z3)
	PLACED(3, Z27, Z4)
	PLACED(4, Z28, Z5)
	PLACED(5, Z29, Z6)
	PLACED(6, Z30, Z7)
	PLACED(7, Z31, Z8)
	FETCH(1)
	VPADDD Z1, Z1, Z1
	VPADDD Z1, Z2, Z2
	LOWER(1, Z3, Z2)
	LOWER(2, Z4, Z2)
	LOWER(3, Z5, Z2)
	LOWER(4, Z6, Z2)
	LOWER(5, Z7, Z2)
	LOWER(6, Z8, Z2)
	FLOATS(0, 1, Z2, byte, min, none)
	VMOVUPS Z0, (DI)
	NEXT(64, 2, 1)

// func addRowAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end, codes, mask int)
TEXT ·addRowAVX512(SB), NOSPLIT, $0-128
	BY_CODES(addRow4AVX512<>, addRowTableAVX512<>, addRow41AVX512<>, addRow42AVX512<>, addRow21AVX512<>, addRow2AVX512<>, addRow1AVX512<>, addRowBrainAVX512<>, addRowSmallAVX512<>, addRow8AVX512<>)
