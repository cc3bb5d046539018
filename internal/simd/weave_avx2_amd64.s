#include "textflag.h"
#include "tier_amd64.h"

// Rows side by side with AVX2, eight of them and then the others: a register has two
// of them, whose bytes then change places with those of three other registers.
//
//	SI      the first of eight rows, CX left to do
//	DI      the vectors' halves that are theirs
//	R8      bytes from row to row, R9 in three, R10 in four, R11 in eight
//	R13     1 for the first eight rows, 0 for the others

#define ROWS \
	LEAQ (R8)(R8*2), R9; \
	LEAQ (R8*4), R10;    \
	LEAQ (R8*8), R11;    \
	MOVL $1, R13

#define HEAD \
	MOVQ dst+0(FP), DI;     \
	MOVQ src+8(FP), SI;     \
	MOVQ stride+16(FP), R8; \
	ROWS

// WEAVE makes halves a, b, c and d of four vectors of the 16 bytes at off. Y8 to Y11
// are free.
#define WEAVE(off, a, b, c, d, x, y, z, t) \
	LEAQ        (SI)(R10*1), AX;               \
	VMOVDQU     off(SI), x;                    \
	VMOVDQU     off(SI)(R8*1), y;              \
	VMOVDQU     off(SI)(R8*2), z;              \
	VMOVDQU     off(SI)(R9*1), t;              \
	VINSERTI128 $1, off(AX), a, a;             \
	VINSERTI128 $1, off(AX)(R8*1), b, b;       \
	VINSERTI128 $1, off(AX)(R8*2), c, c;       \
	VINSERTI128 $1, off(AX)(R9*1), d, d;       \
	VPUNPCKLDQ  b, a, Y8;                      \
	VPUNPCKHDQ  b, a, Y9;                      \
	VPUNPCKLDQ  d, c, Y10;                     \
	VPUNPCKHDQ  d, c, Y11;                     \
	VPUNPCKLQDQ Y10, Y8, a;                    \
	VPUNPCKHQDQ Y10, Y8, b;                    \
	VPUNPCKLQDQ Y11, Y9, c;                    \
	VPUNPCKHQDQ Y11, Y9, d

// OTHERS goes to the other eight rows, or on where these are done.
#define OTHERS(half) \
	MOVQ dst+0(FP), DI;  \
	MOVQ src+8(FP), SI;  \
	ADDQ $32, DI;        \
	ADDQ R11, SI;        \
	DECQ R13;            \
	JZ   half

#define MASK(byte, x, y) \
	MOVL         $(byte*0x01010101), AX; \
	VMOVD        AX, x;                  \
	VPBROADCASTD x, y

// func weaveVec(dst, src *byte, stride, n, in, out int, flip byte)
TEXT ·weaveVec(SB), NOSPLIT, $0-49
	UPGRADE(·weaveAVX512)
	HEAD
	VPBROADCASTB flip+48(FP), Y15
	MOVQ in+32(FP), DX
	MOVQ out+40(FP), BX
half:
	MOVQ n+24(FP), CX
loop:
	WEAVE(0, Y0, Y1, Y2, Y3, X0, X1, X2, X3)
	VPXOR   Y15, Y0, Y0
	VPXOR   Y15, Y1, Y1
	VPXOR   Y15, Y2, Y2
	VPXOR   Y15, Y3, Y3
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 64(DI)
	VMOVDQU Y2, 128(DI)
	VMOVDQU Y3, 192(DI)
	ADDQ DX, SI
	ADDQ BX, DI
	DECQ CX
	JNZ  loop
	OTHERS(half)
	VZEROUPPER
	RET

// HALVES stores what vectors i and i+4 become. Y15 chooses low halves.
#define HALVES(i, x, y) \
	VPAND   Y15, y, Y8;           \
	VPANDN  y, Y15, Y9;           \
	VPSLLW  $4, Y8, Y8;           \
	VPAND   Y15, x, Y10;          \
	VPANDN  x, Y15, Y11;          \
	VPSRLW  $4, Y11, Y11;         \
	VPOR    Y8, Y10, Y10;         \
	VPOR    Y9, Y11, Y11;         \
	VMOVDQU Y10, (i*64)(DI);      \
	VMOVDQU Y11, (i*64)(DI)(R12*1)

// func weaveHalvesVec(dst, src *byte, stride, n, in, out, other int)
TEXT ·weaveHalvesVec(SB), NOSPLIT, $0-56
	UPGRADE(·weaveHalvesAVX512)
	HEAD
	MASK(15, X15, Y15)
	MOVQ in+32(FP), DX
	MOVQ out+40(FP), BX
	MOVQ other+48(FP), R12
half:
	MOVQ n+24(FP), CX
loop:
	WEAVE(0, Y0, Y1, Y2, Y3, X0, X1, X2, X3)
	WEAVE(16, Y4, Y5, Y6, Y7, X4, X5, X6, X7)
	HALVES(0, Y0, Y4)
	HALVES(1, Y1, Y5)
	HALVES(2, Y2, Y6)
	HALVES(3, Y3, Y7)
	ADDQ DX, SI
	ADDQ BX, DI
	DECQ CX
	JNZ  loop
	OTHERS(half)
	VZEROUPPER
	RET

// EXCHANGE lets the bits of a above those of the mask and the bits of b in it change
// places, n bits apart.
#define EXCHANGE(n, mask, a, b) \
	VPSRLW $n, a, Y8;     \
	VPXOR  b, Y8, Y8;     \
	VPAND  mask, Y8, Y8;  \
	VPXOR  Y8, b, b;      \
	VPSLLW $n, Y8, Y8;    \
	VPXOR  Y8, a, a

// func weaveBitsVec(dst, src *byte, stride, out, two int)
TEXT ·weaveBitsVec(SB), NOSPLIT, $0-40
	UPGRADE(·weaveBitsAVX512)
	HEAD
	MOVQ out+24(FP), BX
	MOVQ two+32(FP), R12
	MASK(0x55, X13, Y13)
	MASK(0x33, X14, Y14)
	MASK(0x0f, X15, Y15)
half:
	WEAVE(0, Y0, Y1, Y2, Y3, X0, X1, X2, X3)
	WEAVE(16, Y4, Y5, Y6, Y7, X4, X5, X6, X7)
	EXCHANGE(2, Y14, Y0, Y2)
	EXCHANGE(2, Y14, Y1, Y3)
	EXCHANGE(2, Y14, Y4, Y6)
	EXCHANGE(2, Y14, Y5, Y7)
	EXCHANGE(4, Y15, Y0, Y4)
	EXCHANGE(4, Y15, Y1, Y5)
	EXCHANGE(4, Y15, Y2, Y6)
	EXCHANGE(4, Y15, Y3, Y7)
	TESTQ R12, R12
	JNZ  two
	EXCHANGE(1, Y13, Y0, Y1)
	EXCHANGE(1, Y13, Y2, Y3)
	EXCHANGE(1, Y13, Y4, Y5)
	EXCHANGE(1, Y13, Y6, Y7)
	LEAQ (BX)(BX*2), DX
	LEAQ (DI)(BX*4), SI
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, (DI)(BX*1)
	VMOVDQU Y2, (DI)(BX*2)
	VMOVDQU Y3, (DI)(DX*1)
	VMOVDQU Y4, (SI)
	VMOVDQU Y5, (SI)(BX*1)
	VMOVDQU Y6, (SI)(BX*2)
	VMOVDQU Y7, (SI)(DX*1)
	OTHERS(half)
	VZEROUPPER
	RET

two:
	LEAQ (DI)(BX*2), SI
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 64(DI)
	VMOVDQU Y2, (DI)(BX*1)
	VMOVDQU Y3, 64(DI)(BX*1)
	VMOVDQU Y4, (SI)
	VMOVDQU Y5, 64(SI)
	VMOVDQU Y6, (SI)(BX*1)
	VMOVDQU Y7, 64(SI)(BX*1)
	OTHERS(half)
	VZEROUPPER
	RET

// func weaveWordsVec(dst *uint16, src *byte, stride, n, in int)
TEXT ·weaveWordsVec(SB), NOSPLIT, $0-40
	HEAD
	MOVQ n+24(FP), CX
	MOVQ in+32(FP), DX
	LEAQ (SI)(R10*1), AX
	LEAQ (SI)(R11*1), BX
	LEAQ (BX)(R10*1), R12
loop:
	VPXOR   X0, X0, X0
	VPXOR   X1, X1, X1
	VPINSRW $0, (SI), X0, X0
	VPINSRW $0, (BX), X1, X1
	VPINSRW $1, (SI)(R8*1), X0, X0
	VPINSRW $1, (BX)(R8*1), X1, X1
	VPINSRW $2, (SI)(R8*2), X0, X0
	VPINSRW $2, (BX)(R8*2), X1, X1
	VPINSRW $3, (SI)(R9*1), X0, X0
	VPINSRW $3, (BX)(R9*1), X1, X1
	VPINSRW $4, (AX), X0, X0
	VPINSRW $4, (R12), X1, X1
	VPINSRW $5, (AX)(R8*1), X0, X0
	VPINSRW $5, (R12)(R8*1), X1, X1
	VPINSRW $6, (AX)(R8*2), X0, X0
	VPINSRW $6, (R12)(R8*2), X1, X1
	VPINSRW $7, (AX)(R9*1), X0, X0
	VPINSRW $7, (R12)(R9*1), X1, X1
	VMOVDQU X0, (DI)
	VMOVDQU X1, 16(DI)
	ADDQ DX, SI
	ADDQ DX, AX
	ADDQ DX, BX
	ADDQ DX, R12
	ADDQ $32, DI
	DECQ CX
	JNZ  loop
	RET

// each has a byte of four words, and then the next one of each, in either half; pairs
// brings those of eight words together.
DATA each<>+0(SB)/8, $0x0d0905010c080400
DATA each<>+8(SB)/8, $0x0f0b07030e0a0602
GLOBL each<>(SB), RODATA|NOPTR, $16

DATA pairs<>+0(SB)/8, $0x0000000400000000
DATA pairs<>+8(SB)/8, $0x0000000500000001
DATA pairs<>+16(SB)/8, $0x0000000600000002
DATA pairs<>+24(SB)/8, $0x0000000700000003
GLOBL pairs<>(SB), RODATA|NOPTR, $32

// TRANSPOSE stores the four bytes of eight words as four times eight bytes, 16 apart.
#define TRANSPOSE(at, y, x) \
	VPSHUFB      Y14, y, y;          \
	VPERMD       y, Y13, y;          \
	VEXTRACTI128 $1, y, X8;          \
	VMOVQ        x, (at)(DI);        \
	VPEXTRQ      $1, x, (at+16)(DI); \
	VMOVQ        X8, (at+32)(DI);    \
	VPEXTRQ      $1, X8, (at+48)(DI)

#define ORDERS \
	VMOVDQU        pairs<>(SB), Y13; \
	VBROADCASTI128 each<>(SB), Y14

// func weaveBytesVec(dst, src *byte, stride int)
TEXT ·weaveBytesVec(SB), NOSPLIT, $0-24
	HEAD
	ORDERS
half:
	WEAVE(0, Y0, Y1, Y2, Y3, X0, X1, X2, X3)
	TRANSPOSE(0, Y0, X0)
	TRANSPOSE(64, Y1, X1)
	TRANSPOSE(128, Y2, X2)
	TRANSPOSE(192, Y3, X3)
	ADDQ R11, SI
	ADDQ $8, DI
	DECQ R13
	JZ   half
	VZEROUPPER
	RET

// PACK stores eight words of 32 bits as words of 16, which they are.
#define PACK(at, y, x) \
	VPACKUSDW y, y, y;   \
	VPERMQ    $8, y, y;  \
	VMOVDQU   x, (at)(BX)

// func weaveScalesVec(dst, src *byte, stride int)
TEXT ·weaveScalesVec(SB), NOSPLIT, $0-24
	HEAD
	ORDERS
	MASK(0x3f, X15, Y15)
	MASK(0x30, X12, Y12)
	MOVQ DI, BX
	VPCMPEQD Y7, Y7, Y7
	VPSRLD   $16, Y7, Y7 // the first word
	VPSRLD   $15, Y7, Y6
	VPSLLD   $15, Y6, Y6 // its sign
half:
	WEAVE(0, Y0, Y1, Y2, Y3, X0, X1, X2, X3)
	VPSRLD $16, Y0, Y5
	VPXOR  Y6, Y5, Y5
	VPAND  Y7, Y0, Y0
	PACK(0, Y0, X0)
	PACK(32, Y5, X5)
	VPANDN Y15, Y12, Y10 // low halves
	VPSRLD $2, Y1, Y4
	VPSRLD $2, Y2, Y5
	VPAND  Y12, Y4, Y4
	VPAND  Y12, Y5, Y5
	VPAND  Y10, Y3, Y0
	VPOR   Y0, Y4, Y4
	VPSRLD $4, Y3, Y3
	VPAND  Y10, Y3, Y3
	VPOR   Y3, Y5, Y5
	VPAND  Y15, Y1, Y1
	VPAND  Y15, Y2, Y2
	TRANSPOSE(64, Y1, X1)
	TRANSPOSE(128, Y4, X4)
	TRANSPOSE(192, Y2, X2)
	TRANSPOSE(256, Y5, X5)
	ADDQ R11, SI
	ADDQ $8, DI
	ADDQ $16, BX
	DECQ R13
	JZ   half
	VZEROUPPER
	RET
