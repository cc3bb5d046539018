#include "textflag.h"

// Eight rows of Q8_0 as a file has them by a row of activations, with AVX2: a block's
// products have a vector, and eight of these are summed to a lane for each row.
//
//	SI      blocks of the first row, AX those of the fifth, CX left to do
//	R8      bytes from row to row, R9 in three
//	R10     activations, DX their scales
//	Y0-Y7   products; Y12 float sums
//	Y14     the block's activations, in the order of its codes; Y15 the second half
//	Y13     swaps the middle two of four, which Acts.Q has the other way round

DATA middle<>+0(SB)/8, $0x0706030205040100
DATA middle<>+8(SB)/8, $0x0f0e0b0a0d0c0908
GLOBL middle<>(SB), RODATA|NOPTR, $16

// even has the lower half of each of four words.
DATA even<>+0(SB)/8, $0x0d0c090805040100
DATA even<>+8(SB)/8, $0x8080808080808080
GLOBL even<>(SB), RODATA|NOPTR, $16

// DOT makes y the products of a row's block.
#define DOT(row, y) \
	VPMOVSXBW 2 row, y;     \
	VPMOVSXBW 18 row, Y11;  \
	VPMADDWD  Y14, y, y;    \
	VPMADDWD  Y15, Y11, Y11; \
	VPADDD    Y11, y, y

// TWO makes a the sums of halves of pairs of its lanes, and of b's.
#define TWO(b, a) \
	VPUNPCKLDQ b, a, Y11; \
	VPUNPCKHDQ b, a, a;   \
	VPADDD     Y11, a, a

// FOUR does so with what TWO has made.
#define FOUR(b, a) \
	VPUNPCKLQDQ b, a, Y11; \
	VPUNPCKHQDQ b, a, a;   \
	VPADDD      Y11, a, a

// func addBlockRowAVX2(acc *[blockRows]float32, rows *byte, stride, blocks int, q *int16, dx *float32)
TEXT ·addBlockRowAVX2(SB), NOSPLIT, $0-48
	MOVQ acc+0(FP), DI
	MOVQ rows+8(FP), SI
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	MOVQ q+32(FP), R10
	MOVQ dx+40(FP), DX
	LEAQ (R8)(R8*2), R9
	LEAQ (SI)(R8*4), AX
	VMOVUPS (DI), Y12
	VBROADCASTI128 middle<>(SB), Y13
	VBROADCASTI128 even<>(SB), Y10

loop: // fetches what comes in each row
	PREFETCHT0 768(SI)
	PREFETCHT0 768(SI)(R8*1)
	PREFETCHT0 768(SI)(R8*2)
	PREFETCHT0 768(SI)(R9*1)
	PREFETCHT0 768(AX)
	PREFETCHT0 768(AX)(R8*1)
	PREFETCHT0 768(AX)(R8*2)
	PREFETCHT0 768(AX)(R9*1)
	VMOVDQU (R10), Y14
	VMOVDQU 32(R10), Y15
	VPSHUFB Y13, Y14, Y14
	VPSHUFB Y13, Y15, Y15
	DOT((SI), Y0)
	DOT((SI)(R8*1), Y1)
	DOT((SI)(R8*2), Y2)
	DOT((SI)(R9*1), Y3)
	TWO(Y1, Y0)
	TWO(Y3, Y2)
	DOT((AX), Y4)
	DOT((AX)(R8*1), Y5)
	FOUR(Y2, Y0)
	DOT((AX)(R8*2), Y6)
	DOT((AX)(R9*1), Y7)
	TWO(Y5, Y4)
	TWO(Y7, Y6)
	FOUR(Y6, Y4)
	VPBLENDD   $0xf0, Y4, Y0, Y1
	VPERM2I128 $0x21, Y4, Y0, Y0
	VPADDD     Y1, Y0, Y0

	// the blocks' scales, each with two codes behind it
	VPBROADCASTD (SI), Y2
	VPBROADCASTD (SI)(R8*1), Y3
	VPBROADCASTD (SI)(R8*2), Y4
	VPBROADCASTD (SI)(R9*1), Y5
	VPBLENDD     $2, Y3, Y2, Y2
	VPBLENDD     $8, Y5, Y4, Y4
	VPBLENDD     $12, Y4, Y2, Y2
	VPBROADCASTD (AX), Y3
	VPBROADCASTD (AX)(R8*1), Y4
	VPBROADCASTD (AX)(R8*2), Y5
	VPBROADCASTD (AX)(R9*1), Y6
	VPBLENDD     $0x20, Y4, Y3, Y3
	VPBLENDD     $0x80, Y6, Y5, Y5
	VPBLENDD     $0xc0, Y5, Y3, Y3
	VPBLENDD     $0xf0, Y3, Y2, Y2
	VPSHUFB      Y10, Y2, Y2
	VPERMQ       $8, Y2, Y2
	VCVTPH2PS    X2, Y2

	VCVTDQ2PS    Y0, Y0
	VBROADCASTSS (DX), Y1
	VMULPS       Y1, Y0, Y0
	VFMADD231PS  Y2, Y0, Y12
	ADDQ $34, SI
	ADDQ $34, AX
	ADDQ $64, R10
	ADDQ $4, DX
	DECQ CX
	JNZ  loop
	VMOVUPS Y12, (DI)
	VZEROUPPER
	RET
