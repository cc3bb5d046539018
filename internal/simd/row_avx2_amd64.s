#include "textflag.h"
#include "tier_amd64.h"
#include "row_amd64.h"

// One row with AVX2: chunks of panels as they are stored. Their planes become 16-bit
// integers in registers, and the scales are made where they are used.
//
//	Y2-Y7    integer sums of a panel's first eight rows and of the others, in pairs
//	Y8-Y12   free, Y9 and Y10 codes
//	Y13-Y15  masks, or a table

// NEAR is how many bytes before its use memory at several places is fetched.
#define NEAR 1024

// EACH sets every 32-bit integer of y.
#define EACH(n, x, y) \
	MOVL         $n, AX; \
	VMOVD        AX, x;  \
	VPBROADCASTD x, y

#define ZERO(a, b) \
	VPXOR a, a, a; \
	VPXOR b, b, b

// INIT begins the sums of group g of a unit. With zero points Init is for an offset of 128.
#define INIT(g, a, b, dot) \
	ZERO(a, b);                 \
	TESTQ R13, R13;             \
	JZ    dot;                  \
	VPBROADCASTD (4*g)(R13), a; \
	VMOVDQA a, b;               \
	CMPQ  R15, $48;             \
	JNE   dot;                  \
	VPSRAD    $7, a, a;         \
	VPMOVZXBD 40(R10)(DX*1), Y9; \
	VPMULLD   Y9, a, b;         \
	VPMOVZXBD 32(R10)(DX*1), Y9; \
	VPMULLD   Y9, a, a;         \
dot:

// SCALES makes scales or minima that are bytes: d is where their factors are.
#define SCALES(d, at) \
	VPMOVSXBD (at)(R10)(DX*1), Y9;    \
	VPMOVSXBD (at+8)(R10)(DX*1), Y10; \
	VCVTPH2PS (d)(BX)(DX*1), Y11;     \
	VCVTPH2PS (d+16)(BX)(DX*1), Y12;  \
	VCVTDQ2PS Y9, Y9;                 \
	VCVTDQ2PS Y10, Y10;               \
	VMULPS    Y11, Y9, Y9;            \
	VMULPS    Y12, Y10, Y10

// FLOATS adds the sums of group g of a unit's groups.
#define FLOATS(g, groups, a, b, byte, min, none) \
	VCVTDQ2PS    a, a;             \
	VCVTDQ2PS    b, b;             \
	VBROADCASTSS (R12), Y8;        \
	VMULPS       Y8, a, a;         \
	VMULPS       Y8, b, b;         \
	CMPQ  R15, $16;                \
	JEQ   byte;                    \
	VCVTPH2PS    (32*g)(R10)(DX*1), Y9;     \
	VCVTPH2PS    (32*g+16)(R10)(DX*1), Y10; \
	VFMADD213PS  (DI), Y9, a;      \
	VFMADD213PS  32(DI), Y10, b;   \
	TESTQ R14, R14;                \
	JZ    none;                    \
	CMPQ  R15, $64;                \
	JEQ   4(PC);                   \
	VCVTPH2PS    (256*groups+32*g)(R10)(DX*1), Y9;     \
	VCVTPH2PS    (256*groups+32*g+16)(R10)(DX*1), Y10; \
	JMP   min;                     \
	VCVTPH2PS    32(R10)(DX*1), Y9;  \
	VCVTPH2PS    48(R10)(DX*1), Y10; \
	JMP   min;                     \
byte:                                  \
	SCALES(0, 16*g);               \
	VFMADD213PS  (DI), Y9, a;      \
	VFMADD213PS  32(DI), Y10, b;   \
	TESTQ R14, R14;                \
	JZ    none;                    \
	SCALES(32, 128*groups+16*g);   \
min:                                   \
	VBROADCASTSS (4*g)(R14), Y8;   \
	VFMADD231PS  Y9, Y8, a;        \
	VFMADD231PS  Y10, Y8, b;       \
none:                                  \
	VMOVUPS a, (DI);               \
	VMOVUPS b, 32(DI)

#define FETCH(i) PREFETCHT0 (i*64)(R9)(DX*1)

// DOT adds the products of 16-bit integers of all rows with two activations.
#define DOT(at, u, v, a, b) \
	VPBROADCASTD (at)(R8), Y8; \
	VPMADDWD     Y8, u, u;     \
	VPMADDWD     Y8, v, v;     \
	VPADDD       u, a, a;      \
	VPADDD       v, b, b

// MASKED does so with what a mask has of Y9 and Y10.
#define MASKED(mask, at, a, b) \
	VPAND mask, Y9, Y11;  \
	VPAND mask, Y10, Y12; \
	DOT(at, Y11, Y12, a, b)

// SHIFTED does so with their upper bits.
#define SHIFTED(n, at, a, b) \
	VPSRLW $n, Y9, Y9;   \
	VPSRLW $n, Y10, Y10; \
	DOT(at, Y9, Y10, a, b)

// NIBBLES adds the products of vector i of a unit's plane of four bits, which hold
// vectors i and i+4 of its codes: where they lie, times 16 and 256, which a sum has room for.
#define NIBBLES(i) \
	FETCH(i);                         \
	VMOVDQU (i*64)(SI)(DX*1), Y9;           \
	VMOVDQU (i*64+32)(SI)(DX*1), Y10;       \
	MASKED(Y13, (i*8), Y2, Y3);       \
	MASKED(Y14, (i*8+32), Y4, Y5);    \
	MASKED(Y15, (i*8+4), Y6, Y7);     \
	SHIFTED(12, (i*8+36), Y2, Y3)

TEXT addRow4AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x000f000f, X13, Y13)
	EACH(0x00f000f0, X14, Y14)
	EACH(0x0f000f00, X15, Y15)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	ZERO(Y4, Y5)
	ZERO(Y6, Y7)
	NIBBLES(0)
	NIBBLES(1)
	NIBBLES(2)
	NIBBLES(3)
	FETCH(4)
	VPSRAD $4, Y4, Y4
	VPSRAD $4, Y5, Y5
	VPSRAD $8, Y6, Y6
	VPSRAD $8, Y7, Y7
	VPADDD Y4, Y2, Y2
	VPADDD Y5, Y3, Y3
	VPADDD Y6, Y2, Y2
	VPADDD Y7, Y3, Y3
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(256, 5, 1)

// BYTES adds the products of vector j of a unit, whose codes are the bytes of Y9 and Y10.
#define BYTES(j, a, b) \
	MASKED(Y13, (j*8), a, b); \
	SHIFTED(8, (j*8+4), a, b)

// LOW makes them of vector i of the plane of four bits, those of vector i of the unit,
// and UPPER of vector i+4.
#define LOW(i) \
	VPAND (i*64)(SI)(DX*1), Y14, Y9; \
	VPAND (i*64+32)(SI)(DX*1), Y14, Y10

#define UPPER(i) \
	VMOVDQU (i*64)(SI)(DX*1), Y9;     \
	VMOVDQU (i*64+32)(SI)(DX*1), Y10; \
	VPSRLW  $4, Y9, Y9;               \
	VPSRLW  $4, Y10, Y10;             \
	VPAND   Y14, Y9, Y9;              \
	VPAND   Y14, Y10, Y10

#define LOOKUP \
	VPSHUFB Y9, Y15, Y9; \
	VPSHUFB Y10, Y15, Y10

#define LOOKUPS(i) \
	FETCH(i);               \
	LOW(i);                 \
	LOOKUP;                 \
	BYTES(i, Y2, Y3);       \
	UPPER(i);               \
	LOOKUP;                 \
	BYTES((i+4), Y4, Y5)

TEXT addRowTableAVX2<>(SB), NOSPLIT, $0-128
	HEAD
	MOVQ table+80(FP), AX
	VBROADCASTI128 (AX), Y15
	EACH(0x0f0f0f0f, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	ZERO(Y4, Y5)
	LOOKUPS(0)
	LOOKUPS(1)
	LOOKUPS(2)
	LOOKUPS(3)
	FETCH(4)
	VPADDD Y4, Y2, Y2
	VPADDD Y5, Y3, Y3
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(256, 5, 1)

// addRowBrain has scales in bfloat16.
TEXT addRowBrainAVX2<>(SB), NOSPLIT, $0-128
	HEAD
	MOVQ table+80(FP), AX
	VBROADCASTI128 (AX), Y15
	EACH(0x0f0f0f0f, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	ZERO(Y4, Y5)
	LOOKUPS(0)
	LOOKUPS(1)
	LOOKUPS(2)
	LOOKUPS(3)
	FETCH(4)
	VPADDD Y4, Y2, Y2
	VPADDD Y5, Y3, Y3
	VCVTDQ2PS    Y2, Y2
	VCVTDQ2PS    Y3, Y3
	VBROADCASTSS (R12), Y8
	VMULPS       Y8, Y2, Y2
	VMULPS       Y8, Y3, Y3
	VPMOVZXWD    (R10)(DX*1), Y9
	VPMOVZXWD    16(R10)(DX*1), Y10
	VPSLLD       $16, Y9, Y9
	VPSLLD       $16, Y10, Y10
	VFMADD213PS  (DI), Y9, Y2
	VFMADD213PS  32(DI), Y10, Y3
	VMOVUPS      Y2, (DI)
	VMOVUPS      Y3, 32(DI)
	NEXT(256, 5, 1)

// SMALL adds the sums of group g of a unit's two, with scales of 8 bits times the factors in Y6 and Y7: as loadE4M3Vec,
// Scale and Divide make them.
#define SMALL(g, a, b) \
	VCVTDQ2PS    a, a;               \
	VCVTDQ2PS    b, b;               \
	VBROADCASTSS (R12), Y8;          \
	VMULPS       Y8, a, a;           \
	VMULPS       Y8, b, b;           \
	VPMOVZXBW    (16*g-32)(R10)(DX*1), Y9; \
	VPCMPEQW     Y0, Y9, Y10;        \
	VPAND        Y0, Y9, Y9;         \
	VPANDN       Y9, Y10, Y9;        \
	VPSLLW       $7, Y9, Y9;         \
	VEXTRACTI128 $1, Y9, X10;        \
	VCVTPH2PS    X9, Y11;            \
	VCVTPH2PS    X10, Y12;           \
	VMULPS       Y1, Y11, Y11;       \
	VMULPS       Y1, Y12, Y12;       \
	VMULPS       Y6, Y11, Y11;       \
	VMULPS       Y6, Y12, Y12;       \
	VDIVPS       Y7, Y11, Y11;       \
	VDIVPS       Y7, Y12, Y12;       \
	VFMADD213PS  (DI), Y11, a;       \
	VFMADD213PS  32(DI), Y12, b;     \
	VMOVUPS      a, (DI);            \
	VMOVUPS      b, 32(DI)

// addRowSmall has groups of 16 and scales of 8 bits.
TEXT addRowSmallAVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x007f007f, X0, Y0)
	EACH(0x43000000, X1, Y1) // 128
	EACH(0x0f0f0f0f, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
	MOVQ table+80(FP), AX
	VBROADCASTI128 (AX), Y15
	VBROADCASTSS 16(AX), Y6
	VBROADCASTSS 20(AX), Y7
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, low)
	INIT(1, Y4, Y5, high)
	LOOKUPS(0)
	LOOKUPS(1)
	LOOKUPS(2)
	LOOKUPS(3)
	FETCH(4)
	SMALL(0, Y2, Y3)
	SMALL(1, Y4, Y5)
	NEXT(256, 5, 2)

// PLANE loads vector i of a unit's planes.
#define PLANE(i, u, v) \
	VMOVDQU (i*64)(SI)(DX*1), u; \
	VMOVDQU (i*64+32)(SI)(DX*1), v

// HIGH adds bits of another plane to the codes, shifted there by OP, and SAME without.
#define HIGH(OP, n, u, v) \
	OP    $n, u, Y11; \
	OP    $n, v, Y12; \
	SAME(Y11, Y12)

#define SAME(u, v) \
	VPAND Y15, u, Y11; \
	VPAND Y15, v, Y12; \
	VPOR  Y11, Y9, Y9; \
	VPOR  Y12, Y10, Y10

TEXT addRow41AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x10101010, X15, Y15)
	EACH(0x0f0f0f0f, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	ZERO(Y4, Y5)
	PLANE(4, Y0, Y1)
	FETCH(0)
	LOW(0)
	HIGH(VPSLLW, 4, Y0, Y1)
	BYTES(0, Y2, Y3)
	UPPER(0)
	SAME(Y0, Y1)
	BYTES(4, Y4, Y5)
	FETCH(1)
	LOW(1)
	HIGH(VPSLLW, 3, Y0, Y1)
	BYTES(1, Y2, Y3)
	UPPER(1)
	HIGH(VPSRLW, 1, Y0, Y1)
	BYTES(5, Y4, Y5)
	FETCH(2)
	LOW(2)
	HIGH(VPSLLW, 2, Y0, Y1)
	BYTES(2, Y2, Y3)
	UPPER(2)
	HIGH(VPSRLW, 2, Y0, Y1)
	BYTES(6, Y4, Y5)
	FETCH(3)
	LOW(3)
	HIGH(VPSLLW, 1, Y0, Y1)
	BYTES(3, Y2, Y3)
	UPPER(3)
	HIGH(VPSRLW, 3, Y0, Y1)
	BYTES(7, Y4, Y5)
	FETCH(4)
	FETCH(5)
	VPADDD Y4, Y2, Y2
	VPADDD Y5, Y3, Y3
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(320, 6, 1)

// SIX adds the products of a unit's codes of six bits.
#define SIX \
	PLANE(4, Y0, Y1); \
	PLANE(5, Y6, Y7); \
	FETCH(0); \
	LOW(0); \
	HIGH(VPSLLW, 4, Y0, Y1); \
	BYTES(0, Y2, Y3); \
	UPPER(0); \
	SAME(Y0, Y1); \
	BYTES(4, Y4, Y5); \
	FETCH(1); \
	LOW(1); \
	HIGH(VPSLLW, 4, Y6, Y7); \
	BYTES(1, Y2, Y3); \
	UPPER(1); \
	SAME(Y6, Y7); \
	BYTES(5, Y4, Y5); \
	FETCH(2); \
	LOW(2); \
	HIGH(VPSLLW, 2, Y0, Y1); \
	BYTES(2, Y2, Y3); \
	UPPER(2); \
	HIGH(VPSRLW, 2, Y0, Y1); \
	BYTES(6, Y4, Y5); \
	FETCH(3); \
	LOW(3); \
	HIGH(VPSLLW, 2, Y6, Y7); \
	BYTES(3, Y2, Y3); \
	UPPER(3); \
	HIGH(VPSRLW, 2, Y6, Y7); \
	BYTES(7, Y4, Y5); \
	FETCH(4); \
	FETCH(5); \
	FETCH(6)

#define MASKS42 \
	EACH(0x30303030, X15, Y15); \
	EACH(0x0f0f0f0f, X14, Y14); \
	EACH(0x00ff00ff, X13, Y13)

TEXT addRow42AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	MASKS42
	CMPQ R15, $16
	JEQ  2(PC)
	JMP  addRow6AVX2<>(SB)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, low)
	INIT(1, Y4, Y5, high)
	SIX
	FLOATS(0, 2, Y2, Y3, byte0, min0, none0)
	FLOATS(1, 2, Y4, Y5, byte1, min1, none1)
	NEXT(384, 7, 2)

// addRow6 goes on for groups of 32.
TEXT addRow6AVX2<>(SB), NOSPLIT, $0-128
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	ZERO(Y4, Y5)
	SIX
	VPADDD Y4, Y2, Y2
	VPADDD Y5, Y3, Y3
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(384, 7, 1)

// THREE adds the products of vector j of a unit, whose codes have two bits in a plane from bit n on, and one in Y0 and
// Y1, shifted there by OP.
#define THREE(j, n, u, v, OP, m) \
	VPSRLW $n, u, Y9;     \
	VPSRLW $n, v, Y10;    \
	VPAND  Y14, Y9, Y9;   \
	VPAND  Y14, Y10, Y10; \
	HIGH(OP, m, Y0, Y1);  \
	BYTES(j, Y2, Y3)

TEXT addRow21AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x04040404, X15, Y15)
	EACH(0x03030303, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	FETCH(0)
	FETCH(1)
	FETCH(2)
	FETCH(3)
	PLANE(0, Y4, Y5)
	PLANE(1, Y6, Y7)
	PLANE(2, Y0, Y1)
	THREE(0, 0, Y4, Y5, VPSLLW, 2)
	THREE(1, 0, Y6, Y7, VPSLLW, 1)
	THREE(2, 2, Y4, Y5, VPSLLW, 0)
	THREE(3, 2, Y6, Y7, VPSRLW, 1)
	THREE(4, 4, Y4, Y5, VPSRLW, 2)
	THREE(5, 4, Y6, Y7, VPSRLW, 3)
	THREE(6, 6, Y4, Y5, VPSRLW, 4)
	THREE(7, 6, Y6, Y7, VPSRLW, 5)
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(192, 4, 1)

// EIGHT adds the products of vector j of a unit.
#define EIGHT(j) \
	FETCH(j);                         \
	VMOVDQU (j*64)(SI)(DX*1), Y9;     \
	VMOVDQU (j*64+32)(SI)(DX*1), Y10; \
	MASKED(Y13, (j*8), Y2, Y3);       \
	SHIFTED(8, (j*8+4), Y4, Y5)

TEXT addRow8AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	INIT(0, Y2, Y3, dot)
	ZERO(Y4, Y5)
	EIGHT(0)
	EIGHT(1)
	EIGHT(2)
	EIGHT(3)
	EIGHT(4)
	EIGHT(5)
	EIGHT(6)
	EIGHT(7)
	FETCH(8)
	VPADDD Y4, Y2, Y2
	VPADDD Y5, Y3, Y3
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(512, 9, 1)

// HALF begins the sums of half a panel for codes in four places of a byte, with Init in sum.
#define HALF(a, b, c, d, sum, at, dot) \
	ZERO(a, b);               \
	ZERO(c, d);               \
	TESTQ R13, R13;           \
	JZ    dot;                \
	VPBROADCASTD (R13), sum;  \
	CMPQ  R15, $48;           \
	JNE   dot;                \
	VPSRAD    $7, sum, sum;   \
	VPMOVZXBD (at/4+32)(R10)(DX*1), Y8; \
	VPMULLD   Y8, sum, sum;   \
dot:

// SPLIT loads half of vector i of a unit's planes, bytes 0 and 2 of each row and bytes 1 and 3.
#define SPLIT(at) \
	VMOVDQU (at)(SI)(DX*1), Y0; \
	VPSRLW  $8, Y0, Y1

// PLACED adds to sum the products of vector j of a unit, whose codes are in Y0 and Y1 at a mask's place.
#define PLACED(j, mask, sum) \
	VPAND        mask, Y0, Y8;     \
	VPAND        mask, Y1, Y9;     \
	VPBROADCASTD (j*8)(R8), Y10;   \
	VPBROADCASTD (j*8+4)(R8), Y11; \
	VPMADDWD     Y10, Y8, Y8;      \
	VPMADDWD     Y11, Y9, Y9;      \
	VPADDD       Y8, sum, sum;     \
	VPADDD       Y9, sum, sum

// LOWER adds a sum of products to another, n bits lower.
#define LOWER(n, a, sum) \
	VPSRAD $n, a, a; \
	VPADDD a, sum, sum

// FLOAT adds the sums of half a panel.
#define FLOAT(sum, at, none) \
	VCVTDQ2PS    sum, sum;              \
	VBROADCASTSS (R12), Y8;             \
	VMULPS       Y8, sum, sum;          \
	VCVTPH2PS    (at/2)(R10)(DX*1), Y9; \
	VFMADD213PS  (at)(DI), Y9, sum;     \
	TESTQ R14, R14;                     \
	JZ    none;                         \
	VCVTPH2PS    (at/2+32)(R10)(DX*1), Y9; \
	VBROADCASTSS (R14), Y8;             \
	VFMADD231PS  Y9, Y8, sum;           \
none:                                       \
	VMOVUPS      sum, (at)(DI)

#define PAIRS(at, dot, none) \
	HALF(Y2, Y3, Y4, Y5, Y2, at, dot); \
	SPLIT(at);                     \
	PLACED(0, Y12, Y2);            \
	PLACED(2, Y13, Y3);            \
	PLACED(4, Y14, Y4);            \
	PLACED(6, Y15, Y5);            \
	SPLIT(at+64);                  \
	PLACED(1, Y12, Y2);            \
	PLACED(3, Y13, Y3);            \
	PLACED(5, Y14, Y4);            \
	PLACED(7, Y15, Y5);            \
	LOWER(2, Y3, Y2);              \
	LOWER(4, Y4, Y2);              \
	LOWER(6, Y5, Y2);              \
	FLOAT(Y2, at, none)

TEXT addRow2AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x00030003, X12, Y12)
	EACH(0x000c000c, X13, Y13)
	EACH(0x00300030, X14, Y14)
	EACH(0x00c000c0, X15, Y15)
chunk:
	CHUNK
unit:
	UNIT
place:
	FETCH(0)
	FETCH(1)
	FETCH(2)
	PAIRS(0, low, none0)
	PAIRS(32, high, none1)
	NEXT(128, 3, 1)

#define SINGLE(at, dot, none) \
	HALF(Y2, Y3, Y4, Y5, Y3, at, dot); \
	SPLIT(at);                     \
	PLACED(0, Y12, Y2);            \
	PLACED(1, Y13, Y3);            \
	PLACED(2, Y14, Y4);            \
	PLACED(3, Y15, Y5);            \
	VPSRLW $4, Y0, Y0;             \
	VPSRLW $4, Y1, Y1;             \
	PLACED(4, Y12, Y2);            \
	PLACED(5, Y13, Y3);            \
	PLACED(6, Y14, Y4);            \
	PLACED(7, Y15, Y5);            \
	VPADDD Y2, Y2, Y2;             \
	VPADDD Y3, Y2, Y2;             \
	LOWER(1, Y4, Y2);              \
	LOWER(2, Y5, Y2);              \
	FLOAT(Y2, at, none)

TEXT addRow1AVX2<>(SB), NOSPLIT, $0-128
	HEAD
	EACH(0x00010001, X12, Y12)
	EACH(0x00020002, X13, Y13)
	EACH(0x00040004, X14, Y14)
	EACH(0x00080008, X15, Y15)
chunk:
	CHUNK
unit:
	UNIT
place:
	FETCH(0)
	FETCH(1)
	SINGLE(0, low, none0)
	SINGLE(32, high, none1)
	NEXT(64, 2, 1)

// func addRowVec(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end, codes, mask int)
TEXT ·addRowVec(SB), NOSPLIT, $0-128
	UPGRADE(·addRowAVX512)
	BY_CODES(addRow4AVX2<>, addRowTableAVX2<>, addRow41AVX2<>, addRow42AVX2<>, addRow21AVX2<>, addRow2AVX2<>, addRow1AVX2<>, addRowBrainAVX2<>, addRowSmallAVX2<>, addRow8AVX2<>)
