#include "textflag.h"

// Blocks of weights with AVX2.

DATA blocks<>+0(SB)/4, $0x7fffffff
DATA blocks<>+4(SB)/4, $0x42fe0000  // 127
DATA blocks<>+8(SB)/4, $0x3f800000  // 1
DATA blocks<>+12(SB)/4, $0x7f7fffff // the largest
DATA blocks<>+16(SB)/4, $0x3effffff // below 0.5
DATA blocks<>+20(SB)/4, $0xbe000000 // -1/8
DATA blocks<>+24(SB)/4, $0x41080000 // 8.5
DATA blocks<>+28(SB)/4, $15
GLOBL blocks<>(SB), RODATA|NOPTR, $32

DATA unpacked<>+0(SB)/8, $0x0000000400000000
DATA unpacked<>+8(SB)/8, $0x0000000500000001
DATA unpacked<>+16(SB)/8, $0x0000000600000002
DATA unpacked<>+24(SB)/8, $0x0000000700000003
GLOBL unpacked<>(SB), RODATA|NOPTR, $32

// LOAD sets Y0-Y3 to a block, Y4-Y7 to its magnitudes, and lane 0 of X8 to the bits
// of the largest one. Y15 is all bits but the sign.
#define LOAD \
	VMOVUPS 0(SI), Y0;         \
	VMOVUPS 32(SI), Y1;        \
	VMOVUPS 64(SI), Y2;        \
	VMOVUPS 96(SI), Y3;        \
	VPAND   Y15, Y0, Y4;       \
	VPAND   Y15, Y1, Y5;       \
	VPAND   Y15, Y2, Y6;       \
	VPAND   Y15, Y3, Y7;       \
	VPMAXUD Y5, Y4, Y8;        \
	VPMAXUD Y7, Y6, Y9;        \
	VPMAXUD Y9, Y8, Y8;        \
	HIGHEST

// HIGHEST sets lane 0 of X8 to the greatest lane of Y8.
#define HIGHEST \
	VEXTRACTI128 $1, Y8, X9;   \
	VPMAXUD X9, X8, X8;        \
	VPSHUFD $0x4e, X8, X9;     \
	VPMAXUD X9, X8, X8;        \
	VPSHUFD $0xb1, X8, X9;     \
	VPMAXUD X9, X8, X8

// SCALE writes the scale in X8 to (DI) and multiplies Y0-Y3 by its inverse.
#define SCALE \
	VCVTPS2PH $0, X8, X9;      \
	VMOVD   X9, AX;            \
	MOVW    AX, (DI);          \
	VMOVSS  blocks<>+8(SB), X9; \
	VDIVSS  X8, X9, X8;        \
	VANDPS  X15, X8, X9;       \
	VCMPSS  $0x12, blocks<>+12(SB), X9, X9; \
	VANDPS  X9, X8, X8;        \
	VBROADCASTSS X8, Y8;       \
	VMULPS  Y8, Y0, Y0;        \
	VMULPS  Y8, Y1, Y1;        \
	VMULPS  Y8, Y2, Y2;        \
	VMULPS  Y8, Y3, Y3

// BYTES packs the integers in Y0-Y3 into the bytes of Y0. Y14 is their order.
#define BYTES \
	VPACKSSDW Y1, Y0, Y0;      \
	VPACKSSDW Y3, Y2, Y2;      \
	VPACKSSWB Y2, Y0, Y0;      \
	VPERMD  Y0, Y14, Y0

// AWAY rounds y to integers, halves away from zero. Y13 is the number below 0.5.
#define AWAY(y) \
	VANDNPS y, Y15, Y4;        \
	VORPS   Y13, Y4, Y4;       \
	VADDPS  Y4, y, y;          \
	VCVTTPS2DQ y, y

// func blocksQ8_0AVX2(dst *byte, x []float32)
TEXT ·blocksQ8_0AVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ x_len+16(FP), CX
	SHRQ $5, CX
	VBROADCASTSS blocks<>+0(SB), Y15
	VBROADCASTSS blocks<>+16(SB), Y13
	VMOVDQU      unpacked<>(SB), Y14
loop:
	LOAD
	VDIVSS blocks<>+4(SB), X8, X8
	SCALE
	AWAY(Y0)
	AWAY(Y1)
	AWAY(Y2)
	AWAY(Y3)
	BYTES
	VMOVDQU Y0, 2(DI)
	ADDQ    $34, DI
	ADDQ    $128, SI
	DECQ    CX
	JNZ     loop
	VZEROUPPER
	RET

// SHIFT takes y to codes of four bits. Y13 is 8.5, Y12 is 15.
#define SHIFT(y) \
	VADDPS  Y13, y, y;         \
	VCVTTPS2DQ y, y;           \
	VPMINSD Y12, y, y

// PLACES sets a register to a bit for each magnitude in y that is the largest one.
#define PLACES(y, bits) \
	VPCMPEQD  Y9, y, y;        \
	VMOVMSKPS y, bits

// func blocksQ4_0AVX2(dst *byte, x []float32)
TEXT ·blocksQ4_0AVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ x_len+16(FP), CX
	SHRQ $5, CX
	VBROADCASTSS blocks<>+0(SB), Y15
	VBROADCASTSS blocks<>+24(SB), Y13
	VPBROADCASTD blocks<>+28(SB), Y12
	VMOVDQU      unpacked<>(SB), Y14
loop:
	LOAD
	VMOVD X8, AX
	TESTL AX, AX
	JZ    scale
	VPBROADCASTD X8, Y9
	PLACES(Y4, AX)
	PLACES(Y5, R8)
	PLACES(Y6, R9)
	PLACES(Y7, R10)
	SHLL   $8, R8
	SHLL   $16, R9
	SHLL   $24, R10
	ORL    R8, AX
	ORL    R9, AX
	ORL    R10, AX
	BSFL   AX, AX
	VMOVSS (SI)(AX*4), X8
scale:
	VMULSS blocks<>+20(SB), X8, X8
	SCALE
	SHIFT(Y0)
	SHIFT(Y1)
	SHIFT(Y2)
	SHIFT(Y3)
	BYTES
	VEXTRACTI128 $1, Y0, X1
	VPSLLW  $4, X1, X1
	VPOR    X1, X0, X0
	VMOVDQU X0, 2(DI)
	ADDQ    $18, DI
	ADDQ    $128, SI
	DECQ    CX
	JNZ     loop
	VZEROUPPER
	RET

// func largestAVX2(x []float32) float32
TEXT ·largestAVX2(SB), NOSPLIT, $0-28
	MOVQ x_base+0(FP), SI
	MOVQ x_len+8(FP), CX
	SHRQ $3, CX
	VBROADCASTSS blocks<>+0(SB), Y15
	VPXOR Y8, Y8, Y8
loop:
	VPAND   (SI), Y15, Y0
	VPMAXUD Y0, Y8, Y8
	ADDQ    $32, SI
	DECQ    CX
	JNZ     loop
	HIGHEST
	VMOVSS X8, ret+24(FP)
	VZEROUPPER
	RET
