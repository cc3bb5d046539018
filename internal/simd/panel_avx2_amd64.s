#include "textflag.h"

// Panels with AVX2: a lane of a Y register belongs to a row of the weight.
// Blocks of four rows of activations go over the panel's first eight rows and then
// over the others; a row by itself takes all sixteen at once.
//
//	DI      sums of the current rows of activations, R15 rows left
//	SI      codes of the current columns
//	CX      4 times the group's number
//	R8      activations of the first row from the columns on
//	R9      for one row what will be read next, else free
//	R10     bytes in a row of activations, R11 in three
//	R12     scales of the first row's activations; R13, R14 its Init and Sums
//	DX      the first eight rows of the panel, 0, or the others, 32
//	Y0-Y3   integer sums, a row of activations each
//	Y8      columns 0 and 2 of four as 16-bit integers, Y9 columns 1 and 3
//	Y12     scales of the weight rows, Y13 minima
//	Y15     255 in each 16-bit integer

#define CODES(off, even, odd) \
	VMOVDQU (off)(SI), odd;  \
	VPAND   odd, Y15, even;  \
	VPSRLW  $8, odd, odd

// DOT adds the products with four columns of a row of activations.
#define DOT(j, row, sum) \
	VPBROADCASTD (j*8)row, Y10;    \
	VPBROADCASTD (j*8+4)row, Y11;  \
	VPMADDWD     Y8, Y10, Y10;     \
	VPMADDWD     Y9, Y11, Y11;     \
	VPADDD       Y10, sum, sum;    \
	VPADDD       Y11, sum, sum

#define QUAD4(j) \
	CODES(j*64, Y8, Y9);     \
	DOT(j, (R8), Y0);        \
	DOT(j, (R8)(R10*1), Y1); \
	DOT(j, (R8)(R10*2), Y2); \
	DOT(j, (R8)(R11*1), Y3)

// QUAD1 has the sums of columns 0 and 2 in Y0 and Y2, and others in Y1 and Y3.
// One row waits for memory: what is read next must be on its way meanwhile.
#define QUAD1(j) \
	PREFETCHT0   (j*64)(R9);      \
	CODES(j*64, Y4, Y5);          \
	CODES(j*64+32, Y6, Y7);       \
	VPBROADCASTD (j*8)(R8), Y8;   \
	VPBROADCASTD (j*8+4)(R8), Y9; \
	VPMADDWD     Y4, Y8, Y4;      \
	VPMADDWD     Y5, Y9, Y5;      \
	VPMADDWD     Y6, Y8, Y6;      \
	VPMADDWD     Y7, Y9, Y7;      \
	VPADDD       Y4, Y0, Y0;      \
	VPADDD       Y5, Y1, Y1;      \
	VPADDD       Y6, Y2, Y2;      \
	VPADDD       Y7, Y3, Y3

#define ZERO(sum) VPXOR sum, sum, sum

// SCALED adds a row's integer sum to its float sum, row being at the scale of
// its activations.
#define SCALED(row, off, sum) \
	VCVTDQ2PS    sum, sum;            \
	VBROADCASTSS row, Y10;            \
	VMULPS       Y10, sum, sum;       \
	VFMADD213PS  (off)(DI), Y12, sum

// MINIMUM adds the minima times the sum of a row's activations.
#define MINIMUM(row, sum) \
	VBROADCASTSS row, Y10;       \
	VFMADD231PS  Y10, Y13, sum

// GROUPS is the loop over groups. AT sets R9 for 16 columns; SCALEDS begins with
// the scales of the weight rows at (BX), MINIMA with their minima.
#define GROUPS(loop, noinit, dot, more, whole, next, AT, INITS, ZEROS, QUAD, SCALEDS, MINIMA, STORES) \
	XORL  CX, CX;                 \
	MOVQ  codes+24(FP), SI;       \
	ADDQ  DX, SI;                 \
loop:                                 \
	TESTQ R13, R13;               \
	JZ    noinit;                 \
	LEAQ  (R13)(CX*1), AX;        \
	INITS;                        \
	JMP   dot;                    \
noinit:                               \
	ZEROS;                        \
dot:                                  \
	MOVQ  group+80(FP), BX;       \
more:                                 \
	AT;                           \
	QUAD(0);                      \
	QUAD(1);                      \
	QUAD(2);                      \
	QUAD(3);                      \
	ADDQ  $256, SI;               \
	ADDQ  $32, R8;                \
	SUBQ  $16, BX;                \
	JNZ   more;                   \
	MOVQ  CX, AX;                 \
	SHLQ  $4, AX;                 \
	ADDQ  DX, AX;                 \
	MOVQ  scale+32(FP), BX;       \
	ADDQ  AX, BX;                 \
	MOVQ  CX, AX;                 \
	CMPQ  group+80(FP), $32;      \
	JEQ   whole;                  \
	SHRQ  $1, AX;                 \
	ANDQ  $~3, AX;                \
whole:                                \
	ADDQ  R12, AX;                \
	SCALEDS;                      \
	MOVQ  min+40(FP), BX;         \
	TESTQ BX, BX;                 \
	JZ    next;                   \
	MOVQ  CX, AX;                 \
	SHLQ  $4, AX;                 \
	ADDQ  DX, AX;                 \
	ADDQ  AX, BX;                 \
	LEAQ  (R14)(CX*1), AX;        \
	MINIMA;                       \
next:                                 \
	STORES;                       \
	ADDQ  $4, CX;                 \
	CMPQ  CX, end+104(FP);        \
	JLT   loop

#define HERE

#define AHEAD ADDQ $256, R9

#define INITS4 \
	MOVQ         stride+88(FP), BX; \
	LEAQ         (BX)(BX*2), R9;    \
	VPBROADCASTD (AX), Y0;          \
	VPBROADCASTD (AX)(BX*1), Y1;    \
	VPBROADCASTD (AX)(BX*2), Y2;    \
	VPBROADCASTD (AX)(R9*1), Y3

#define ZEROS4 ZERO(Y0); ZERO(Y1); ZERO(Y2); ZERO(Y3)

#define SCALEDS4 \
	VMOVUPS (BX), Y12;               \
	MOVQ    dxstride+96(FP), BX;     \
	LEAQ    (BX)(BX*2), R9;          \
	SCALED((AX), 0, Y0);             \
	SCALED((AX)(BX*1), 64, Y1);      \
	SCALED((AX)(BX*2), 128, Y2);     \
	SCALED((AX)(R9*1), 192, Y3)

#define MINIMA4 \
	VMOVUPS (BX), Y13;               \
	MOVQ    stride+88(FP), BX;       \
	LEAQ    (BX)(BX*2), R9;          \
	MINIMUM((AX), Y0);               \
	MINIMUM((AX)(BX*1), Y1);         \
	MINIMUM((AX)(BX*2), Y2);         \
	MINIMUM((AX)(R9*1), Y3)

#define STORES4 \
	VMOVUPS Y0, 0(DI);   \
	VMOVUPS Y1, 64(DI);  \
	VMOVUPS Y2, 128(DI); \
	VMOVUPS Y3, 192(DI)

// A row by itself has its float sums in Y12 and Y13.
#define INITS1 \
	VPBROADCASTD (AX), Y0;  \
	VMOVDQA      Y0, Y2;    \
	ZERO(Y1); ZERO(Y3)

#define SCALEDS1 \
	VPADDD       Y1, Y0, Y0;        \
	VPADDD       Y3, Y2, Y2;        \
	VCVTDQ2PS    Y0, Y0;            \
	VCVTDQ2PS    Y2, Y2;            \
	VBROADCASTSS (AX), Y10;         \
	VMULPS       Y10, Y0, Y0;       \
	VMULPS       Y10, Y2, Y2;       \
	VFMADD231PS  (BX), Y0, Y12;     \
	VFMADD231PS  32(BX), Y2, Y13

#define MINIMA1 \
	VBROADCASTSS (AX), Y10;         \
	VFMADD231PS  (BX), Y10, Y12;    \
	VFMADD231PS  32(BX), Y10, Y13

#define STORES1

// BACK undoes what the loop over groups moved, for the rows from 8 on.
#define BACK(half) \
	ADDQ $32, DI;   \
	SUBQ R10, R8;   \
	XORQ $32, DX;   \
	JNZ  half

// STEP moves the pointers to activations by n rows.
#define STEP(n, rows) \
	IMUL3Q $n, R10, AX;              \
	ADDQ   AX, R8;                   \
	IMUL3Q $n, dxstride+96(FP), AX;  \
	ADDQ   AX, R12;                  \
	IMUL3Q $n, stride+88(FP), AX;    \
	ADDQ   AX, R14;                  \
	ADDQ   $(64*n-64), DI;           \
	SUBQ   $n, R15;                  \
	TESTQ  R13, R13;                 \
	JZ     rows;                     \
	ADDQ   AX, R13;                  \
	JMP    rows

// func addPanelAVX2(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, stride, dxstride, end int, next *byte)
TEXT ·addPanelAVX2(SB), NOSPLIT, $0-120
	MOVQ acc_base+0(FP), DI
	MOVQ acc_len+8(FP), R15
	SHRQ $4, R15
	MOVQ q+48(FP), R8
	MOVQ dxstride+96(FP), R10
	SHLQ $4, R10 // 2 bytes for each of 32 columns, for 4 bytes
	LEAQ (R10)(R10*2), R11
	MOVQ dx+56(FP), R12
	MOVQ init+64(FP), R13
	MOVQ sums+72(FP), R14
	XORL DX, DX
	VPCMPEQW Y15, Y15, Y15
	VPSRLW $8, Y15, Y15

four:
	CMPQ R15, $4
	JLT  one
half4:
	GROUPS(loop4, noinit4, dot4, more4, whole4, next4, HERE, INITS4, ZEROS4, QUAD4, SCALEDS4, MINIMA4, STORES4)
	BACK(half4)
	STEP(4, four)

one:
	TESTQ R15, R15
	JZ   done
	MOVQ next+112(FP), R9
	SUBQ $256, R9
	VMOVUPS (DI), Y12
	VMOVUPS 32(DI), Y13
	GROUPS(loop1, noinit1, dot1, more1, whole1, next1, AHEAD, INITS1, ZEROS4, QUAD1, SCALEDS1, MINIMA1, STORES1)
	VMOVUPS Y12, (DI)
	VMOVUPS Y13, 32(DI)
	ADDQ $64, DI
	SUBQ R10, R8
	STEP(1, one)

done:
	VZEROUPPER
	RET
