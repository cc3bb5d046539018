#include "textflag.h"

// Rows side by side with AVX-512: a lane of 16 bytes takes four rows in turns, whose
// four bytes then change places within it.
//
//	SI  the rows, CX left to do
//	DI  the vectors
//	R8  bytes from row to row, R9 in three; R10 in four, R11 in twelve
//	K1-K3  lanes 1 to 3

#define HEAD \
	MOVQ dst+0(FP), DI;    \
	MOVQ src+8(FP), SI;    \
	MOVQ stride+16(FP), R8; \
	MOVQ n+24(FP), CX;     \
	LANES

#define LANES \
	LEAQ (R8)(R8*2), R9;   \
	LEAQ (R8*4), R10;      \
	LEAQ (R10)(R10*2), R11; \
	MOVL $0x00f0, AX;      \
	KMOVW AX, K1;          \
	MOVL $0x0f00, AX;      \
	KMOVW AX, K2;          \
	MOVL $0xf000, AX;      \
	KMOVW AX, K3

// ROWS loads off bytes into the row at AX, and the fourth, eighth and twelfth after it.
#define ROWS(off, z, x) \
	VMOVDQU off(AX), x;                   \
	VBROADCASTI32X4 off(AX)(R10*1), K1, z; \
	VBROADCASTI32X4 off(AX)(R10*2), K2, z; \
	VBROADCASTI32X4 off(AX)(R11*1), K3, z

// WEAVE makes a, b, c and d of the 16 bytes at off. Z16 to Z19 are free.
#define WEAVE(off, a, b, c, d, x, y, z, t) \
	MOVQ SI, AX;                \
	ROWS(off, a, x);            \
	LEAQ (SI)(R8*1), AX;        \
	ROWS(off, b, y);            \
	LEAQ (SI)(R8*2), AX;        \
	ROWS(off, c, z);            \
	LEAQ (SI)(R9*1), AX;        \
	ROWS(off, d, t);            \
	VPUNPCKLDQ  b, a, Z16;      \
	VPUNPCKHDQ  b, a, Z17;      \
	VPUNPCKLDQ  d, c, Z18;      \
	VPUNPCKHDQ  d, c, Z19;      \
	VPUNPCKLQDQ Z18, Z16, a;    \
	VPUNPCKHQDQ Z18, Z16, b;    \
	VPUNPCKLQDQ Z19, Z17, c;    \
	VPUNPCKHQDQ Z19, Z17, d

// func weaveAVX512(dst, src *byte, stride, n, in, out int, flip byte)
TEXT ·weaveAVX512(SB), NOSPLIT, $0-49
	HEAD
	MOVBLZX flip+48(FP), AX
	VPBROADCASTB AX, Z31
	MOVQ in+32(FP), DX
	MOVQ out+40(FP), BX
loop:
	WEAVE(0, Z0, Z1, Z2, Z3, X0, X1, X2, X3)
	VPXORD Z31, Z0, Z0
	VPXORD Z31, Z1, Z1
	VPXORD Z31, Z2, Z2
	VPXORD Z31, Z3, Z3
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	VMOVDQU32 Z2, 128(DI)
	VMOVDQU32 Z3, 192(DI)
	ADDQ DX, SI
	ADDQ BX, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// HALVES stores what vectors i and i+4 become. Z31 chooses low halves.
#define HALVES(i, x, y) \
	VPSLLW     $4, y, Z16;       \
	VPSRLW     $4, x, Z17;       \
	VPTERNLOGD $0xe4, Z31, Z16, x; \
	VMOVDQU32  x, (i*64)(DI);    \
	VPTERNLOGD $0xe4, Z31, y, Z17; \
	VMOVDQU32  Z17, (i*64)(DI)(R12*1)

// func weaveHalvesAVX512(dst, src *byte, stride, n, in, out, other int)
TEXT ·weaveHalvesAVX512(SB), NOSPLIT, $0-56
	HEAD
	MOVL $0x0f0f0f0f, AX
	VPBROADCASTD AX, Z31
	MOVQ in+32(FP), DX
	MOVQ out+40(FP), BX
	MOVQ other+48(FP), R12
loop:
	WEAVE(0, Z0, Z1, Z2, Z3, X0, X1, X2, X3)
	WEAVE(16, Z4, Z5, Z6, Z7, X4, X5, X6, X7)
	HALVES(0, Z0, Z4)
	HALVES(1, Z1, Z5)
	HALVES(2, Z2, Z6)
	HALVES(3, Z3, Z7)
	ADDQ DX, SI
	ADDQ BX, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// EXCHANGE lets the bits of a above those of the mask and the bits of b in it change
// places, n bits apart: 0x48 is (x^y)&mask.
#define EXCHANGE(n, mask, a, b) \
	VPSRLW     $n, a, Z16;          \
	VPTERNLOGD $0x48, b, mask, Z16; \
	VPXORD     Z16, b, b;           \
	VPSLLW     $n, Z16, Z16;        \
	VPXORD     Z16, a, a

#define MASK(byte, z) \
	MOVL         $(byte*0x01010101), AX; \
	VPBROADCASTD AX, z

// func weaveBitsAVX512(dst, src *byte, stride, out, two int)
TEXT ·weaveBitsAVX512(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), R8
	MOVQ out+24(FP), BX
	LANES
	WEAVE(0, Z0, Z1, Z2, Z3, X0, X1, X2, X3)
	WEAVE(16, Z4, Z5, Z6, Z7, X4, X5, X6, X7)
	MASK(0x55, Z29)
	MASK(0x33, Z30)
	MASK(0x0f, Z31)
	EXCHANGE(2, Z30, Z0, Z2)
	EXCHANGE(2, Z30, Z1, Z3)
	EXCHANGE(2, Z30, Z4, Z6)
	EXCHANGE(2, Z30, Z5, Z7)
	EXCHANGE(4, Z31, Z0, Z4)
	EXCHANGE(4, Z31, Z1, Z5)
	EXCHANGE(4, Z31, Z2, Z6)
	EXCHANGE(4, Z31, Z3, Z7)
	MOVQ two+32(FP), AX
	TESTQ AX, AX
	JNZ  two
	EXCHANGE(1, Z29, Z0, Z1)
	EXCHANGE(1, Z29, Z2, Z3)
	EXCHANGE(1, Z29, Z4, Z5)
	EXCHANGE(1, Z29, Z6, Z7)
	LEAQ (BX)(BX*2), DX
	LEAQ (DI)(BX*4), SI
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, (DI)(BX*1)
	VMOVDQU32 Z2, (DI)(BX*2)
	VMOVDQU32 Z3, (DI)(DX*1)
	VMOVDQU32 Z4, (SI)
	VMOVDQU32 Z5, (SI)(BX*1)
	VMOVDQU32 Z6, (SI)(BX*2)
	VMOVDQU32 Z7, (SI)(DX*1)
	VZEROUPPER
	RET

two:
	LEAQ (DI)(BX*2), SI
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	VMOVDQU32 Z2, (DI)(BX*1)
	VMOVDQU32 Z3, 64(DI)(BX*1)
	VMOVDQU32 Z4, (SI)
	VMOVDQU32 Z5, 64(SI)
	VMOVDQU32 Z6, (SI)(BX*1)
	VMOVDQU32 Z7, 64(SI)(BX*1)
	VZEROUPPER
	RET
