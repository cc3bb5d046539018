#include "textflag.h"

// Products of float64 with AVX-512, rounded before they are added.

// ROW adds the products of 16 elements of x in Z8 and Z9 to the sums p and q of the row at r.
#define ROW(r, p, q) \
	VMULPD  0(r)(R11*1), Z8, Z10;  \
	VMULPD  64(r)(R11*1), Z9, Z11; \
	VADDPD  Z10, p, p;             \
	VADDPD  Z11, q, q

// ROWTAIL is ROW for elements masked by K1 and K2. Other products are 0, which changes no sum: none is -0.
#define ROWTAIL(r, p, q) \
	VMULPD.Z  0(r)(R11*1), Z8, K1, Z10;  \
	VMULPD.Z  64(r)(R11*1), Z9, K2, Z11; \
	VADDPD    Z10, p, p;                 \
	VADDPD    Z11, q, q

// func dotDoublesAVX512(dst, w, x []float64)
//
// The products of x with four rows of w, one behind another.
//
//	SI, R8, R9, R10  rows 0 to 3 of w
//	DX, R11          x; bytes done
//	CX, AX           blocks of 16 left, elements behind them
//	Z0..Z7           sums 0 to 7 and 8 to 15 of rows 0 to 3
TEXT ·dotDoublesAVX512(SB), NOSPLIT, $0-72
	MOVQ dst_base+0(FP), DI
	MOVQ w_base+24(FP), SI
	MOVQ x_base+48(FP), DX
	MOVQ x_len+56(FP), CX
	LEAQ (SI)(CX*8), R8
	LEAQ (R8)(CX*8), R9
	LEAQ (R9)(CX*8), R10
	MOVQ CX, AX
	XORQ R11, R11
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2
	VPXORQ Z3, Z3, Z3
	VPXORQ Z4, Z4, Z4
	VPXORQ Z5, Z5, Z5
	VPXORQ Z6, Z6, Z6
	VPXORQ Z7, Z7, Z7
	SHRQ $4, CX
	JZ   tail
loop:
	VMOVUPD 0(DX)(R11*1), Z8
	VMOVUPD 64(DX)(R11*1), Z9
	ROW(SI, Z0, Z1)
	ROW(R8, Z2, Z3)
	ROW(R9, Z4, Z5)
	ROW(R10, Z6, Z7)
	ADDQ $128, R11
	DECQ CX
	JNZ  loop
tail:
	ANDQ $15, AX
	JZ   add
	MOVL $1, BX
	SHLXL AX, BX, BX
	DECL BX
	KMOVB BX, K1
	SHRL $8, BX
	KMOVB BX, K2
	VMOVUPD.Z 0(DX)(R11*1), K1, Z8
	VMOVUPD.Z 64(DX)(R11*1), K2, Z9
	ROWTAIL(SI, Z0, Z1)
	ROWTAIL(R8, Z2, Z3)
	ROWTAIL(R9, Z4, Z5)
	ROWTAIL(R10, Z6, Z7)
add:
	VADDPD Z1, Z0, Z0                // of a row, sums 0 to 7
	VADDPD Z3, Z2, Z2
	VADDPD Z5, Z4, Z4
	VADDPD Z7, Z6, Z6
	VSHUFF64X2 $0x44, Z2, Z0, Z1     // of rows 0 and 1, sums 0 to 3
	VSHUFF64X2 $0xee, Z2, Z0, Z3
	VADDPD Z3, Z1, Z1
	VSHUFF64X2 $0x44, Z6, Z4, Z5
	VSHUFF64X2 $0xee, Z6, Z4, Z7
	VADDPD Z7, Z5, Z5
	VSHUFF64X2 $0x88, Z5, Z1, Z0     // of rows 0 to 3, sums 0 and 1
	VSHUFF64X2 $0xdd, Z5, Z1, Z2
	VADDPD Z2, Z0, Z0
	VPERMILPD $0x55, Z0, Z1
	VADDPD Z1, Z0, Z0
	MOVL $0x55, BX
	KMOVB BX, K1
	VCOMPRESSPD Z0, K1, Z0
	VMOVUPD Y0, (DI)
	VZEROUPPER
	RET

// TERM sets the sum in Z3 to Z3*r + c, for the c at a place of the numbers.
#define TERM(at) \
	VMULPD Z2, Z3, Z3; \
	VADDPD.BCST at(DI), Z3, Z3

// func expDoublesAVX512(v []float64, numbers *[23]float64)
//
// Eight elements at a time, else as expDoublesAVX2.
TEXT ·expDoublesAVX512(SB), NOSPLIT, $0-32
	MOVQ v_base+0(FP), SI
	MOVQ v_len+8(FP), CX
	MOVQ numbers+24(FP), DI
	SHRQ $3, CX
	JZ   done
	VBROADCASTSD 0(DI), Z6
	VBROADCASTSD 8(DI), Z7
	VBROADCASTSD 16(DI), Z8
	VBROADCASTSD 24(DI), Z9
	VBROADCASTSD 32(DI), Z10
	VBROADCASTSD 40(DI), Z11
	VBROADCASTSD 48(DI), Z12
	VBROADCASTSD 56(DI), Z13
	VBROADCASTSD 64(DI), Z14
	VBROADCASTSD 72(DI), Z15
loop:
	VMOVUPD  (SI), Z0
	VMULPD   Z6, Z0, Z1
	VADDPD   Z14, Z1, Z1
	VRNDSCALEPD $9, Z1, Z1
	VMULPD   Z7, Z1, Z2
	VSUBPD   Z2, Z0, Z2
	VMULPD   Z8, Z1, Z3
	VSUBPD   Z3, Z2, Z2
	VADDPD   Z11, Z1, Z1
	VPADDQ   Z12, Z1, Z1
	VPSLLQ   $52, Z1, Z1
	VMOVAPD  Z15, Z3
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
	VCMPPD   $0x1d, Z9, Z0, K1 // x >= -708
	VMULPD.Z Z1, Z3, K1, Z3
	VCMPPD   $0x1e, Z10, Z0, K2 // x > 709
	VMOVAPD  Z13, K2, Z3
	VCMPPD   $3, Z0, Z0, K3 // NaN
	VMOVAPD  Z0, K3, Z3
	VMOVUPD  Z3, (SI)
	ADDQ $64, SI
	DECQ CX
	JNZ  loop
done:
	VZEROUPPER
	RET
