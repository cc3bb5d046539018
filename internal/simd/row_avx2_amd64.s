#include "textflag.h"

// One row with AVX2: chunks of panels as they are stored. Their planes become 16-bit
// integers in registers, and the scales are made where they are used. Panels at several
// places go by together, a unit of each: of one place alone a core reads less.
//
//	BX       the chunk at the first place, R11 left
//	SI       codes of the unit there, CX left of the chunk
//	R10      its scales, R15 bytes of a group's
//	R9       what is fetched meanwhile: as many lines for each unit as hold all of a chunk
//	DX       the place, in bytes from the first one
//	DI       sums of its panel
//	R8       activations, R12 their scales
//	R13      Init, or 0
//	R14      Sums, or 0
//	Y0, Y1   the sums of the panel's first eight rows and of the others
//	Y2-Y7    integer sums, likewise in pairs
//	Y8-Y12   free
//	Y13-Y15  masks, or a table

// NEAR is how many bytes before its use memory is fetched.
#define NEAR 1024

#define HEAD \
	MOVQ data+8(FP), BX;     \
	MOVQ q+16(FP), R8;       \
	MOVQ dx+24(FP), R12;     \
	MOVQ init+32(FP), R13;   \
	MOVQ sums+40(FP), R14;   \
	MOVQ chunks+48(FP), R11; \
	MOVQ group+72(FP), R15

// EACH sets every 32-bit integer of y.
#define EACH(n, x, y) \
	MOVL         $n, AX; \
	VMOVD        AX, x;  \
	VPBROADCASTD x, y

// CHUNK begins one.
#define CHUNK \
	MOVQ BX, R10;            \
	MOVQ BX, SI;             \
	ADDQ scales+56(FP), SI;  \
	LEAQ NEAR(BX), R9;       \
	MOVQ $8, CX;             \
	CMPQ R15, $16;           \
	JNE  unit;               \
	ADDQ $32, R10;           \
	TESTQ R14, R14;          \
	JZ   unit;               \
	ADDQ $32, R10

// UNIT begins one, and PLACE one of its places.
#define UNIT \
	MOVQ acc+0(FP), DI; \
	XORL DX, DX

#define PLACE \
	VMOVUPS (DI), Y0; \
	VMOVUPS 32(DI), Y1

// NEXT goes to the next place, unit or chunk. A unit has so many bytes of codes, lines
// of all, and groups.
#define NEXT(codes, lines, groups) \
	VMOVUPS Y0, (DI);       \
	VMOVUPS Y1, 32(DI);     \
	ADDQ sumgap+96(FP), DI; \
	ADDQ gap+88(FP), DX;    \
	CMPQ DX, end+104(FP);   \
	JNE  place;             \
	ADDQ $codes, SI;        \
	ADDQ $(64*lines), R9;   \
	ADDQ $64, R8;           \
	ADDQ $4, R12;           \
	LEAQ (R10)(R15*groups), R10; \
	TESTQ R13, R13;         \
	JZ   sums;              \
	ADDQ $(4*groups), R13;  \
sums:                           \
	TESTQ R14, R14;         \
	JZ   next;              \
	ADDQ $(4*groups), R14;  \
next:                           \
	DECQ CX;                \
	JNZ  unit;              \
	ADDQ stride+64(FP), BX; \
	DECQ R11;               \
	JNZ  chunk;             \
	VZEROUPPER;             \
	RET

#define ZERO(a, b) \
	VPXOR a, a, a; \
	VPXOR b, b, b

// INIT begins the sums of group g of a unit.
#define INIT(g, a, b, dot) \
	ZERO(a, b);                 \
	TESTQ R13, R13;             \
	JZ    dot;                  \
	VPBROADCASTD (4*g)(R13), a; \
	VMOVDQA a, b;               \
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
	VCVTDQ2PS    a, a;         \
	VCVTDQ2PS    b, b;         \
	VBROADCASTSS (R12), Y8;    \
	VMULPS       Y8, a, a;     \
	VMULPS       Y8, b, b;     \
	CMPQ  R15, $16;            \
	JEQ   byte;                \
	VCVTPH2PS    (32*g)(R10)(DX*1), Y9;     \
	VCVTPH2PS    (32*g+16)(R10)(DX*1), Y10; \
	VFMADD231PS  Y9, a, Y0;    \
	VFMADD231PS  Y10, b, Y1;   \
	TESTQ R14, R14;            \
	JZ    none;                \
	VCVTPH2PS    (256*groups+32*g)(R10)(DX*1), Y9;     \
	VCVTPH2PS    (256*groups+32*g+16)(R10)(DX*1), Y10; \
	JMP   min;                 \
byte:                              \
	SCALES(0, 16*g);           \
	VFMADD231PS  Y9, a, Y0;    \
	VFMADD231PS  Y10, b, Y1;   \
	TESTQ R14, R14;            \
	JZ    none;                \
	SCALES(32, 128*groups+16*g); \
min:                               \
	VBROADCASTSS (4*g)(R14), Y8; \
	VFMADD231PS  Y9, Y8, Y0;   \
	VFMADD231PS  Y10, Y8, Y1;  \
none:

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

// func addRow4AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)
TEXT ·addRow4AVX2(SB), NOSPLIT, $0-112
	HEAD
	EACH(0x000f000f, X13, Y13)
	EACH(0x00f000f0, X14, Y14)
	EACH(0x0f000f00, X15, Y15)
chunk:
	CHUNK
unit:
	UNIT
place:
	PLACE
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

// BYTES adds to a and to b the products of eight rows of vectors j and j+4 of a unit,
// whose codes are Y9 and Y10.
#define BYTES(j, a, b) \
	VPBROADCASTD (j*8)(R8), Y8;     \
	VPAND        Y13, Y9, Y11;      \
	VPMADDWD     Y8, Y11, Y11;      \
	VPADDD       Y11, a, a;         \
	VPBROADCASTD (j*8+4)(R8), Y8;   \
	VPSRLW       $8, Y9, Y9;        \
	VPMADDWD     Y8, Y9, Y9;        \
	VPADDD       Y9, a, a;          \
	VPBROADCASTD (j*8+32)(R8), Y8;  \
	VPAND        Y13, Y10, Y11;     \
	VPMADDWD     Y8, Y11, Y11;      \
	VPADDD       Y11, b, b;         \
	VPBROADCASTD (j*8+36)(R8), Y8;  \
	VPSRLW       $8, Y10, Y10;      \
	VPMADDWD     Y8, Y10, Y10;      \
	VPADDD       Y10, b, b

// FOUR makes bytes of eight rows of vector i of the plane of four bits.
#define FOUR(i, off) \
	VMOVDQU (i*64+off)(SI)(DX*1), Y10; \
	VPAND   Y14, Y10, Y9;        \
	VPSRLW  $4, Y10, Y10;        \
	VPAND   Y14, Y10, Y10

#define LOOKUP(i, off, a) \
	FOUR(i, off);           \
	VPSHUFB Y9, Y15, Y9;    \
	VPSHUFB Y10, Y15, Y10;  \
	BYTES(i, a, a)

#define LOOKUPS(off, a) \
	LOOKUP(0, off, a); \
	LOOKUP(1, off, a); \
	LOOKUP(2, off, a); \
	LOOKUP(3, off, a)

// func addRowTableAVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)
TEXT ·addRowTableAVX2(SB), NOSPLIT, $0-112
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
	PLACE
	INIT(0, Y2, Y3, dot)
	FETCH(0)
	FETCH(1)
	LOOKUPS(0, Y2)
	FETCH(2)
	FETCH(3)
	FETCH(4)
	LOOKUPS(32, Y3)
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(256, 5, 1)

// HIGH adds bits of another plane to codes, shifted there by OP.
#define HIGH(OP, n, bits, codes) \
	OP    $n, bits, Y8;   \
	VPAND Y15, Y8, Y8;    \
	VPOR  Y8, codes, codes

#define SAME(bits, codes) \
	VPAND Y15, bits, Y8;  \
	VPOR  Y8, codes, codes

// FIVE adds the products of eight rows.
#define FIVE(off, a) \
	VMOVDQU (256+off)(SI)(DX*1), Y12; \
	FOUR(0, off);               \
	HIGH(VPSLLW, 4, Y12, Y9);   \
	SAME(Y12, Y10);             \
	BYTES(0, a, a);             \
	FOUR(1, off);               \
	HIGH(VPSLLW, 3, Y12, Y9);   \
	HIGH(VPSRLW, 1, Y12, Y10);  \
	BYTES(1, a, a);             \
	FOUR(2, off);               \
	HIGH(VPSLLW, 2, Y12, Y9);   \
	HIGH(VPSRLW, 2, Y12, Y10);  \
	BYTES(2, a, a);             \
	FOUR(3, off);               \
	HIGH(VPSLLW, 1, Y12, Y9);   \
	HIGH(VPSRLW, 3, Y12, Y10);  \
	BYTES(3, a, a)

// func addRow41AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)
TEXT ·addRow41AVX2(SB), NOSPLIT, $0-112
	HEAD
	EACH(0x10101010, X15, Y15)
	EACH(0x0f0f0f0f, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	PLACE
	INIT(0, Y2, Y3, dot)
	FETCH(0)
	FETCH(1)
	FETCH(2)
	FIVE(0, Y2)
	FETCH(3)
	FETCH(4)
	FETCH(5)
	FIVE(32, Y3)
	FLOATS(0, 1, Y2, Y3, byte, min, none)
	NEXT(320, 6, 1)

// SIX adds the products of eight rows, whose groups have 16 columns.
#define SIX(off, a, b) \
	VMOVDQU (256+off)(SI)(DX*1), Y6;  \
	VMOVDQU (320+off)(SI)(DX*1), Y7;  \
	FOUR(0, off);               \
	HIGH(VPSLLW, 4, Y6, Y9);    \
	SAME(Y6, Y10);              \
	BYTES(0, a, b);             \
	FOUR(1, off);               \
	HIGH(VPSLLW, 4, Y7, Y9);    \
	SAME(Y7, Y10);              \
	BYTES(1, a, b);             \
	FOUR(2, off);               \
	HIGH(VPSLLW, 2, Y6, Y9);    \
	HIGH(VPSRLW, 2, Y6, Y10);   \
	BYTES(2, a, b);             \
	FOUR(3, off);               \
	HIGH(VPSLLW, 2, Y7, Y9);    \
	HIGH(VPSRLW, 2, Y7, Y10);   \
	BYTES(3, a, b)

// func addRow42AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)
TEXT ·addRow42AVX2(SB), NOSPLIT, $0-112
	HEAD
	EACH(0x30303030, X15, Y15)
	EACH(0x0f0f0f0f, X14, Y14)
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	PLACE
	INIT(0, Y2, Y3, low)
	INIT(1, Y4, Y5, high)
	FETCH(0)
	FETCH(1)
	FETCH(2)
	SIX(0, Y2, Y4)
	FETCH(3)
	FETCH(4)
	FETCH(5)
	FETCH(6)
	SIX(32, Y3, Y5)
	FLOATS(0, 2, Y2, Y3, byte0, min0, none0)
	FLOATS(1, 2, Y4, Y5, byte1, min1, none1)
	NEXT(384, 7, 2)

// EIGHT adds the products of vector j of a unit.
#define EIGHT(j) \
	FETCH(j);                    \
	VMOVDQU (j*64)(SI)(DX*1), Y9;      \
	VMOVDQU (j*64+32)(SI)(DX*1), Y10;  \
	MASKED(Y13, (j*8), Y2, Y3);  \
	SHIFTED(8, (j*8+4), Y4, Y5)

// func addRow8AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)
TEXT ·addRow8AVX2(SB), NOSPLIT, $0-112
	HEAD
	EACH(0x00ff00ff, X13, Y13)
chunk:
	CHUNK
unit:
	UNIT
place:
	PLACE
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
