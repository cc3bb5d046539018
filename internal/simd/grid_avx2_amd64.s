#include "textflag.h"
#include "tier_amd64.h"

// Blocks with points, with AVX2: eight weights of all rows at a time. Points' numbers go through memory to general
// registers, since gathering takes as long as loads on some processors, and much longer on others.
//
//	DI       codes, SI the block, R9 the octet, CX octets left
//	R8       points by number, a byte for each level
//	R11      the mask of the high bits of a number
//	0(SP)    numbers of a point of each row, 64(SP) of the octet's second
//	Y3, Y4   levels of a row's first four weights and of the others
//	Y5       codes by level and sign
//	Y6       8 in each byte, Y7 and Y8 a sign's bit in each
//	Y9       the lowest byte of each 32-bit integer, four times over
//	Y10, Y11 signs by a field's halves, Y12 low halves of bytes
//	Y13, Y14 masks of high and low bits of numbers

#define EACH(n, x, y) \
	MOVL         $n, AX; \
	VMOVD        AX, x;  \
	VPBROADCASTD x, y

// FIELD loads the dwords of a place, and shifts them.
#define FIELD(at, low, high) \
	MOVL         (at)(R9), AX;        \
	VPBROADCASTD (at+4)(R9), Y0;      \
	VMOVDQU      0(SI)(AX*1), low;    \
	VMOVDQU      32(SI)(AX*1), high;  \
	VPSRLVD      Y0, low, low;        \
	VPSRLVD      Y0, high, high

// NUMBERS stores the numbers of point i of the octet.
#define NUMBERS(i, short) \
	FIELD(8*i, Y1, Y2);              \
	VPAND   Y14, Y1, Y1;             \
	VPAND   Y14, Y2, Y2;             \
	TESTL   R11, R11;                \
	JZ      short;                   \
	FIELD(16+8*i, Y3, Y4);           \
	VPAND   Y13, Y3, Y3;             \
	VPAND   Y13, Y4, Y4;             \
	VPSLLD  $8, Y3, Y3;              \
	VPSLLD  $8, Y4, Y4;              \
	VPOR    Y3, Y1, Y1;              \
	VPOR    Y4, Y2, Y2;              \
short:                                   \
	VMOVDQU Y1, (64*i)(SP);          \
	VMOVDQU Y2, (64*i+32)(SP)

// LOAD8 and LOAD4 load the point of the number at a place.
#define LOAD8(at, y) \
	MOVL         (at)(SP), AX; \
	VPBROADCASTQ (R8)(AX*8), y

#define LOAD4(at, y) \
	MOVL         (at)(SP), AX; \
	VPBROADCASTD (R8)(AX*4), y

// PUT puts into y the dwords of a mask.
#define PUT(LOAD, at, mask, y) \
	LOAD(at, Y2); \
	VPBLENDD $mask, Y2, y, y

// EIGHT makes the levels of half the rows, of a point of 8 weights.
#define EIGHT(half) \
	LOAD8(half, Y0);                 \
	LOAD8(half+8, Y1);               \
	PUT(LOAD8, half+4, 0x0c, Y0);    \
	PUT(LOAD8, half+12, 0x0c, Y1);   \
	PUT(LOAD8, half+16, 0x30, Y0);   \
	PUT(LOAD8, half+24, 0x30, Y1);   \
	PUT(LOAD8, half+20, 0xc0, Y0);   \
	PUT(LOAD8, half+28, 0xc0, Y1);   \
	VSHUFPS $0x88, Y1, Y0, Y3;       \
	VSHUFPS $0xdd, Y1, Y0, Y4

// QUAD makes levels of half the rows, of a point of 4 weights.
#define QUAD(half, y) \
	LOAD4(half, y);               \
	PUT(LOAD4, half+4, 0x02, y);  \
	PUT(LOAD4, half+8, 0x04, y);  \
	PUT(LOAD4, half+12, 0x08, y); \
	PUT(LOAD4, half+16, 0x10, y); \
	PUT(LOAD4, half+20, 0x20, y); \
	PUT(LOAD4, half+24, 0x40, y); \
	PUT(LOAD4, half+28, 0x80, y)

#define QUADS(half) \
	QUAD(half, Y3); \
	QUAD(64+half, Y4)

// SIGNED stores the codes of levels with signs.
#define SIGNED(bits, levels, at) \
	VPAND    bits, Y1, Y0;       \
	VPCMPEQB bits, Y0, Y0;       \
	VPAND    Y6, Y0, Y0;         \
	VPOR     levels, Y0, Y0;     \
	VPSHUFB  Y0, Y5, Y0;         \
	VMOVDQU  Y0, (at)(DI)

// HALF makes half the rows' codes.
#define HALF(at, LEVELS) \
	LEVELS(at);                          \
	MOVL         32(R9), AX;             \
	VPBROADCASTD 36(R9), Y0;             \
	VMOVDQU      (at)(SI)(AX*1), Y1;     \
	VPSRLVD      Y0, Y1, Y1;             \
	VPSRLD       $4, Y1, Y2;             \
	VPAND        Y12, Y1, Y1;            \
	VPAND        Y12, Y2, Y2;            \
	VPSHUFB      Y1, Y10, Y1;            \
	VPSHUFB      Y2, Y11, Y2;            \
	VPXOR        Y2, Y1, Y1;             \
	VPSHUFB      Y9, Y1, Y1;             \
	SIGNED(Y7, Y3, at);                  \
	SIGNED(Y8, Y4, at+64)

// func unpackGridVec(dst, src *byte, octets *gridOctet, shape *gridShape, spread *byte, high uint32, four int)
TEXT ·unpackGridVec(SB), NOSPLIT, $128-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ octets+16(FP), R9
	MOVQ shape+24(FP), BX
	MOVQ spread+32(FP), R8
	MOVL high+40(FP), R11
	VBROADCASTI128 104(BX), Y5
	VBROADCASTI128 120(BX), Y10
	VBROADCASTI128 136(BX), Y11
	EACH(0x08080808, X6, Y6)
	EACH(0x08040201, X7, Y7)
	EACH(0x80402010, X8, Y8)
	EACH(0x0f0f0f0f, X12, Y12)
	EACH(255, X14, Y14)
	VMOVD          R11, X13
	VPBROADCASTD   X13, Y13
	MOVQ           $0x0404040400000000, AX
	VMOVQ          AX, X9
	MOVQ           $0x0c0c0c0c08080808, AX
	VPINSRQ        $1, AX, X9, X9
	VINSERTI128    $1, X9, Y9, Y9
	MOVL           $32, CX
	CMPQ           four+48(FP), $0
	JNE            fours
eights:
	NUMBERS(0, short)
	HALF(0, EIGHT)
	HALF(32, EIGHT)
	ADDQ $128, DI
	ADDQ $40, R9
	DECQ CX
	JNZ  eights
	VZEROUPPER
	RET
fours:
	NUMBERS(0, short0)
	NUMBERS(1, short1)
	HALF(0, QUADS)
	HALF(32, QUADS)
	ADDQ $128, DI
	ADDQ $40, R9
	DECQ CX
	JNZ  fours
	VZEROUPPER
	RET

// func gridScalesVec(dst *float32, src *byte, places *gridPlace, n int, mask uint32, unit float32)
TEXT ·gridScalesVec(SB), NOSPLIT, $0-40
	UPGRADE(·gridScalesAVX512)
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         places+16(FP), R9
	MOVQ         n+24(FP), CX
	MOVL         mask+32(FP), AX
	VMOVD        AX, X3
	VPBROADCASTD X3, Y3
	VBROADCASTSS unit+36(FP), Y2
	EACH(1, X4, Y4)
	VCVTPH2PS    0(SI), Y0
	VCVTPH2PS    16(SI), Y1
	VMULPS       Y2, Y0, Y0
	VMULPS       Y2, Y1, Y1
	ADDQ         $64, SI
loop:
	MOVL         0(R9), AX
	VPBROADCASTD 4(R9), Y2
	VMOVDQU      0(SI)(AX*1), Y5
	VMOVDQU      32(SI)(AX*1), Y6
	VPSRLVD      Y2, Y5, Y5
	VPSRLVD      Y2, Y6, Y6
	VPAND        Y3, Y5, Y5
	VPAND        Y3, Y6, Y6
	VPADDD       Y5, Y5, Y5
	VPADDD       Y6, Y6, Y6
	VPOR         Y4, Y5, Y5
	VPOR         Y4, Y6, Y6
	VCVTDQ2PS    Y5, Y5
	VCVTDQ2PS    Y6, Y6
	VMULPS       Y0, Y5, Y5
	VMULPS       Y1, Y6, Y6
	VMOVUPS      Y5, 0(DI)
	VMOVUPS      Y6, 32(DI)
	ADDQ         $64, DI
	ADDQ         $8, R9
	DECQ         CX
	JNZ          loop
	VZEROUPPER
	RET
