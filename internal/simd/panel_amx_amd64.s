#include "textflag.h"
#include "words_amd64.h"

// Panels with AMX. A step is a group of columns for a block of rows: the tiles
// tmm0 or tmm2 take the products of the activations' high bytes, tmm1 or tmm3
// those of the low ones, and go to a buffer of the frame, from where vectors
// read a row of 16 weight rows each.
//
// Three steps are under way at any time: the products of one, the stores of the
// step before it, whose tiles are the other pair, and the float sums of the step
// before that, from the other buffer. Tiles go through all rows and groups as
// one stream, which begins again when it is at its end.
//
//	SI       activations of the step whose products are next
//	DI       its codes
//	R8       64
//	R9       bytes in a row of activations
//	R13      the buffers
//	DX       dx of the step whose sums are next, AX bytes in a row of it, CX in three
//	R11      Sums, R14 bytes in a row, R15 in three
//	BX       scale
//	R12      min, or 0
//	R10      free
//	Z0-Z15   float sums, a row of activations each
//	Z16-Z23  free
//	Z24      scales of the weight rows
//	Z25      their minima

// PRODUCTS issues the products of a step in two halves.
#define PRODUCTSHIGH(c) \
	TILELOADD(0, regDI, regR8, tmm6); \
	TILELOADD(0, regSI, regR9, tmm4); \
	TILEZERO(c);                      \
	TDPBSSD(tmm6, tmm4, c)

#define PRODUCTSLOW(c) \
	TILELOADD(32, regSI, regR9, tmm5); \
	TILEZERO(c);                       \
	TDPBUSD(tmm6, tmm5, c)

// TILENEXT goes to the next step's tiles, inc being what its activations are
// after these.
#define TILENEXT(inc, label) \
	ADDQ inc, SI;          \
	ADDQ codesinc-40(SP), DI; \
	CMPQ DI, codesend-8(SP); \
	JNE  label;            \
	MOVQ codes+24(FP), DI; \
	ADDQ blockinc-16(SP), SI; \
	CMPQ SI, bytesend-24(SP); \
	JNE  label;            \
	MOVQ bytes+16(FP), SI; \
label:

// ROW adds the products at off of the buffers, whose dx is at p, to acc.
#define ROW(off, p, x, acc) \
	VPSLLD      $8, off(R13), x;     \
	VPADDD      off+1024(R13), x, x; \
	VCVTDQ2PS   x, x;                \
	VMULPS.BCST p, x, x;             \
	VFMADD231PS Z24, x, acc

#define ROWS(off, a, b, c, d) \
	ROW(off+0, (R10), Z16, a);         \
	ROW(off+64, (R10)(AX*1), Z17, b);  \
	ROW(off+128, (R10)(AX*2), Z18, c); \
	ROW(off+192, (R10)(CX*1), Z19, d); \
	LEAQ (R10)(AX*4), R10

#define MINS(off, a, b, c, d) \
	VFMADD231PS.BCST (R10), Z25, a;        \
	VFMADD231PS.BCST (R10)(R14*1), Z25, b; \
	VFMADD231PS.BCST (R10)(R14*2), Z25, c; \
	VFMADD231PS.BCST (R10)(R15*1), Z25, d; \
	LEAQ (R10)(R14*4), R10

// MORE goes on where blocks have more than n rows: 4, 8, 12 or 16.
#define MORE(n, label) \
	CMPQ height+88(FP), $n; \
	JLE  label

// STEP issues products to the tiles c0 and c1, stores d0 and d1 at to, and sums
// what is at from. The last arguments are labels.
#define STEP(c0, c1, d0, d1, from, to, inc, dxinc, tiles, rows4, rows8, rows12, sums) \
	VMOVUPS (BX), Z24;              \
	MOVQ    DX, R10;                \
	PRODUCTSHIGH(c0);               \
	ROWS(from, Z0, Z1, Z2, Z3);     \
	TILESTORED(d0, to, regR13, regR8); \
	MORE(4, rows4);                 \
	ROWS(from+256, Z4, Z5, Z6, Z7); \
rows4:                              \
	PRODUCTSLOW(c1);                \
	TILENEXT(inc, tiles)            \
	MORE(8, rows8);                 \
	ROWS(from+512, Z8, Z9, Z10, Z11);   \
rows8:                              \
	TILESTORED(d1, to+1024, regR13, regR8); \
	MORE(12, rows12);               \
	ROWS(from+768, Z12, Z13, Z14, Z15); \
rows12:                             \
	ADDQ    $64, BX;                \
	ADDQ    dxinc, DX;              \
	TESTQ   R12, R12;               \
	JZ      sums;                   \
	VMOVUPS (R12), Z25;             \
	MOVQ    R11, R10;               \
	ADDQ    $64, R12;               \
	ADDQ    $4, R11;                \
	FOURS(MINS, sums);              \
sums:                               \
	DECQ    left-32(SP)

// FOURS does OP for four rows and four.
#define FOURS(OP, end) \
	OP(0, Z0, Z1, Z2, Z3);       \
	MORE(4, end);                \
	OP(256, Z4, Z5, Z6, Z7);     \
	MORE(8, end);                \
	OP(512, Z8, Z9, Z10, Z11);   \
	MORE(12, end);               \
	OP(768, Z12, Z13, Z14, Z15)

// LOAD and STORE move sums from and to R10.
#define LOAD(off, a, b, c, d) \
	VMOVUPS off+0(R10), a;   \
	VMOVUPS off+64(R10), b;  \
	VMOVUPS off+128(R10), c; \
	VMOVUPS off+192(R10), d

#define STORE(off, a, b, c, d) \
	VMOVUPS a, off+0(R10);   \
	VMOVUPS b, off+64(R10);  \
	VMOVUPS c, off+128(R10); \
	VMOVUPS d, off+192(R10)

// ARGUMENTS loads the registers and the locals.
#define ARGUMENTS \
	MOVQ bytes+16(FP), SI;       \
	MOVQ codes+24(FP), DI;       \
	MOVQ scale+32(FP), BX;       \
	MOVQ min+40(FP), R12;        \
	MOVQ dx+48(FP), DX;          \
	MOVQ sums+56(FP), R11;       \
	MOVQ $64, R8;                \
	MOVQ k+64(FP), AX;           \
	MOVQ AX, R10;                \
	SHLQ $4, R10;                \
	ADDQ DI, R10;                \
	MOVQ R10, codesend-8(SP);    \
	LEAQ (AX)(AX*1), R9;         \
	MOVQ R9, R10;                \
	SHLQ $4, R10;                \
	SUBQ R9, R10;                \
	MOVQ R10, blockinc-16(SP);   \
	ADDQ R9, R10;                \
	IMULQ blocks+8(FP), R10;     \
	ADDQ SI, R10;                \
	MOVQ R10, bytesend-24(SP);   \
	SHRQ $3, AX;                 \
	LEAQ (AX)(AX*2), CX;         \
	MOVQ groups+72(FP), R14;     \
	MOVQ R14, left-32(SP);       \
	SHLQ $2, R14;                \
	LEAQ (R14)(R14*2), R15;      \
	LEAQ buffers-4288(SP), R13;  \
	ADDQ $63, R13;               \
	ANDQ $~63, R13;              \
	MOVQ $512, codesinc-40(SP);  \
	MOVQ $64, inc0-48(SP);       \
	MOVQ $64, inc1-56(SP);       \
	MOVQ $4, dxinc-64(SP)

// func tilesAMX(acc *float32, blocks int, bytes, codes *byte, scale, min, dx, sums *float32, k, groups int, config *tileConfig, height int)
TEXT ·tilesAMX(SB), 0, $4288-96
	ARGUMENTS
	CMPQ AX, R14
	JEQ  wide

	// Two groups of 16 share 64 bytes of activations and a dx.
	MOVQ $256, codesinc-40(SP)
	MOVQ $16, inc0-48(SP)
	MOVQ $48, inc1-56(SP)
	MOVQ $0, dxinc-64(SP)

wide:
	MOVQ config+80(FP), R10
	LDTILECFG(0, regR10)
	PRODUCTSHIGH(tmm0)
	PRODUCTSLOW(tmm1)
	TILENEXT(inc0-48(SP), first)
	PRODUCTSHIGH(tmm2)
	PRODUCTSLOW(tmm3)
	TILENEXT(inc1-56(SP), second)
	TILESTORED(tmm0, 0, regR13, regR8)
	TILESTORED(tmm1, 1024, regR13, regR8)
	MOVQ acc+0(FP), R10
	FOURS(LOAD, loop)

loop:
	STEP(tmm0, tmm1, tmm2, tmm3, 0, 2048, inc0-48(SP), dxinc-64(SP), tiles0, rows40, rows80, rows120, sums0)
	MOVQ $1, R10
	JZ   block

odd:
	STEP(tmm2, tmm3, tmm0, tmm1, 2048, 0, inc1-56(SP), $4, tiles1, rows41, rows81, rows121, sums1)
	JNZ  loop
	XORL R10, R10

block:
	MOVQ R10, parity-72(SP)
	MOVQ acc+0(FP), R10
	FOURS(STORE, stored)

stored:
	DECQ blocks+8(FP)
	JZ   done
	ADDQ $1024, R10
	MOVQ R10, acc+0(FP)
	FOURS(LOAD, loaded)

loaded:
	MOVQ groups+72(FP), R10
	MOVQ R10, left-32(SP)
	MOVQ scale+32(FP), BX
	MOVQ min+40(FP), R12
	LEAQ (CX)(CX*4), R10
	ADDQ R10, DX
	LEAQ (R15)(R15*4), R10
	ADDQ R10, R11
	CMPQ parity-72(SP), $0
	JEQ  loop
	JMP  odd

done:
	TILERELEASE
	VZEROUPPER
	RET

// HIGHLOW turns each eight integers, four in the order 0, 2, 1, 3, to eight high
// bytes and eight low ones.
DATA highlow<>+0(SB)/8, $0x0f0b0d0907030501
DATA highlow<>+8(SB)/8, $0x0e0a0c0806020400
GLOBL highlow<>(SB), RODATA|NOPTR, $16

// func splitAVX512(dst []byte, q []int16)
TEXT ·splitAVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ q_base+24(FP), SI
	MOVQ q_len+32(FP), CX
	VBROADCASTI32X4 highlow<>(SB), Z2
	VMOVDQU64 evens<>(SB), Z3
	SHRQ $5, CX
	JZ   done

loop:
	VMOVDQU8 (SI), Z0
	VPSHUFB  Z2, Z0, Z0
	VPERMQ   Z0, Z3, Z0
	VMOVDQU8 Z0, (DI)
	ADDQ     $64, SI
	ADDQ     $64, DI
	DECQ     CX
	JNZ      loop

done:
	VZEROUPPER
	RET

DATA evens<>+0(SB)/8, $0
DATA evens<>+8(SB)/8, $2
DATA evens<>+16(SB)/8, $4
DATA evens<>+24(SB)/8, $6
DATA evens<>+32(SB)/8, $1
DATA evens<>+40(SB)/8, $3
DATA evens<>+48(SB)/8, $5
DATA evens<>+56(SB)/8, $7
GLOBL evens<>(SB), RODATA|NOPTR, $64
