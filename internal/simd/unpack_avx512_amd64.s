#include "textflag.h"

// Units of a panel with AVX-512: planes to bytes.
//
//	DI       the unit, SI its planes, CX units left
//	Z0       a vector of the plane of four bits
//	Z1-Z3    vectors of the other planes
//	Z4, Z5   vectors of the unit
//	Z16-Z18  masks: the low four bits, and the higher ones where they belong

// MASK sets every byte of z.
#define MASK(byte, z) \
	MOVL         $(byte*0x01010101), AX; \
	VPBROADCASTD AX, z

// FOUR makes vectors i and i+4 of the lowest plane.
#define FOUR(i) \
	VMOVDQU32 (i*64)(SI), Z0; \
	VPANDD    Z16, Z0, Z4;    \
	VPSRLW    $4, Z0, Z5;     \
	VPANDD    Z16, Z5, Z5

#define STORE(i) \
	VMOVDQU32 Z4, (i*64)(DI); \
	VMOVDQU32 Z5, (i*64+256)(DI)

// OR adds the masked bits of b to a.
#define OR(b, mask, a) VPTERNLOGD $0xf8, mask, b, a

#define HEAD(done) \
	MOVQ dst_base+0(FP), DI;  \
	MOVQ src_base+24(FP), SI; \
	MOVQ dst_len+8(FP), CX;   \
	SHRQ $9, CX;              \
	JZ   done

#define NEXT(in, loop) \
	ADDQ $in, SI;  \
	ADDQ $512, DI; \
	DECQ CX;       \
	JNZ  loop

// func unpack4AVX512(dst, src []byte)
TEXT ·unpack4AVX512(SB), NOSPLIT, $0-48
	HEAD(done)
	MASK(15, Z16)
loop:
	FOUR(0)
	STORE(0)
	FOUR(1)
	STORE(1)
	FOUR(2)
	STORE(2)
	FOUR(3)
	STORE(3)
	NEXT(256, loop)
done:
	VZEROUPPER
	RET

#define LOOKUP(i) \
	FOUR(i);              \
	VPSHUFB Z4, Z17, Z4;  \
	VPSHUFB Z5, Z17, Z5;  \
	STORE(i)

// func unpackTableAVX512(dst, src []byte, table *[16]byte)
TEXT ·unpackTableAVX512(SB), NOSPLIT, $0-56
	HEAD(done)
	MASK(15, Z16)
	MOVQ            table+48(FP), AX
	VBROADCASTI32X4 (AX), Z17
loop:
	LOOKUP(0)
	LOOKUP(1)
	LOOKUP(2)
	LOOKUP(3)
	NEXT(256, loop)
done:
	VZEROUPPER
	RET

// func unpack41AVX512(dst, src []byte)
TEXT ·unpack41AVX512(SB), NOSPLIT, $0-48
	HEAD(done)
	MASK(15, Z16)
	MASK(16, Z17)
loop:
	VMOVDQU32 256(SI), Z1
	FOUR(0)
	VPSLLW $4, Z1, Z2
	OR(Z2, Z17, Z4)
	OR(Z1, Z17, Z5)
	STORE(0)
	FOUR(1)
	VPSLLW $3, Z1, Z2
	VPSRLW $1, Z1, Z3
	OR(Z2, Z17, Z4)
	OR(Z3, Z17, Z5)
	STORE(1)
	FOUR(2)
	VPSLLW $2, Z1, Z2
	VPSRLW $2, Z1, Z3
	OR(Z2, Z17, Z4)
	OR(Z3, Z17, Z5)
	STORE(2)
	FOUR(3)
	VPSLLW $1, Z1, Z2
	VPSRLW $3, Z1, Z3
	OR(Z2, Z17, Z4)
	OR(Z3, Z17, Z5)
	STORE(3)
	NEXT(320, loop)
done:
	VZEROUPPER
	RET

// func unpack42AVX512(dst, src []byte)
TEXT ·unpack42AVX512(SB), NOSPLIT, $0-48
	HEAD(done)
	MASK(15, Z16)
	MASK(48, Z17)
loop:
	VMOVDQU32 256(SI), Z1
	VMOVDQU32 320(SI), Z2
	FOUR(0)
	VPSLLW $4, Z1, Z3
	OR(Z3, Z17, Z4)
	OR(Z1, Z17, Z5)
	STORE(0)
	FOUR(1)
	VPSLLW $4, Z2, Z3
	OR(Z3, Z17, Z4)
	OR(Z2, Z17, Z5)
	STORE(1)
	FOUR(2)
	VPSLLW $2, Z1, Z3
	OR(Z3, Z17, Z4)
	VPSRLW $2, Z1, Z3
	OR(Z3, Z17, Z5)
	STORE(2)
	FOUR(3)
	VPSLLW $2, Z2, Z3
	OR(Z3, Z17, Z4)
	VPSRLW $2, Z2, Z3
	OR(Z3, Z17, Z5)
	STORE(3)
	NEXT(384, loop)
done:
	VZEROUPPER
	RET

// TWO makes vectors i, i+2, i+4 and i+6 of the plane of two bits.
#define TWO(i, d0, d1, d2, d3) \
	VMOVDQU32 (i*64)(SI), Z0; \
	VPSRLW    $2, Z0, Z1;     \
	VPSRLW    $4, Z0, Z2;     \
	VPSRLW    $6, Z0, Z3;     \
	VPANDD    Z16, Z0, d0;    \
	VPANDD    Z16, Z1, d1;    \
	VPANDD    Z16, Z2, d2;    \
	VPANDD    Z16, Z3, d3

#define STORE8 \
	VMOVDQU32 Z8, 0(DI);    \
	VMOVDQU32 Z9, 64(DI);   \
	VMOVDQU32 Z10, 128(DI); \
	VMOVDQU32 Z11, 192(DI); \
	VMOVDQU32 Z12, 256(DI); \
	VMOVDQU32 Z13, 320(DI); \
	VMOVDQU32 Z14, 384(DI); \
	VMOVDQU32 Z15, 448(DI)

// func unpack2AVX512(dst, src []byte)
TEXT ·unpack2AVX512(SB), NOSPLIT, $0-48
	HEAD(done)
	MASK(3, Z16)
loop:
	TWO(0, Z8, Z10, Z12, Z14)
	TWO(1, Z9, Z11, Z13, Z15)
	STORE8
	NEXT(128, loop)
done:
	VZEROUPPER
	RET

#define LEFT(n, d) \
	VPSLLW $n, Z4, Z5; \
	OR(Z5, Z17, d)

#define RIGHT(n, d) \
	VPSRLW $n, Z4, Z5; \
	OR(Z5, Z17, d)

// func unpack21AVX512(dst, src []byte)
TEXT ·unpack21AVX512(SB), NOSPLIT, $0-48
	HEAD(done)
	MASK(3, Z16)
	MASK(4, Z17)
loop:
	TWO(0, Z8, Z10, Z12, Z14)
	TWO(1, Z9, Z11, Z13, Z15)
	VMOVDQU32 128(SI), Z4
	LEFT(2, Z8)
	LEFT(1, Z9)
	OR(Z4, Z17, Z10)
	RIGHT(1, Z11)
	RIGHT(2, Z12)
	RIGHT(3, Z13)
	RIGHT(4, Z14)
	RIGHT(5, Z15)
	STORE8
	NEXT(192, loop)
done:
	VZEROUPPER
	RET

// ONE makes vector i of the plane of one bit, shifted by OP.
#define ONE(OP, n, i) \
	OP        $n, Z0, Z1;   \
	VPANDD    Z16, Z1, Z1;  \
	VMOVDQU32 Z1, (i*64)(DI)

// func unpack1AVX512(dst, src []byte)
TEXT ·unpack1AVX512(SB), NOSPLIT, $0-48
	HEAD(done)
	MASK(2, Z16)
loop:
	VMOVDQU32 (SI), Z0
	ONE(VPSLLW, 1, 0)
	ONE(VPSRLW, 0, 1)
	ONE(VPSRLW, 1, 2)
	ONE(VPSRLW, 2, 3)
	ONE(VPSRLW, 3, 4)
	ONE(VPSRLW, 4, 5)
	ONE(VPSRLW, 5, 6)
	ONE(VPSRLW, 6, 7)
	NEXT(64, loop)
done:
	VZEROUPPER
	RET

// DIGIT makes the next digits of the bytes of Z0 and Z1, 16 bits each.
#define DIGIT(at) \
	VPMULLW   Z18, Z0, Z0;   \
	VPMULLW   Z18, Z1, Z1;   \
	VPSRLW    $8, Z0, Z2;    \
	OR(Z1, Z17, Z2);         \
	VMOVDQU32 Z2, (at)(DI);  \
	VPANDD    Z16, Z0, Z0;   \
	VPANDD    Z16, Z1, Z1

// DIGITS makes four digits of a vector of bytes, each at the distance of so many vectors.
#define DIGITS(n) \
	VMOVDQU32 (SI), Z1;     \
	VPANDD    Z16, Z1, Z0;  \
	VPSRLW    $8, Z1, Z1;   \
	DIGIT(0);               \
	DIGIT(n*64);            \
	DIGIT(n*128);           \
	DIGIT(n*192)

// func unpackDigitsAVX512(dst, src *byte)
TEXT ·unpackDigitsAVX512(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVL $0x00ff00ff, AX
	VPBROADCASTD AX, Z16
	MOVL $0xff00ff00, AX
	VPBROADCASTD AX, Z17
	MOVL $0x00030003, AX
	VPBROADCASTD AX, Z18
	MOVL $8, CX
eight:
	DIGITS(8)
	DIGIT(8*256)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  eight
	ADDQ $(4*512), DI
	MOVL $4, CX
four:
	DIGITS(4)
	DIGIT(4*256)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  four
	ADDQ $(4*256), DI
	DIGITS(1)
	VZEROUPPER
	RET

// func panelScalesAVX512(dst []float32, d *uint16, scale []int8)
TEXT ·panelScalesAVX512(SB), NOSPLIT, $0-56
	MOVQ      dst_base+0(FP), DI
	MOVQ      d+24(FP), DX
	MOVQ      scale_base+32(FP), SI
	MOVQ      scale_len+40(FP), CX
	VCVTPH2PS (DX), Z0
	SHRQ      $4, CX
	JZ        done
loop:
	VPMOVSXBD (SI), Z1
	VCVTDQ2PS Z1, Z1
	VMULPS    Z1, Z0, Z1
	VMOVUPS   Z1, (DI)
	ADDQ      $16, SI
	ADDQ      $64, DI
	DECQ      CX
	JNZ       loop
done:
	VZEROUPPER
	RET
