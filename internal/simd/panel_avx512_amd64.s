#include "textflag.h"

// Panels with AVX-512 and VNNI: a lane of a Z register belongs to a row of the
// weight.
//
//	DI      sums of the current rows of activations, R15 rows left
//	SI      codes of the current group
//	CX      4 times its number
//	R8      activations of the first row from the group on, R9 those of the fifth;
//	        for one row, R9 is what will be read next
//	BX      for more, what will be read next, less the codes
//	R10     bytes in a row of activations, R11 in three
//	R12     scales of the first row's activations; R13, R14 its Init and Sums
//	Z0-Z7   float sums, a row of activations each
//	Z8-Z15  integer sums
//	Z16     64 codes, four columns of a weight row in each lane
//	Z17     their columns 0 and 2 as 16-bit integers, Z18 columns 1 and 3
//	Z19     scales of the weight rows, Z20 minima
//	Z31     255 in each 16-bit integer

#define CODES(j) \
	VMOVDQU32 (j*64)(SI), Z16; \
	VPANDD    Z31, Z16, Z17;   \
	VPSRLW    $8, Z16, Z18

#define QUAD8(j) \
	PREFETCHT0 (j*64)(SI)(BX*1);              \
	CODES(j);                                 \
	VPDPWSSD.BCST (j*8)(R8), Z17, Z8;           \
	VPDPWSSD.BCST (j*8)(R8)(R10*1), Z17, Z9;    \
	VPDPWSSD.BCST (j*8)(R8)(R10*2), Z17, Z10;   \
	VPDPWSSD.BCST (j*8)(R8)(R11*1), Z17, Z11;   \
	VPDPWSSD.BCST (j*8)(R9), Z17, Z12;          \
	VPDPWSSD.BCST (j*8)(R9)(R10*1), Z17, Z13;   \
	VPDPWSSD.BCST (j*8)(R9)(R10*2), Z17, Z14;   \
	VPDPWSSD.BCST (j*8)(R9)(R11*1), Z17, Z15;   \
	VPDPWSSD.BCST (j*8+4)(R8), Z18, Z8;         \
	VPDPWSSD.BCST (j*8+4)(R8)(R10*1), Z18, Z9;  \
	VPDPWSSD.BCST (j*8+4)(R8)(R10*2), Z18, Z10; \
	VPDPWSSD.BCST (j*8+4)(R8)(R11*1), Z18, Z11; \
	VPDPWSSD.BCST (j*8+4)(R9), Z18, Z12;        \
	VPDPWSSD.BCST (j*8+4)(R9)(R10*1), Z18, Z13; \
	VPDPWSSD.BCST (j*8+4)(R9)(R10*2), Z18, Z14; \
	VPDPWSSD.BCST (j*8+4)(R9)(R11*1), Z18, Z15

// Four rows, and one, have their integer sums in two parts each, for want of independent work.
#define QUAD4(j) \
	PREFETCHT0 (j*64)(SI)(BX*1);              \
	CODES(j);                                 \
	VPDPWSSD.BCST (j*8)(R8), Z17, Z8;           \
	VPDPWSSD.BCST (j*8)(R8)(R10*1), Z17, Z9;    \
	VPDPWSSD.BCST (j*8)(R8)(R10*2), Z17, Z10;   \
	VPDPWSSD.BCST (j*8)(R8)(R11*1), Z17, Z11;   \
	VPDPWSSD.BCST (j*8+4)(R8), Z18, Z12;        \
	VPDPWSSD.BCST (j*8+4)(R8)(R10*1), Z18, Z13; \
	VPDPWSSD.BCST (j*8+4)(R8)(R10*2), Z18, Z14; \
	VPDPWSSD.BCST (j*8+4)(R8)(R11*1), Z18, Z15

#define QUAD1(j) \
	PREFETCHT0 (j*64)(R9);            \
	CODES(j);                         \
	VPDPWSSD.BCST (j*8)(R8), Z17, Z8;   \
	VPDPWSSD.BCST (j*8+4)(R8), Z18, Z9

// INIT sets a row's integer sum and steps AX to the next row.
#define INIT(sum) \
	VPBROADCASTD (AX), sum;    \
	ADDQ  stride+88(FP), AX

#define ZERO(sum) VPXORD sum, sum, sum

// SCALED adds a row's integer sum to its float sum; AX is at the scale of its
// activations, BX the step to the next row's.
#define SCALED(sum, acc) \
	VCVTDQ2PS   sum, sum;            \
	VMULPS.BCST (AX), sum, sum;      \
	VFMADD231PS Z19, sum, acc;       \
	ADDQ        BX, AX

// MINIMUM adds the minima times the sum of a row's activations, which AX is at.
#define MINIMUM(acc) \
	VFMADD231PS.BCST (AX), Z20, acc; \
	ADDQ             stride+88(FP), AX

// GROUPS is the loop over groups.
#define GROUPS(r9, loop, noinit, dot, half, scales, next, INITS, ZEROS, QUAD, SCALEDS, MINIMA) \
	XORL  CX, CX;                \
	MOVQ  codes+24(FP), SI;      \
loop:                                \
	TESTQ R13, R13;              \
	JZ    noinit;                \
	LEAQ  (R13)(CX*1), AX;       \
	INITS;                       \
	JMP   dot;                   \
noinit:                              \
	ZEROS;                       \
dot:                                 \
	QUAD(0);                     \
	QUAD(1);                     \
	QUAD(2);                     \
	QUAD(3);                     \
	MOVQ  CX, AX;                \
	CMPQ  group+80(FP), $16;     \
	JEQ   half;                  \
	QUAD(4);                     \
	QUAD(5);                     \
	QUAD(6);                     \
	QUAD(7);                     \
	ADDQ  $256, SI;              \
	ADDQ  $32, R8;               \
	ADDQ  $r9, R9;               \
	JMP   scales;                \
half:                                \
	SHRQ  $1, AX;                \
	ANDQ  $~3, AX;               \
scales:                              \
	ADDQ  $256, SI;              \
	ADDQ  $32, R8;               \
	ADDQ  $r9, R9;               \
	MOVQ  CX, DX;                \
	SHLQ  $4, DX;                \
	MOVQ  scale+32(FP), BX;      \
	VMOVUPS (BX)(DX*1), Z19;     \
	MOVQ  dxstride+96(FP), BX;  \
	ADDQ  R12, AX;               \
	SCALEDS;                     \
	MOVQ  min+40(FP), BX;        \
	TESTQ BX, BX;                \
	JZ    next;                  \
	VMOVUPS (BX)(DX*1), Z20;     \
	LEAQ  (R14)(CX*1), AX;       \
	MINIMA;                      \
next:                                \
	ADDQ  $4, CX;                \
	CMPQ  CX, end+104(FP);       \
	JLT   loop

// AHEAD readies BX. Few rows wait for memory: what is read next must be on its
// way meanwhile.
#define AHEAD \
	MOVQ next+112(FP), BX; \
	SUBQ codes+24(FP), BX

#define INITS8 \
	AHEAD; \
	INIT(Z8); INIT(Z9); INIT(Z10); INIT(Z11); INIT(Z12); INIT(Z13); INIT(Z14); INIT(Z15)

#define ZEROS8 \
	AHEAD; \
	ZERO(Z8); ZERO(Z9); ZERO(Z10); ZERO(Z11); ZERO(Z12); ZERO(Z13); ZERO(Z14); ZERO(Z15)

#define SCALEDS8 \
	SCALED(Z8, Z0); SCALED(Z9, Z1); SCALED(Z10, Z2); SCALED(Z11, Z3); \
	SCALED(Z12, Z4); SCALED(Z13, Z5); SCALED(Z14, Z6); SCALED(Z15, Z7)

#define MINIMA8 \
	MINIMUM(Z0); MINIMUM(Z1); MINIMUM(Z2); MINIMUM(Z3); MINIMUM(Z4); MINIMUM(Z5); MINIMUM(Z6); MINIMUM(Z7)

#define SECONDS4 ZERO(Z12); ZERO(Z13); ZERO(Z14); ZERO(Z15)

#define INITS4 AHEAD; INIT(Z8); INIT(Z9); INIT(Z10); INIT(Z11); SECONDS4

#define ZEROS4 AHEAD; ZERO(Z8); ZERO(Z9); ZERO(Z10); ZERO(Z11); SECONDS4

#define SCALEDS4 \
	VPADDD Z12, Z8, Z8;   \
	VPADDD Z13, Z9, Z9;   \
	VPADDD Z14, Z10, Z10; \
	VPADDD Z15, Z11, Z11; \
	SCALED(Z8, Z0); SCALED(Z9, Z1); SCALED(Z10, Z2); SCALED(Z11, Z3)

#define MINIMA4 MINIMUM(Z0); MINIMUM(Z1); MINIMUM(Z2); MINIMUM(Z3)

#define INITS1 INIT(Z8); ZERO(Z9)

#define ZEROS1 ZERO(Z8); ZERO(Z9)

// The scales of a group of eight bits a code are one line more.
#define SCALEDS1 \
	PREFETCHT0 (R9);     \
	ADDQ   $64, R9;      \
	VPADDD Z9, Z8, Z8;   \
	SCALED(Z8, Z0)

#define MINIMA1 MINIMUM(Z0)

// NEXT moves the pointers to activations by n rows; the loop over groups has
// moved R8 by one already.
#define NEXT(n) \
	IMUL3Q $(n-1), R10, AX;                  \
	ADDQ   AX, R8;                           \
	IMUL3Q $n, dxstride+96(FP), AX;         \
	ADDQ   AX, R12;                          \
	IMUL3Q $n, stride+88(FP), AX;            \
	ADDQ   AX, R14;                          \
	ADDQ   $(64*n), DI;                      \
	SUBQ   $n, R15

// func addPanelAVX512(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, stride, dxstride, end int, next *byte)
TEXT ·addPanelAVX512(SB), NOSPLIT, $0-120
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
	MOVL $0x00ff00ff, AX
	VPBROADCASTD AX, Z31

eight:
	CMPQ R15, $8
	JLT  four
	LEAQ (R8)(R10*4), R9
	VMOVUPS 0(DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS 256(DI), Z4
	VMOVUPS 320(DI), Z5
	VMOVUPS 384(DI), Z6
	VMOVUPS 448(DI), Z7
	GROUPS(32, loop8, noinit8, dot8, half8, scale8, nomin8, INITS8, ZEROS8, QUAD8, SCALEDS8, MINIMA8)
	VMOVUPS Z0, 0(DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VMOVUPS Z4, 256(DI)
	VMOVUPS Z5, 320(DI)
	VMOVUPS Z6, 384(DI)
	VMOVUPS Z7, 448(DI)
	NEXT(8)
	TESTQ R13, R13
	JZ   eight
	ADDQ AX, R13
	JMP  eight

four:
	CMPQ R15, $4
	JLT  one
	VMOVUPS 0(DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	GROUPS(32, loop4, noinit4, dot4, half4, scale4, nomin4, INITS4, ZEROS4, QUAD4, SCALEDS4, MINIMA4)
	VMOVUPS Z0, 0(DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	NEXT(4)
	TESTQ R13, R13
	JZ   one
	ADDQ AX, R13

one:
	TESTQ R15, R15
	JZ   done
	MOVQ next+112(FP), R9
	VMOVUPS (DI), Z0
	GROUPS(256, loop1, noinit1, dot1, half1, scale1, nomin1, INITS1, ZEROS1, QUAD1, SCALEDS1, MINIMA1)
	VMOVUPS Z0, (DI)
	NEXT(1)
	TESTQ R13, R13
	JZ   one
	ADDQ AX, R13
	JMP  one

done:
	VZEROUPPER
	RET
