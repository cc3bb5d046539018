#include "textflag.h"
#include "sum_amd64.h"

// Kernels of one vector w of k elements and the rows of x, all in 16 partial
// sums: two Y registers of sums for each row. The k mod 16 last elements of w
// are copied to tail and filled up with -0, so that their products with the
// zeros that VMASKMOVPS loads are -0, which no sum feels.
//
//	DI        dst
//	R11       rows left
//	DX        first of those rows
//	R8, R9    bytes in one and in three rows
//	SI        w from the current block of 16 on
//	R12       row 0 of four from the current block on
//	AX        blocks left
//	BX        k mod 16
//	Y8, Y9    a block of w as float32
//	Y10, Y11  masks of those elements of a block that a tail has

// tailMask has a mask of c lanes, for c up to 16, c elements before its middle.
DATA ·tailMask+0x00(SB)/8, $-1
DATA ·tailMask+0x08(SB)/8, $-1
DATA ·tailMask+0x10(SB)/8, $-1
DATA ·tailMask+0x18(SB)/8, $-1
DATA ·tailMask+0x20(SB)/8, $-1
DATA ·tailMask+0x28(SB)/8, $-1
DATA ·tailMask+0x30(SB)/8, $-1
DATA ·tailMask+0x38(SB)/8, $-1
GLOBL ·tailMask(SB), RODATA|NOPTR, $128

#define LOADF32 \
	VMOVUPS (SI), Y8;   \
	VMOVUPS 32(SI), Y9

#define LOADF16 \
	VCVTPH2PS (SI), Y8;   \
	VCVTPH2PS 16(SI), Y9

#define LOADBF16 \
	VPMOVZXWD (SI), Y8;    \
	VPMOVZXWD 16(SI), Y9;  \
	VPSLLD    $16, Y8, Y8; \
	VPSLLD    $16, Y9, Y9

// A step adds w times a block of one row to the row's sums, fused.
#define STEPF32(mem, lo, hi) \
	VFMADD231PS 0 mem, Y8, lo;  \
	VFMADD231PS 32 mem, Y9, hi

#define STEPF32TAIL(mem, lo, hi) \
	VMASKMOVPS  0 mem, Y10, Y12;  \
	VMASKMOVPS  32 mem, Y11, Y13; \
	VFMADD231PS Y12, Y8, lo;      \
	VFMADD231PS Y13, Y9, hi

#define STEPS4(STEP) \
	STEP((R12), Y0, Y1);       \
	STEP((R12)(R8*1), Y2, Y3); \
	STEP((R12)(R8*2), Y4, Y5); \
	STEP((R12)(R9*1), Y6, Y7)

// COPYTAIL sets the masks, fills tail with minus, which is one or two -0, and
// copies the last elements of w there, of 1<<shift bytes.
#define COPYTAIL(minus, shift) \
	LEAQ    ·tailMask+64(SB), R13;        \
	MOVQ    BX, AX;                        \
	SHLQ    $2, AX;                        \
	SUBQ    AX, R13;                       \
	VMOVUPS (R13), Y10;                    \
	VMOVUPS 32(R13), Y11;                  \
	MOVL    $minus, R13;                   \
	VMOVD   R13, X8;                       \
	VPBROADCASTD X8, Y8;                   \
	VMOVUPS Y8, tail-64(SP);               \
	VMOVUPS Y8, tail-32(SP);               \
	MOVQ    w_base+24(FP), SI;             \
	MOVQ    w_len+32(FP), R13;             \
	SUBQ    BX, R13;                       \
	SHLQ    $shift, R13;                   \
	ADDQ    R13, SI;                       \
	LEAQ    tail-64(SP), R12;              \
	MOVQ    BX, AX;                        \
	SHLQ    $(shift-1), AX;                \
copy:                                      \
	MOVW    -2(SI)(AX*2), R13;             \
	MOVW    R13, -2(R12)(AX*2);            \
	DECQ    AX;                            \
	JNZ     copy

// DOTROWS is the body of the kernels. A block of w has wbytes, one of x xbytes.
#define DOTROWS(LOAD, STEP, STEPTAIL, minus, shift, wbytes, xbytes) \
	MOVQ w_len+32(FP), CX;        \
	MOVL $15, BX;                 \
	ANDQ CX, BX;                  \
	JZ   whole;                   \
	COPYTAIL(minus, shift);       \
whole:                            \
	MOVQ dst_base+0(FP), DI;      \
	MOVQ dst_len+8(FP), R11;      \
	MOVQ x_base+48(FP), DX;       \
	IMUL3Q $(xbytes/16), CX, R8;  \
	LEAQ (R8)(R8*2), R9;          \
	SHRQ $4, CX;                  \
four:                             \
	CMPQ R11, $4;                 \
	JLT  one;                     \
	MOVQ w_base+24(FP), SI;       \
	MOVQ DX, R12;                 \
	LEAQ (DX)(R8*4), DX;          \
	VXORPS Y0, Y0, Y0;            \
	VXORPS Y1, Y1, Y1;            \
	VXORPS Y2, Y2, Y2;            \
	VXORPS Y3, Y3, Y3;            \
	VXORPS Y4, Y4, Y4;            \
	VXORPS Y5, Y5, Y5;            \
	VXORPS Y6, Y6, Y6;            \
	VXORPS Y7, Y7, Y7;            \
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
	TESTQ BX, BX;                 \
	JZ   foursum;                 \
	LEAQ tail-64(SP), SI;         \
	LOAD;                         \
	STEPS4(STEPTAIL);             \
foursum:                          \
	VADDPS Y1, Y0, Y0;            \
	VADDPS Y3, Y2, Y2;            \
	VADDPS Y5, Y4, Y4;            \
	VADDPS Y7, Y6, Y6;            \
	SUM4(Y0, Y2, Y4, Y6, X0);     \
	VMOVUPS X0, (DI);             \
	ADDQ $16, DI;                 \
	SUBQ $4, R11;                 \
	JMP  four;                    \
one:                              \
	TESTQ R11, R11;               \
	JZ   done;                    \
	MOVQ w_base+24(FP), SI;       \
	MOVQ DX, R12;                 \
	ADDQ R8, DX;                  \
	VXORPS Y0, Y0, Y0;            \
	VXORPS Y1, Y1, Y1;            \
	MOVQ CX, AX;                  \
	TESTQ AX, AX;                 \
	JZ   onetail;                 \
oneloop:                          \
	LOAD;                         \
	STEP((R12), Y0, Y1);          \
	ADDQ $wbytes, SI;             \
	ADDQ $xbytes, R12;            \
	DECQ AX;                      \
	JNZ  oneloop;                 \
onetail:                          \
	TESTQ BX, BX;                 \
	JZ   onesum;                  \
	LEAQ tail-64(SP), SI;         \
	LOAD;                         \
	STEPTAIL((R12), Y0, Y1);      \
onesum:                           \
	VADDPS Y1, Y0, Y0;            \
	SUM1(Y0, X0);                 \
	VMOVSS X0, (DI);              \
	ADDQ $4, DI;                  \
	DECQ R11;                     \
	JMP  one;                     \
done:                             \
	VZEROUPPER;                   \
	RET

// func dotRowsF32AVX2(dst, w, x []float32)
TEXT ·dotRowsF32AVX2(SB), NOSPLIT, $64-72
	DOTROWS(LOADF32, STEPF32, STEPF32TAIL, 0x80000000, 2, 64, 64)

// func dotRowsF16AVX2(dst []float32, w []uint16, x []float32)
TEXT ·dotRowsF16AVX2(SB), NOSPLIT, $64-72
	DOTROWS(LOADF16, STEPF32, STEPF32TAIL, 0x80008000, 1, 32, 64)

// func dotRowsBF16AVX2(dst []float32, w []uint16, x []float32)
TEXT ·dotRowsBF16AVX2(SB), NOSPLIT, $64-72
	DOTROWS(LOADBF16, STEPF32, STEPF32TAIL, 0x80008000, 1, 32, 64)
