#include "textflag.h"
#include "tier_amd64.h"

// Blocks with points, with AVX2: eight weights of all rows at a time. Points' numbers go through memory to general
// registers, since gathering takes as long as loads on some processors, and much longer on others.
//
//	DI       codes, SI the block, R9 the octet, CX octets left
//	R8       points by number, a byte for each level
//	R10, R12 numbers of 8 bits of the octet's first point and second, in the block
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
#define NUMBERS(i) \
	FIELD(8*i, Y1, Y2);              \
	VPAND   Y14, Y1, Y1;             \
	VPAND   Y14, Y2, Y2;             \
	FIELD(16+8*i, Y3, Y4);           \
	VPAND   Y13, Y3, Y3;             \
	VPAND   Y13, Y4, Y4;             \
	VPSLLD  $8, Y3, Y3;              \
	VPSLLD  $8, Y4, Y4;              \
	VPOR    Y3, Y1, Y1;              \
	VPOR    Y4, Y2, Y2;              \
	VMOVDQU Y1, (64*i)(SP);          \
	VMOVDQU Y2, (64*i+32)(SP)

// STORED and SHORT get the number of row i of the octet's first point and second: stored by NUMBERS, or the byte at R10
// or R12.
#define STORED(i)  MOVL    (4*(i))(SP), AX
#define STORED2(i) MOVL    (64+4*(i))(SP), AX
#define SHORT(i)   MOVBLZX (4*(i))(R10), AX
#define SHORT2(i)  MOVBLZX (4*(i))(R12), AX

// BYTES sets the place of the bytes of point i.
#define BYTES(i, r) \
	MOVL (8*i)(R9), AX;   \
	MOVL (8*i+4)(R9), r;  \
	SHRL $3, r;           \
	ADDQ AX, r;           \
	ADDQ SI, r

// PUT8 and PUT4 put into y, at the dwords of a mask, the point of the number in AX.
#define PUT8(mask, y) \
	VPBROADCASTQ (R8)(AX*8), Y2; \
	VPBLENDD     $mask, Y2, y, y

#define PUT4(mask, y) \
	VPBROADCASTD (R8)(AX*4), Y2; \
	VPBLENDD     $mask, Y2, y, y

// EIGHT makes the levels of the rows from i on, of a point of 8 weights.
#define EIGHT(GET, i) \
	GET(i);                         \
	VPBROADCASTQ (R8)(AX*8), Y0;    \
	GET(i+2);                       \
	VPBROADCASTQ (R8)(AX*8), Y1;    \
	GET(i+1); PUT8(0x0c, Y0);       \
	GET(i+3); PUT8(0x0c, Y1);       \
	GET(i+4); PUT8(0x30, Y0);       \
	GET(i+6); PUT8(0x30, Y1);       \
	GET(i+5); PUT8(0xc0, Y0);       \
	GET(i+7); PUT8(0xc0, Y1);       \
	VSHUFPS $0x88, Y1, Y0, Y3;      \
	VSHUFPS $0xdd, Y1, Y0, Y4

// QUAD makes levels of the rows from i on, of a point of 4 weights.
#define QUAD(GET, i, y) \
	GET(i);                      \
	VPBROADCASTD (R8)(AX*4), y;  \
	GET(i+1); PUT4(0x02, y);     \
	GET(i+2); PUT4(0x04, y);     \
	GET(i+3); PUT4(0x08, y);     \
	GET(i+4); PUT4(0x10, y);     \
	GET(i+5); PUT4(0x20, y);     \
	GET(i+6); PUT4(0x40, y);     \
	GET(i+7); PUT4(0x80, y)

// SIGNED stores the codes of levels with signs.
#define SIGNED(bits, levels, at) \
	VPAND    bits, Y1, Y0;       \
	VPCMPEQB bits, Y0, Y0;       \
	VPAND    Y6, Y0, Y0;         \
	VPOR     levels, Y0, Y0;     \
	VPSHUFB  Y0, Y5, Y0;         \
	VMOVDQU  Y0, (at)(DI)

// HALF makes the codes of eight rows, whose dwords are at a place, of their levels.
#define HALF(at) \
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

// NEXT goes to the next octet.
#define NEXT(loop) \
	ADDQ $128, DI; \
	ADDQ $40, R9;  \
	DECQ CX;       \
	JNZ  loop;     \
	VZEROUPPER;    \
	RET

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
	TESTL          R11, R11
	JZ             shorts8
eights:
	NUMBERS(0)
	EIGHT(STORED, 0)
	HALF(0)
	EIGHT(STORED, 8)
	HALF(32)
	NEXT(eights)
shorts8:
	BYTES(0, R10)
	EIGHT(SHORT, 0)
	HALF(0)
	EIGHT(SHORT, 8)
	HALF(32)
	NEXT(shorts8)
fours:
	TESTL R11, R11
	JZ    shorts4
numbers4:
	NUMBERS(0)
	NUMBERS(1)
	QUAD(STORED, 0, Y3)
	QUAD(STORED2, 0, Y4)
	HALF(0)
	QUAD(STORED, 8, Y3)
	QUAD(STORED2, 8, Y4)
	HALF(32)
	NEXT(numbers4)
shorts4:
	BYTES(0, R10)
	BYTES(1, R12)
	QUAD(SHORT, 0, Y3)
	QUAD(SHORT2, 0, Y4)
	HALF(0)
	QUAD(SHORT, 8, Y3)
	QUAD(SHORT2, 8, Y4)
	HALF(32)
	NEXT(shorts4)

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
