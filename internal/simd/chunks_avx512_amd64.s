#include "textflag.h"

// Eight rows, and four, with AVX-512: chunks of a panel as they are stored, of codes of
// eight bits and scales that are binary16. Nothing is called between chunks, as for one
// row. The rows of a chunk's activations lie at constant distances.
//
//	BX       the chunk, R11 left
//	SI       codes of the unit, CX left of the chunk
//	R10      its scales
//	R9       what is fetched meanwhile: nine lines for each unit, which hold all of a chunk
//	R8       activations, R12 their scales, R13 their Init
//	Z0-Z7    float sums, a row each
//	Z8-Z15   integer sums
//	Z16      64 codes, four columns of a weight row in each lane
//	Z17      their columns 0 and 2 as 16-bit integers, Z18 columns 1 and 3
//	Z19      scales of the weight rows
//	Z31      255 in each 16-bit integer

// NEAR and FAR are how many bytes before its use memory is fetched to the first cache
// and to the second. One row waits for memory all the time, and its kernel reads as fast
// with one distance. Here both take about as long, and memory is not always as fast.
#define NEAR 2048
#define FAR  12288

#define FETCH(i) \
	PREFETCHT0 (i*64)(R9); \
	PREFETCHT1 (i*64+FAR-NEAR)(R9)

// ROW is the bytes of a row of a chunk's activations, and FLOATS those of its scales.
#define ROW 512
#define FLOATS 32

// CODES loads vector j of a unit.
#define CODES(j) \
	FETCH(j);                  \
	VMOVDQU32 (j*64)(SI), Z16; \
	VPANDD    Z31, Z16, Z17;   \
	VPSRLW    $8, Z16, Z18

#define PRODUCTS4(at, codes, t, a, b, c, d) \
	VPDPWSSD.BCST (at+t*ROW)(R8), codes, a;       \
	VPDPWSSD.BCST (at+t*ROW+ROW)(R8), codes, b;   \
	VPDPWSSD.BCST (at+t*ROW+2*ROW)(R8), codes, c; \
	VPDPWSSD.BCST (at+t*ROW+3*ROW)(R8), codes, d

#define LOW(at, codes)  PRODUCTS4(at, codes, 0, Z8, Z9, Z10, Z11)
#define HIGH(at, codes) PRODUCTS4(at, codes, 4, Z12, Z13, Z14, Z15)

#define VECTOR4(j) \
	CODES(j);         \
	LOW(j*8, Z17);    \
	LOW(j*8+4, Z18)

#define VECTOR8(j) \
	CODES(j);         \
	LOW(j*8, Z17);    \
	HIGH(j*8, Z17);   \
	LOW(j*8+4, Z18);  \
	HIGH(j*8+4, Z18)

#define EACH4(OP) \
	OP(0, Z0, Z8);  \
	OP(1, Z1, Z9);  \
	OP(2, Z2, Z10); \
	OP(3, Z3, Z11)

#define EACH8(OP) \
	EACH4(OP);      \
	OP(4, Z4, Z12); \
	OP(5, Z5, Z13); \
	OP(6, Z6, Z14); \
	OP(7, Z7, Z15)

#define LOAD(t, acc, sum) VMOVUPS (64*t)(DI), acc
#define PUT(t, acc, sum)  VMOVUPS acc, (64*t)(DI)
#define INIT(t, acc, sum) VPBROADCASTD (t*FLOATS)(R13), sum

#define SUM(t, acc, sum) \
	VCVTDQ2PS   sum, sum;                    \
	VMULPS.BCST (t*FLOATS)(R12), sum, sum;   \
	VFMADD231PS Z19, sum, acc

// ROWS is the function for so many rows.
#define ROWS(rows, EACH, VECTOR) \
	MOVQ acc+0(FP), DI;           \
	MOVQ data+8(FP), BX;          \
	MOVQ q+16(FP), R8;            \
	MOVQ dx+24(FP), R12;          \
	MOVQ init+32(FP), R13;        \
	MOVQ chunks+40(FP), R11;      \
	MOVL $0x00ff00ff, AX;         \
	VPBROADCASTD AX, Z31;         \
	EACH(LOAD);                   \
chunk:                                \
	MOVQ BX, R10;                 \
	MOVQ BX, SI;                  \
	ADDQ scales+48(FP), SI;       \
	LEAQ NEAR(BX), R9;            \
	MOVQ $8, CX;                  \
unit:                                 \
	EACH(INIT);                   \
	VECTOR(0);                    \
	VECTOR(1);                    \
	VECTOR(2);                    \
	VECTOR(3);                    \
	VECTOR(4);                    \
	VECTOR(5);                    \
	VECTOR(6);                    \
	VECTOR(7);                    \
	FETCH(8);                     \
	VCVTPH2PS (R10), Z19;         \
	EACH(SUM);                    \
	ADDQ $32, R10;                \
	ADDQ $512, SI;                \
	ADDQ $576, R9;                \
	ADDQ $64, R8;                 \
	ADDQ $4, R12;                 \
	ADDQ $4, R13;                 \
	DECQ CX;                      \
	JNZ  unit;                    \
	ADDQ $((rows-1)*ROW), R8;     \
	ADDQ $((rows-1)*FLOATS), R12; \
	ADDQ $((rows-1)*FLOATS), R13; \
	ADDQ stride+56(FP), BX;       \
	DECQ R11;                     \
	JNZ  chunk;                   \
	EACH(PUT);                    \
	VZEROUPPER;                   \
	RET

// func addChunks4AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)
TEXT ·addChunks4AVX512(SB), NOSPLIT, $0-64
	ROWS(4, EACH4, VECTOR4)

// func addChunks8AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)
TEXT ·addChunks8AVX512(SB), NOSPLIT, $0-64
	ROWS(8, EACH8, VECTOR8)
