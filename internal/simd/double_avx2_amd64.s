#include "textflag.h"

// Products of float64 with AVX2, rounded before they are added.

// The mask of t elements of 16 begins 16 - t elements from the front.
DATA tailMask<>+0(SB)/8, $-1
DATA tailMask<>+8(SB)/8, $-1
DATA tailMask<>+16(SB)/8, $-1
DATA tailMask<>+24(SB)/8, $-1
DATA tailMask<>+32(SB)/8, $-1
DATA tailMask<>+40(SB)/8, $-1
DATA tailMask<>+48(SB)/8, $-1
DATA tailMask<>+56(SB)/8, $-1
DATA tailMask<>+64(SB)/8, $-1
DATA tailMask<>+72(SB)/8, $-1
DATA tailMask<>+80(SB)/8, $-1
DATA tailMask<>+88(SB)/8, $-1
DATA tailMask<>+96(SB)/8, $-1
DATA tailMask<>+104(SB)/8, $-1
DATA tailMask<>+112(SB)/8, $-1
DATA tailMask<>+120(SB)/8, $-1
DATA tailMask<>+128(SB)/8, $0
DATA tailMask<>+136(SB)/8, $0
DATA tailMask<>+144(SB)/8, $0
DATA tailMask<>+152(SB)/8, $0
DATA tailMask<>+160(SB)/8, $0
DATA tailMask<>+168(SB)/8, $0
DATA tailMask<>+176(SB)/8, $0
DATA tailMask<>+184(SB)/8, $0
DATA tailMask<>+192(SB)/8, $0
DATA tailMask<>+200(SB)/8, $0
DATA tailMask<>+208(SB)/8, $0
DATA tailMask<>+216(SB)/8, $0
DATA tailMask<>+224(SB)/8, $0
DATA tailMask<>+232(SB)/8, $0
DATA tailMask<>+240(SB)/8, $0
DATA tailMask<>+248(SB)/8, $0
GLOBL tailMask<>(SB), RODATA|NOPTR, $256

// TAIL adds the products of four elements at most, masked by those at R9, to the sums p and q of rows 0 and 1.
#define TAIL(at, p, q) \
	VMOVUPD at(R9), Y8;          \
	VMASKMOVPD at(DX), Y8, Y9;   \
	VMASKMOVPD at(SI), Y8, Y10;  \
	VMULPD  Y9, Y10, Y10;        \
	VADDPD  Y10, p, p;           \
	VMASKMOVPD at(R8), Y8, Y11;  \
	VMULPD  Y9, Y11, Y11;        \
	VADDPD  Y11, q, q

// func dotDoublesAVX2(w []float64, stride int, x []float64) (a, b float64)
//
// The products of x with the rows that begin at w and stride behind it. What a tail lacks is 0 times 0, which changes no
// sum: none is -0.
//
//	SI, R8   rows 0 and 1 of w
//	DX       x
//	CX, AX   blocks of 16 left, elements behind them
//	Y0..Y3   sums of row 0, Y4..Y7 of row 1
TEXT ·dotDoublesAVX2(SB), NOSPLIT, $0-72
	MOVQ w_base+0(FP), SI
	MOVQ stride+24(FP), R8
	LEAQ (SI)(R8*8), R8
	MOVQ x_base+32(FP), DX
	MOVQ x_len+40(FP), CX
	MOVQ CX, AX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	SHRQ $4, CX
	JZ   tail
loop:
	VMOVUPD 0(DX), Y8
	VMOVUPD 32(DX), Y9
	VMOVUPD 64(DX), Y10
	VMOVUPD 96(DX), Y11
	VMULPD  0(SI), Y8, Y12
	VMULPD  32(SI), Y9, Y13
	VMULPD  64(SI), Y10, Y14
	VMULPD  96(SI), Y11, Y15
	VADDPD  Y12, Y0, Y0
	VADDPD  Y13, Y1, Y1
	VADDPD  Y14, Y2, Y2
	VADDPD  Y15, Y3, Y3
	VMULPD  0(R8), Y8, Y12
	VMULPD  32(R8), Y9, Y13
	VMULPD  64(R8), Y10, Y14
	VMULPD  96(R8), Y11, Y15
	VADDPD  Y12, Y4, Y4
	VADDPD  Y13, Y5, Y5
	VADDPD  Y14, Y6, Y6
	VADDPD  Y15, Y7, Y7
	ADDQ $128, DX
	ADDQ $128, SI
	ADDQ $128, R8
	DECQ CX
	JNZ  loop
tail:
	ANDQ $15, AX
	JZ   add
	LEAQ tailMask<>+128(SB), R9
	SHLQ $3, AX
	SUBQ AX, R9
	TAIL(0, Y0, Y4)
	TAIL(32, Y1, Y5)
	TAIL(64, Y2, Y6)
	TAIL(96, Y3, Y7)
add:
	VADDPD  Y2, Y0, Y0
	VADDPD  Y3, Y1, Y1
	VADDPD  Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPD  X1, X0, X0
	VPERMILPD $1, X0, X1
	VADDSD  X1, X0, X0
	VMOVSD  X0, a+56(FP)
	VADDPD  Y6, Y4, Y4
	VADDPD  Y7, Y5, Y5
	VADDPD  Y5, Y4, Y4
	VEXTRACTF128 $1, Y4, X5
	VADDPD  X5, X4, X4
	VPERMILPD $1, X4, X5
	VADDSD  X5, X4, X4
	VMOVSD  X4, b+64(FP)
	VZEROUPPER
	RET
