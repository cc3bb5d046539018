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

// TERM sets the sum in Y3 to Y3*r + c, for the c at a place of the numbers.
#define TERM(at) \
	VBROADCASTSD at(DI), Y5; \
	VMULPD Y2, Y3, Y3;       \
	VADDPD Y5, Y3, Y3

// func expDoublesAVX2(v []float64, numbers *[23]float64)
//
// Four elements at a time.
//
//	SI, CX   v, vectors left
//	DI       numbers
//	Y0       x
//	Y1       k, then 2^k
//	Y2, Y3   r, sum
//	Y6..Y14  numbers 0 to 8
TEXT ·expDoublesAVX2(SB), NOSPLIT, $0-32
	MOVQ v_base+0(FP), SI
	MOVQ v_len+8(FP), CX
	MOVQ numbers+24(FP), DI
	SHRQ $2, CX
	JZ   done
	VBROADCASTSD 0(DI), Y6
	VBROADCASTSD 8(DI), Y7
	VBROADCASTSD 16(DI), Y8
	VBROADCASTSD 24(DI), Y9
	VBROADCASTSD 32(DI), Y10
	VBROADCASTSD 40(DI), Y11
	VBROADCASTSD 48(DI), Y12
	VBROADCASTSD 56(DI), Y13
	VBROADCASTSD 64(DI), Y14
loop:
	VMOVUPD  (SI), Y0
	VMULPD   Y6, Y0, Y1
	VADDPD   Y14, Y1, Y1
	VROUNDPD $9, Y1, Y1
	VMULPD   Y7, Y1, Y2
	VSUBPD   Y2, Y0, Y2
	VMULPD   Y8, Y1, Y3
	VSUBPD   Y3, Y2, Y2
	VADDPD   Y11, Y1, Y1
	VPADDQ   Y12, Y1, Y1
	VPSLLQ   $52, Y1, Y1
	VBROADCASTSD 72(DI), Y3
	TERM(80)
	TERM(88)
	TERM(96)
	TERM(104)
	TERM(112)
	TERM(120)
	TERM(128)
	TERM(136)
	TERM(144)
	TERM(152)
	TERM(160)
	TERM(168)
	TERM(176)
	VMULPD   Y1, Y3, Y3
	VCMPPD   $0x11, Y9, Y0, Y4  // x < -708
	VANDNPD  Y3, Y4, Y3
	VCMPPD   $0x1e, Y10, Y0, Y4 // x > 709
	VBLENDVPD Y4, Y13, Y3, Y3
	VCMPPD   $3, Y0, Y0, Y4     // NaN
	VBLENDVPD Y4, Y0, Y3, Y3
	VMOVUPD  Y3, (SI)
	ADDQ $32, SI
	DECQ CX
	JNZ  loop
done:
	VZEROUPPER
	RET
