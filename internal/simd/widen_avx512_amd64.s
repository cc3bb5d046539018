#include "textflag.h"

// Units of a panel as bfloat16 numbers, taken from their planes by a table: a 16-bit
// lane of a plane has the low bits of columns 0 and 2, or after a shift those of
// others, where a permutation looks for its index. It does not look at higher bits.
//
//	DI   the numbers, SI a unit's planes, CX units left
//	Z0   a vector of the plane of four bits
//	Z1, Z2  those of the others
//	Z29  15 in each 16-bit integer
//	Z30, Z31  the table

#define HEAD(done) \
	MOVQ dst_base+0(FP), DI;  \
	MOVQ src_base+24(FP), SI; \
	MOVQ table+48(FP), AX;    \
	VMOVDQU32 (AX), Z31;      \
	VMOVDQU32 64(AX), Z30;    \
	MOVL $0x000f000f, AX;     \
	VPBROADCASTD AX, Z29;     \
	MOVQ dst_len+8(FP), CX;   \
	SHRQ $9, CX;              \
	JZ   done

#define NEXT(in, loop, done) \
	ADDQ $in, SI;    \
	ADDQ $1024, DI;  \
	DECQ CX;         \
	JNZ  loop;       \
done:                    \
	VZEROUPPER;      \
	RET

// SHIFTS makes Z3, Z4 and Z5 of Z0: columns 1 and 3, and both pairs of vector i+4.
#define SHIFTS(i) \
	VMOVDQU32 (i*64)(SI), Z0; \
	VPSRLW    $8, Z0, Z3;     \
	VPSRLW    $4, Z0, Z4;     \
	VPSRLW    $12, Z0, Z5

// STORE stores vectors i and i+4.
#define STORE(i) \
	VMOVDQU32 Z0, (i*128)(DI);     \
	VMOVDQU32 Z3, (i*128+64)(DI);  \
	VMOVDQU32 Z4, (i*128+512)(DI); \
	VMOVDQU32 Z5, (i*128+576)(DI)

#define FOUR(i) \
	SHIFTS(i);            \
	VPERMW Z31, Z0, Z0;   \
	VPERMW Z31, Z3, Z3;   \
	VPERMW Z31, Z4, Z4;   \
	VPERMW Z31, Z5, Z5;   \
	STORE(i)

// func widen4AVX512(dst []uint16, src []byte, table *[64]uint16)
TEXT ·widen4AVX512(SB), NOSPLIT, $0-56
	HEAD(done)
loop:
	FOUR(0)
	FOUR(1)
	FOUR(2)
	FOUR(3)
	NEXT(256, loop, done)

// HIGH puts bits of another plane, shifted by OP, above the low four of index.
#define HIGH(OP, n, bits, index) \
	OP         $n, bits, Z6;        \
	VPTERNLOGD $0xe4, Z29, Z6, index

#define FIVE(i) \
	SHIFTS(i);                   \
	HIGH(VPSLLW, (4-i), Z1, Z0); \
	HIGH(VPSRLW, (4+i), Z1, Z3); \
	HIGH(VPSRLW, i, Z1, Z4);     \
	HIGH(VPSRLW, (8+i), Z1, Z5); \
	VPERMW Z31, Z0, Z0;          \
	VPERMW Z31, Z3, Z3;          \
	VPERMW Z31, Z4, Z4;          \
	VPERMW Z31, Z5, Z5;          \
	STORE(i)

// func widen41AVX512(dst []uint16, src []byte, table *[64]uint16)
TEXT ·widen41AVX512(SB), NOSPLIT, $0-56
	HEAD(done)
loop:
	VMOVDQU32 256(SI), Z1
	FIVE(0)
	FIVE(1)
	FIVE(2)
	FIVE(3)
	NEXT(320, loop, done)

#define SIX(i, n, bits) \
	SHIFTS(i);                     \
	HIGH(VPSLLW, (4-n), bits, Z0); \
	HIGH(VPSRLW, (4+n), bits, Z3); \
	HIGH(VPSRLW, n, bits, Z4);     \
	HIGH(VPSRLW, (8+n), bits, Z5); \
	VPERMI2W Z30, Z31, Z0;         \
	VPERMI2W Z30, Z31, Z3;         \
	VPERMI2W Z30, Z31, Z4;         \
	VPERMI2W Z30, Z31, Z5;         \
	STORE(i)

// func widen42AVX512(dst []uint16, src []byte, table *[64]uint16)
TEXT ·widen42AVX512(SB), NOSPLIT, $0-56
	HEAD(done)
loop:
	VMOVDQU32 256(SI), Z1
	VMOVDQU32 320(SI), Z2
	SIX(0, 0, Z1)
	SIX(1, 0, Z2)
	SIX(2, 2, Z1)
	SIX(3, 2, Z2)
	NEXT(384, loop, done)
