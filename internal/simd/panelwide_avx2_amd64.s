#include "textflag.h"

// Panels with AVX2 for many rows: blocks of four rows of activations go over all
// sixteen rows of the panel, whose codes have been widened to 16 bits before.
//
//	DI      sums of the current rows of activations, R15 rows left
//	SI      codes of the current group, DX the weight rows' scales
//	CX      4 times the group's number
//	R8      activations of the first row from the group on
//	R10     bytes in a row of activations, R11 in three
//	R12     scales of the first row's activations, BX from row to row
//	R13     Init of the first row, R14 its Sums, R9 from row to row
//	Y0-Y3   integer sums with the first eight rows of the panel, a row of activations
//	        each; Y4-Y7 those with the others
//	Y8, Y9  columns 0 and 2 of four; Y10, Y11 columns 1 and 3

// func widenCodesAVX2(dst *uint16, codes *byte, vectors int)
TEXT ·widenCodesAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ vectors+16(FP), CX
	VPCMPEQW Y15, Y15, Y15
	VPSRLW   $8, Y15, Y15
loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VPAND   Y15, Y0, Y2
	VPAND   Y15, Y1, Y3
	VPSRLW  $8, Y0, Y0
	VPSRLW  $8, Y1, Y1
	VMOVDQU Y2, (DI)
	VMOVDQU Y3, 32(DI)
	VMOVDQU Y0, 64(DI)
	VMOVDQU Y1, 96(DI)
	ADDQ $64, SI
	ADDQ $128, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// DOT adds the products with four columns of a row of activations.
#define DOT(j, row, a, b) \
	VPBROADCASTD (j*8)row, Y12;   \
	VPBROADCASTD (j*8+4)row, Y13; \
	VPMADDWD     Y8, Y12, Y14;    \
	VPMADDWD     Y9, Y12, Y15;    \
	VPADDD       Y14, a, a;       \
	VPADDD       Y15, b, b;       \
	VPMADDWD     Y10, Y13, Y14;   \
	VPMADDWD     Y11, Y13, Y15;   \
	VPADDD       Y14, a, a;       \
	VPADDD       Y15, b, b

#define QUAD(j) \
	VMOVDQU (j*128)(SI), Y8;      \
	VMOVDQU (j*128+32)(SI), Y9;   \
	VMOVDQU (j*128+64)(SI), Y10;  \
	VMOVDQU (j*128+96)(SI), Y11;  \
	DOT(j, (R8), Y0, Y4);         \
	DOT(j, (R8)(R10*1), Y1, Y5);  \
	DOT(j, (R8)(R10*2), Y2, Y6);  \
	DOT(j, (R8)(R11*1), Y3, Y7)

#define ZERO(sum) VPXOR sum, sum, sum

// SCALED adds a row's integer sums to its float sums; AX is at the scale of its
// activations.
#define SCALED(off, a, b) \
	VBROADCASTSS (AX), Y14;             \
	VCVTDQ2PS    a, a;                  \
	VCVTDQ2PS    b, b;                  \
	VMULPS       Y14, a, a;             \
	VMULPS       Y14, b, b;             \
	VFMADD213PS  (off)(DI), Y12, a;     \
	VFMADD213PS  (off+32)(DI), Y13, b;  \
	ADDQ         BX, AX

// MINIMUM adds the minima times the sum of a row's activations, which AX is at.
#define MINIMUM(a, b) \
	VBROADCASTSS (AX), Y14;     \
	VFMADD231PS  Y14, Y12, a;   \
	VFMADD231PS  Y14, Y13, b;   \
	ADDQ         R9, AX

// func addWideAVX2(acc []float32, codes *uint16, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, stride, dxstride, end int)
TEXT ·addWideAVX2(SB), NOSPLIT, $0-112
	MOVQ acc_base+0(FP), DI
	MOVQ acc_len+8(FP), R15
	SHRQ $4, R15
	MOVQ q+48(FP), R8
	MOVQ dx+56(FP), R12
	MOVQ init+64(FP), R13
	MOVQ sums+72(FP), R14
	MOVQ stride+88(FP), R9
	MOVQ dxstride+96(FP), BX
	MOVQ BX, R10
	SHLQ $4, R10 // 2 bytes for each of 32 columns, for 4 bytes
	LEAQ (R10)(R10*2), R11

four:
	XORL CX, CX
	MOVQ codes+24(FP), SI
	MOVQ scale+32(FP), DX

loop:
	TESTQ R13, R13
	JZ    noinit
	LEAQ  (R13)(CX*1), AX
	VPBROADCASTD (AX), Y0
	VPBROADCASTD (AX)(R9*1), Y1
	LEAQ  (AX)(R9*2), AX
	VPBROADCASTD (AX), Y2
	VPBROADCASTD (AX)(R9*1), Y3
	VMOVDQA Y0, Y4
	VMOVDQA Y1, Y5
	VMOVDQA Y2, Y6
	VMOVDQA Y3, Y7
	JMP   dot
noinit:
	ZERO(Y0); ZERO(Y1); ZERO(Y2); ZERO(Y3); ZERO(Y4); ZERO(Y5); ZERO(Y6); ZERO(Y7)
dot:
	QUAD(0)
	QUAD(1)
	QUAD(2)
	QUAD(3)
	MOVQ CX, AX
	CMPQ group+80(FP), $16
	JEQ  half
	QUAD(4)
	QUAD(5)
	QUAD(6)
	QUAD(7)
	ADDQ $512, SI
	ADDQ $32, R8
	JMP  scales
half:
	SHRQ $1, AX
	ANDQ $~3, AX
scales:
	ADDQ $512, SI
	ADDQ $32, R8
	ADDQ R12, AX
	VMOVUPS (DX), Y12
	VMOVUPS 32(DX), Y13
	SCALED(0, Y0, Y4)
	SCALED(64, Y1, Y5)
	SCALED(128, Y2, Y6)
	SCALED(192, Y3, Y7)
	MOVQ  min+40(FP), AX
	TESTQ AX, AX
	JZ    next
	ADDQ  DX, AX
	SUBQ  scale+32(FP), AX
	VMOVUPS (AX), Y12
	VMOVUPS 32(AX), Y13
	LEAQ  (R14)(CX*1), AX
	MINIMUM(Y0, Y4)
	MINIMUM(Y1, Y5)
	MINIMUM(Y2, Y6)
	MINIMUM(Y3, Y7)
next:
	VMOVUPS Y0, 0(DI)
	VMOVUPS Y4, 32(DI)
	VMOVUPS Y1, 64(DI)
	VMOVUPS Y5, 96(DI)
	VMOVUPS Y2, 128(DI)
	VMOVUPS Y6, 160(DI)
	VMOVUPS Y3, 192(DI)
	VMOVUPS Y7, 224(DI)
	ADDQ $64, DX
	ADDQ $4, CX
	CMPQ CX, end+104(FP)
	JLT  loop

	ADDQ R11, R8 // the loop has moved it by one row already
	LEAQ (R12)(BX*4), R12
	LEAQ (R14)(R9*4), R14
	ADDQ $256, DI
	SUBQ $4, R15
	JZ   done
	TESTQ R13, R13
	JZ   four
	LEAQ (R13)(R9*4), R13
	JMP  four

done:
	VZEROUPPER
	RET
