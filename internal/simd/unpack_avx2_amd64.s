#include "textflag.h"
#include "tier_amd64.h"

// Units of a panel with AVX2: planes to bytes. A vector of a panel is two
// halves, and a kernel goes over the first halves of a unit and then over the
// second ones.
//
//	DI     a half of the unit, SI that of its planes, CX halves left
//	BX     where the next one is, from the first of a unit or the second
//	Y0-Y3  vectors of the planes
//	Y4-Y7  vectors of the unit
//	Y14    the lowest plane's bits in each byte, Y15 the next plane's

// MASK sets every byte of y.
#define MASK(byte, x, y) \
	MOVL         $(byte*0x01010101), AX; \
	VMOVD        AX, x;                  \
	VPBROADCASTD x, y

#define HEAD(done) \
	MOVQ dst_base+0(FP), DI;  \
	MOVQ src_base+24(FP), SI; \
	MOVQ dst_len+8(FP), CX;   \
	SHRQ $9, CX;              \
	JZ   done

// HALF goes to the second halves, and then to the next unit.
#define HALF(in, loop) \
	ADDQ $32, SI;        \
	ADDQ $32, DI;        \
	XORL $1, BX;         \
	JNZ  loop;           \
	ADDQ $(in-64), SI;   \
	ADDQ $(512-64), DI;  \
	DECQ CX;             \
	JNZ  loop

// FOUR makes vectors i and i+4 of the lowest plane in Y4 and Y5.
#define FOUR(i) \
	VMOVDQU (i*64)(SI), Y5; \
	VPAND   Y14, Y5, Y4;    \
	VPSRLW  $4, Y5, Y5;     \
	VPAND   Y14, Y5, Y5

#define STORE(i) \
	VMOVDQU Y4, (i*64)(DI); \
	VMOVDQU Y5, (i*64+256)(DI)

// UPPER adds the next plane's bits of y to z, which may be y.
#define UPPER(y, z) \
	VPAND Y15, y, Y6; \
	VPOR  Y6, z, z

#define LEFT(n, y, z) \
	VPSLLW $n, y, Y7; \
	UPPER(Y7, z)

#define RIGHT(n, y, z) \
	VPSRLW $n, y, Y7; \
	UPPER(Y7, z)

// WHOLE makes vectors i and i+4 of the lowest plane, both halves of them, and
// stores them line by line.
#define WHOLE(i, LOOKUP) \
	VMOVDQU (i*64)(SI), Y0;     \
	VMOVDQU (i*64+32)(SI), Y1;  \
	VPSRLW  $4, Y0, Y2;         \
	VPSRLW  $4, Y1, Y3;         \
	VPAND   Y14, Y0, Y0;        \
	VPAND   Y14, Y1, Y1;        \
	VPAND   Y14, Y2, Y2;        \
	VPAND   Y14, Y3, Y3;        \
	LOOKUP;                     \
	VMOVDQU Y0, (i*64)(DI);     \
	VMOVDQU Y1, (i*64+32)(DI);  \
	VMOVDQU Y2, (i*64+256)(DI); \
	VMOVDQU Y3, (i*64+288)(DI)

#define NOLOOKUP

#define LOOKUP \
	VPSHUFB Y0, Y13, Y0; \
	VPSHUFB Y1, Y13, Y1; \
	VPSHUFB Y2, Y13, Y2; \
	VPSHUFB Y3, Y13, Y3

// func unpack4Vec(dst, src []byte)
TEXT ·unpack4Vec(SB), NOSPLIT, $0-48
	UPGRADE(·unpack4AVX512)
	HEAD(done)
	MASK(15, X14, Y14)
loop:
	WHOLE(0, NOLOOKUP)
	WHOLE(1, NOLOOKUP)
	WHOLE(2, NOLOOKUP)
	WHOLE(3, NOLOOKUP)
	ADDQ $256, SI
	ADDQ $512, DI
	DECQ CX
	JNZ  loop
done:
	VZEROUPPER
	RET

// func unpackTableVec(dst, src []byte, table *[16]byte)
TEXT ·unpackTableVec(SB), NOSPLIT, $0-56
	UPGRADE(·unpackTableAVX512)
	HEAD(done)
	MASK(15, X14, Y14)
	MOVQ           table+48(FP), AX
	VBROADCASTI128 (AX), Y13
loop:
	WHOLE(0, LOOKUP)
	WHOLE(1, LOOKUP)
	WHOLE(2, LOOKUP)
	WHOLE(3, LOOKUP)
	ADDQ $256, SI
	ADDQ $512, DI
	DECQ CX
	JNZ  loop
done:
	VZEROUPPER
	RET

// func unpack41Vec(dst, src []byte)
TEXT ·unpack41Vec(SB), NOSPLIT, $0-48
	UPGRADE(·unpack41AVX512)
	HEAD(done)
	MASK(15, X14, Y14)
	MASK(16, X15, Y15)
	XORL BX, BX
loop:
	VMOVDQU 256(SI), Y0
	FOUR(0)
	LEFT(4, Y0, Y4)
	UPPER(Y0, Y5)
	STORE(0)
	FOUR(1)
	LEFT(3, Y0, Y4)
	RIGHT(1, Y0, Y5)
	STORE(1)
	FOUR(2)
	LEFT(2, Y0, Y4)
	RIGHT(2, Y0, Y5)
	STORE(2)
	FOUR(3)
	LEFT(1, Y0, Y4)
	RIGHT(3, Y0, Y5)
	STORE(3)
	HALF(320, loop)
done:
	VZEROUPPER
	RET

// func unpack42Vec(dst, src []byte)
TEXT ·unpack42Vec(SB), NOSPLIT, $0-48
	UPGRADE(·unpack42AVX512)
	HEAD(done)
	MASK(15, X14, Y14)
	MASK(48, X15, Y15)
	XORL BX, BX
loop:
	VMOVDQU 256(SI), Y0
	VMOVDQU 320(SI), Y1
	FOUR(0)
	LEFT(4, Y0, Y4)
	UPPER(Y0, Y5)
	STORE(0)
	FOUR(1)
	LEFT(4, Y1, Y4)
	UPPER(Y1, Y5)
	STORE(1)
	FOUR(2)
	LEFT(2, Y0, Y4)
	RIGHT(2, Y0, Y5)
	STORE(2)
	FOUR(3)
	LEFT(2, Y1, Y4)
	RIGHT(2, Y1, Y5)
	STORE(3)
	HALF(384, loop)
done:
	VZEROUPPER
	RET

// TWO makes vectors i, i+2, i+4 and i+6 of the lowest plane.
#define TWO(i, d0, d1, d2, d3) \
	VMOVDQU (i*64)(SI), d0; \
	VPSRLW  $2, d0, d1;     \
	VPSRLW  $4, d0, d2;     \
	VPSRLW  $6, d0, d3;     \
	VPAND   Y14, d0, d0;    \
	VPAND   Y14, d1, d1;    \
	VPAND   Y14, d2, d2;    \
	VPAND   Y14, d3, d3

#define STORE8 \
	VMOVDQU Y8, 0(DI);    \
	VMOVDQU Y9, 64(DI);   \
	VMOVDQU Y10, 128(DI); \
	VMOVDQU Y11, 192(DI); \
	VMOVDQU Y0, 256(DI);  \
	VMOVDQU Y1, 320(DI);  \
	VMOVDQU Y2, 384(DI);  \
	VMOVDQU Y3, 448(DI)

// func unpack2Vec(dst, src []byte)
TEXT ·unpack2Vec(SB), NOSPLIT, $0-48
	UPGRADE(·unpack2AVX512)
	HEAD(done)
	MASK(3, X14, Y14)
	XORL BX, BX
loop:
	TWO(0, Y8, Y10, Y0, Y2)
	TWO(1, Y9, Y11, Y1, Y3)
	STORE8
	HALF(128, loop)
done:
	VZEROUPPER
	RET

// func unpack21Vec(dst, src []byte)
TEXT ·unpack21Vec(SB), NOSPLIT, $0-48
	UPGRADE(·unpack21AVX512)
	HEAD(done)
	MASK(3, X14, Y14)
	MASK(4, X15, Y15)
	XORL BX, BX
loop:
	TWO(0, Y8, Y10, Y0, Y2)
	TWO(1, Y9, Y11, Y1, Y3)
	VMOVDQU 128(SI), Y4
	LEFT(2, Y4, Y8)
	LEFT(1, Y4, Y9)
	UPPER(Y4, Y10)
	RIGHT(1, Y4, Y11)
	RIGHT(2, Y4, Y0)
	RIGHT(3, Y4, Y1)
	RIGHT(4, Y4, Y2)
	RIGHT(5, Y4, Y3)
	STORE8
	HALF(192, loop)
done:
	VZEROUPPER
	RET

// ONE makes vector i of the plane of one bit, shifted by OP.
#define ONE(OP, n, i) \
	OP      $n, Y0, Y1;   \
	VPAND   Y14, Y1, Y1;  \
	VMOVDQU Y1, (i*64)(DI)

// func unpack1Vec(dst, src []byte)
TEXT ·unpack1Vec(SB), NOSPLIT, $0-48
	UPGRADE(·unpack1AVX512)
	HEAD(done)
	MASK(2, X14, Y14)
	XORL BX, BX
loop:
	VMOVDQU (SI), Y0
	ONE(VPSLLW, 1, 0)
	ONE(VPSRLW, 0, 1)
	ONE(VPSRLW, 1, 2)
	ONE(VPSRLW, 2, 3)
	ONE(VPSRLW, 3, 4)
	ONE(VPSRLW, 4, 5)
	ONE(VPSRLW, 5, 6)
	ONE(VPSRLW, 6, 7)
	HALF(64, loop)
done:
	VZEROUPPER
	RET

// DIGIT makes the next digits of the bytes of Y0 and Y1, 16 bits each.
#define DIGIT(at) \
	VPMULLW  Y13, Y0, Y0;   \
	VPMULLW  Y13, Y1, Y1;   \
	VPSRLW   $8, Y0, Y2;    \
	VPANDN   Y1, Y14, Y3;   \
	VPOR     Y3, Y2, Y2;    \
	VMOVDQU  Y2, (at)(DI);  \
	VPAND    Y14, Y0, Y0;   \
	VPAND    Y14, Y1, Y1

// DIGITS makes four digits of half a vector of bytes, each at the distance of so many vectors, and goes on.
#define DIGITS(n) \
	VMOVDQU  (SI), Y1;      \
	VPAND    Y14, Y1, Y0;   \
	VPSRLW   $8, Y1, Y1;    \
	DIGIT(0);               \
	DIGIT(n*64);            \
	DIGIT(n*128);           \
	DIGIT(n*192);           \
	ADDQ     $32, SI;       \
	ADDQ     $32, DI

// func unpackDigitsVec(dst, src *byte)
TEXT ·unpackDigitsVec(SB), NOSPLIT, $0-16
	UPGRADE(·unpackDigitsAVX512)
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVL         $0x00ff00ff, AX
	VMOVD        AX, X14
	VPBROADCASTD X14, Y14
	MOVL         $0x00030003, AX
	VMOVD        AX, X13
	VPBROADCASTD X13, Y13
	MOVL $16, CX
eight:
	DIGITS(8)
	DIGIT(8*256-32)
	DECQ CX
	JNZ  eight
	ADDQ $(4*512), DI
	MOVL $8, CX
four:
	DIGITS(4)
	DIGIT(4*256-32)
	DECQ CX
	JNZ  four
	ADDQ $(4*256), DI
	DIGITS(1)
	DIGITS(1)
	VZEROUPPER
	RET

// func panelScalesVec(dst []float32, d *uint16, scale []int8)
TEXT ·panelScalesVec(SB), NOSPLIT, $0-56
	UPGRADE(·panelScalesAVX512)
	MOVQ      dst_base+0(FP), DI
	MOVQ      d+24(FP), DX
	MOVQ      scale_base+32(FP), SI
	MOVQ      scale_len+40(FP), CX
	VCVTPH2PS 0(DX), Y0
	VCVTPH2PS 16(DX), Y1
	SHRQ      $4, CX
	JZ        done
loop:
	VPMOVSXBD 0(SI), Y2
	VPMOVSXBD 8(SI), Y3
	VCVTDQ2PS Y2, Y2
	VCVTDQ2PS Y3, Y3
	VMULPS    Y2, Y0, Y2
	VMULPS    Y3, Y1, Y3
	VMOVUPS   Y2, 0(DI)
	VMOVUPS   Y3, 32(DI)
	ADDQ      $16, SI
	ADDQ      $64, DI
	DECQ      CX
	JNZ       loop
done:
	VZEROUPPER
	RET

// func scaleE4M3AVX2(dst []float32, src []byte, s float32)
//
// Binary16 has the bits of E4M3 at the same places, and a bias larger by 8: s is 256 times the factor. A code whose bits
// but the sign are set becomes the quiet NaN 0x7e00.
TEXT ·scaleE4M3AVX2(SB), NOSPLIT, $0-52
	MOVQ         dst_base+0(FP), DI
	MOVQ         src_base+24(FP), SI
	MOVQ         src_len+32(FP), CX
	VBROADCASTSS s+48(FP), Y15
	MOVL         $0x007f007f, AX
	VMOVD        AX, X14
	VPBROADCASTD X14, Y14
	MOVL         $0x80008000, AX
	VMOVD        AX, X13
	VPBROADCASTD X13, Y13
	MOVL         $0x7e007e00, AX
	VMOVD        AX, X12
	VPBROADCASTD X12, Y12
	SHRQ         $4, CX
	JZ           done
loop:
	VPMOVZXBW    (SI), Y0
	VPSLLW       $8, Y0, Y2
	VPAND        Y13, Y2, Y2
	VPAND        Y14, Y0, Y0
	VPCMPEQW     Y14, Y0, Y1
	VPSLLW       $7, Y0, Y0
	VPOR         Y2, Y0, Y0
	VPBLENDVB    Y1, Y12, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VCVTPH2PS    X0, Y0
	VCVTPH2PS    X1, Y1
	VMULPS       Y15, Y0, Y0
	VMULPS       Y15, Y1, Y1
	VMOVUPS      Y0, 0(DI)
	VMOVUPS      Y1, 32(DI)
	ADDQ         $16, SI
	ADDQ         $64, DI
	DECQ         CX
	JNZ          loop
done:
	VZEROUPPER
	RET

// func loadE4M3Vec(dst []float32, src []byte)
TEXT ·loadE4M3Vec(SB), NOSPLIT, $0-48
	MOVQ         dst_base+0(FP), DI
	MOVQ         src_base+24(FP), SI
	MOVQ         src_len+32(FP), CX
	MOVL         $0x007f007f, AX
	VMOVD        AX, X14
	VPBROADCASTD X14, Y14
	MOVL         $0x43000000, AX // 128
	VMOVD        AX, X15
	VPBROADCASTD X15, Y15
	SHRQ         $4, CX
	JZ           done
loop:
	VPMOVZXBW    (SI), Y0
	VPCMPEQW     Y14, Y0, Y1
	VPAND        Y14, Y0, Y0
	VPANDN       Y0, Y1, Y0
	VPSLLW       $7, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VCVTPH2PS    X0, Y0
	VCVTPH2PS    X1, Y1
	VMULPS       Y15, Y0, Y0
	VMULPS       Y15, Y1, Y1
	VMOVUPS      Y0, 0(DI)
	VMOVUPS      Y1, 32(DI)
	ADDQ         $16, SI
	ADDQ         $64, DI
	DECQ         CX
	JNZ          loop
done:
	VZEROUPPER
	RET

// func shiftAVX2(codes []byte, by *uint32)
TEXT ·shiftAVX2(SB), NOSPLIT, $0-32
	MOVQ    codes_base+0(FP), DI
	MOVQ    codes_len+8(FP), CX
	MOVQ    by+24(FP), SI
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	SHRQ    $6, CX
	JZ      done
loop:
	VPADDB  (DI), Y0, Y2
	VPADDB  32(DI), Y1, Y3
	VMOVDQU Y2, (DI)
	VMOVDQU Y3, 32(DI)
	ADDQ    $64, DI
	DECQ    CX
	JNZ     loop
done:
	VZEROUPPER
	RET
