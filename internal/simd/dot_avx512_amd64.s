#include "textflag.h"
#include "sum_amd64.h"

// Kernels of one vector w of k elements and the rows of x, all in 16 partial
// sums: a Z register of sums for each row.
//
//	DI      dst
//	R11     rows left
//	DX      first of those rows
//	R8, R9  bytes in one and in three rows
//	SI      w from the current block of 16 on
//	R12     row 0 of four from the current block on, R10 row 4 of eight
//	AX      blocks left
//	K1      mask of the k mod 16 last elements, BX the same
//	Z16     a block of w as float32

#define LOADF32 \
	VMOVUPS (SI), Z16

#define LOADF32TAIL \
	VMOVUPS.Z (SI), K1, Z16

#define LOADF16 \
	VCVTPH2PS (SI), Z16

#define LOADF16TAIL \
	VMOVDQU16.Z (SI), K1, Y16; \
	VCVTPH2PS   Y16, Z16

#define LOADBF16 \
	VPMOVZXWD (SI), Z16; \
	VPSLLD    $16, Z16, Z16

#define LOADBF16TAIL \
	VMOVDQU16.Z (SI), K1, Y16; \
	VPMOVZXWD   Y16, Z16;      \
	VPSLLD      $16, Z16, Z16

// A step adds w times a block of one row to the row's sums, fused.
#define STEPF32(mem, sums) \
	VFMADD231PS mem, Z16, sums

#define STEPF32TAIL(mem, sums) \
	VFMADD231PS mem, Z16, K1, sums

#define STEPS4(STEP) \
	STEP((R12), Z0);       \
	STEP((R12)(R8*1), Z1); \
	STEP((R12)(R8*2), Z2); \
	STEP((R12)(R9*1), Z3)

#define STEPS8(STEP) \
	STEPS4(STEP);          \
	STEP((R10), Z4);       \
	STEP((R10)(R8*1), Z5); \
	STEP((R10)(R8*2), Z6); \
	STEP((R10)(R9*1), Z7)

// FOLD adds the sums 8 to 15 to the sums 0 to 7.
#define FOLD(z, y) \
	VEXTRACTF64X4 $1, z, Y8; \
	VADDPS        Y8, y, y

// DOTROWS is the body of the kernels. A block of w has wbytes, one of x xbytes.
#define DOTROWS(LOAD, LOADTAIL, STEP, STEPTAIL, wbytes, xbytes) \
	MOVQ dst_base+0(FP), DI;      \
	MOVQ dst_len+8(FP), R11;      \
	MOVQ x_base+48(FP), DX;       \
	MOVQ w_len+32(FP), CX;        \
	IMUL3Q $(xbytes/16), CX, R8;  \
	LEAQ (R8)(R8*2), R9;          \
	MOVL $15, BX;                 \
	ANDL CX, BX;                  \
	MOVL $-1, AX;                 \
	BZHIL BX, AX, BX;             \
	KMOVW BX, K1;                 \
	SHRQ $4, CX;                  \
eight:                            \
	CMPQ R11, $8;                 \
	JLT  four;                    \
	MOVQ w_base+24(FP), SI;       \
	MOVQ DX, R12;                 \
	LEAQ (DX)(R8*4), R10;         \
	LEAQ (DX)(R8*8), DX;          \
	VPXORD Z0, Z0, Z0;            \
	VPXORD Z1, Z1, Z1;            \
	VPXORD Z2, Z2, Z2;            \
	VPXORD Z3, Z3, Z3;            \
	VPXORD Z4, Z4, Z4;            \
	VPXORD Z5, Z5, Z5;            \
	VPXORD Z6, Z6, Z6;            \
	VPXORD Z7, Z7, Z7;            \
	MOVQ CX, AX;                  \
	TESTQ AX, AX;                 \
	JZ   eighttail;               \
eightloop:                        \
	LOAD;                         \
	STEPS8(STEP);                 \
	ADDQ $wbytes, SI;             \
	ADDQ $xbytes, R12;            \
	ADDQ $xbytes, R10;            \
	DECQ AX;                      \
	JNZ  eightloop;               \
eighttail:                        \
	TESTL BX, BX;                 \
	JZ   eightsum;                \
	LOADTAIL;                     \
	STEPS8(STEPTAIL);             \
eightsum:                         \
	FOLD(Z0, Y0);                 \
	FOLD(Z1, Y1);                 \
	FOLD(Z2, Y2);                 \
	FOLD(Z3, Y3);                 \
	FOLD(Z4, Y4);                 \
	FOLD(Z5, Y5);                 \
	FOLD(Z6, Y6);                 \
	FOLD(Z7, Y7);                 \
	SUM4(Y0, Y1, Y2, Y3, X0);     \
	SUM4(Y4, Y5, Y6, Y7, X4);     \
	VMOVUPS X0, (DI);             \
	VMOVUPS X4, 16(DI);           \
	ADDQ $32, DI;                 \
	SUBQ $8, R11;                 \
	JMP  eight;                   \
four:                             \
	CMPQ R11, $4;                 \
	JLT  one;                     \
	MOVQ w_base+24(FP), SI;       \
	MOVQ DX, R12;                 \
	LEAQ (DX)(R8*4), DX;          \
	VPXORD Z0, Z0, Z0;            \
	VPXORD Z1, Z1, Z1;            \
	VPXORD Z2, Z2, Z2;            \
	VPXORD Z3, Z3, Z3;            \
	MOVQ CX, AX;                  \
	TESTQ AX, AX;                 \
	JZ   fourtail;                \
fourloop:                         \
	LOAD;                         \
	STEPS4(STEP);                 \
	ADDQ $wbytes, SI;             \
	ADDQ $xbytes, R12;            \
	DECQ AX;                      \
	JNZ  fourloop;                \
fourtail:                         \
	TESTL BX, BX;                 \
	JZ   foursum;                 \
	LOADTAIL;                     \
	STEPS4(STEPTAIL);             \
foursum:                          \
	FOLD(Z0, Y0);                 \
	FOLD(Z1, Y1);                 \
	FOLD(Z2, Y2);                 \
	FOLD(Z3, Y3);                 \
	SUM4(Y0, Y1, Y2, Y3, X0);     \
	VMOVUPS X0, (DI);             \
	ADDQ $16, DI;                 \
	SUBQ $4, R11;                 \
one:                              \
	TESTQ R11, R11;               \
	JZ   done;                    \
	MOVQ w_base+24(FP), SI;       \
	MOVQ DX, R12;                 \
	ADDQ R8, DX;                  \
	VPXORD Z0, Z0, Z0;            \
	MOVQ CX, AX;                  \
	TESTQ AX, AX;                 \
	JZ   onetail;                 \
oneloop:                          \
	LOAD;                         \
	STEP((R12), Z0);              \
	ADDQ $wbytes, SI;             \
	ADDQ $xbytes, R12;            \
	DECQ AX;                      \
	JNZ  oneloop;                 \
onetail:                          \
	TESTL BX, BX;                 \
	JZ   onesum;                  \
	LOADTAIL;                     \
	STEPTAIL((R12), Z0);          \
onesum:                           \
	FOLD(Z0, Y0);                 \
	SUM1(Y0, X0);                 \
	VMOVSS X0, (DI);              \
	ADDQ $4, DI;                  \
	DECQ R11;                     \
	JMP  one;                     \
done:                             \
	VZEROUPPER;                   \
	RET

// func dotRowsF32AVX512(dst, w, x []float32)
TEXT ·dotRowsF32AVX512(SB), NOSPLIT, $0-72
	DOTROWS(LOADF32, LOADF32TAIL, STEPF32, STEPF32TAIL, 64, 64)

// func dotRowsF16AVX512(dst []float32, w []uint16, x []float32)
TEXT ·dotRowsF16AVX512(SB), NOSPLIT, $0-72
	DOTROWS(LOADF16, LOADF16TAIL, STEPF32, STEPF32TAIL, 32, 64)

// func dotRowsBF16AVX512(dst []float32, w []uint16, x []float32)
TEXT ·dotRowsBF16AVX512(SB), NOSPLIT, $0-72
	DOTROWS(LOADBF16, LOADBF16TAIL, STEPF32, STEPF32TAIL, 32, 64)
