#include "textflag.h"
#include "words_amd64.h"

// Panels with AMX. A step is a group of columns for a block of rows. Its tile
// takes the products of the codes with the activations' high parts and then those
// with the low ones, and goes to a buffer of the frame, from where vectors read a
// row of 16 weight rows each.
//
// The numbers are bfloat16 but integers, so that nothing is rounded where it must
// not be, and none is subnormal: codes have at most 8 bits, high parts are 256
// times 8 bits, low ones 8 bits. TDPBF16PS adds, in float32, the products of even
// columns and those of odd ones, then these two sums to each other, and then that
// to the tile. Of high parts all are multiples of 256 below 2^8*32*2^8*2^8 = 2^29,
// and of low ones integers below 2^21: exact in any order. The last addition, high
// + low, is rounded to nearest even, once: it is float32(I).
//
// Four steps are under way at any time: the products of one, those of the step
// before it, the store of the step before that, and the float sums of the first,
// from the other buffer. The stream of steps goes through a block of rows with each
// panel, so that its activations come from the first cache, and then to the next
// block; that of the products begins again when it is at its end. With each of
// sixteen panels a row of the next block is fetched to the second cache, and codes,
// which many panels take turns to read, are loaded with T1, to stay less in the first.
//
//	SI       activations of the step whose products are next
//	DI       its codes, which end at R14
//	R8       64
//	R9       bytes in a row of activations
//	BX       how far from SI what is fetched next lies
//	R13      the buffers, and then what follows
//	DX       dx of the step whose sums are next, AX bytes in a row of it, CX in three
//	R11      Sums, or 0
//	BP       scale
//	R12      rows in a block
//	R15      groups left of the block
//	R10      free
//	Z0-Z15   float sums, a row of activations each
//	Z16-Z23  free
//	Z24      scales of the weight rows
//	Z25      their minima
#define PANELS     2048(R13) // the first tilePanel
#define PANELSEND  2056(R13)
#define ACTS       2064(R13) // the first activations
#define ACTSEND    2072(R13)
#define CODESBYTES 2080(R13) // of a panel's codes
#define BLOCKBYTES 2088(R13) // of a block's activations
#define TILEPANEL  2096(R13) // whose products are next
#define PANEL      2104(R13) // whose sums are next
#define DONE       2112(R13) // bytes of acc in the blocks before
#define APART      2120(R13) // min - scale
#define SUMSBYTES  2128(R13) // in a row of Sums, or 0
#define NEXTSTEP   2136(R13)

// HIGH and LOW issue the products of a step.
#define HIGH(c) \
	TILELOADDT1(0, regDI, regR8, tmm6); \
	TILELOADD(0, regSI, regR9, tmm4);   \
	PREFETCHT1 (SI)(BX*1);              \
	PREFETCHT1 64(SI)(BX*1);            \
	TILEZERO(c);                        \
	TDPBF16PS(tmm6, tmm4, c)

#define LOW(c) \
	TILELOADD(64, regSI, regR9, tmm5); \
	TDPBF16PS(tmm6, tmm5, c)

// TILENEXT goes to the next step's tiles, inc and codesinc bytes from these.
#define TILENEXT(inc, codesinc, label) \
	ADDQ $inc, SI;       \
	ADDQ $codesinc, DI;  \
	CMPQ DI, R14;        \
	JNE  label;          \
	CALL nextPanel<>(SB); \
label:

// nextPanel goes to the next panel's tiles. SI is a row behind the block's first.
TEXT nextPanel<>(SB), NOSPLIT, $0-0
	SUBQ R9, SI
	ADDQ R9, BX
	MOVQ TILEPANEL, DI
	ADDQ $48, DI
	CMPQ DI, PANELSEND
	JNE  panel
	MOVQ PANELS, DI
	MOVQ BLOCKBYTES, BX
	ADDQ BX, SI
	CMPQ SI, ACTSEND
	JNE  panel
	MOVQ ACTS, SI

panel:
	MOVQ DI, TILEPANEL
	MOVQ (DI), DI
	MOVQ DI, R14
	ADDQ CODESBYTES, R14
	RET

// ROW adds the products at off of the buffers, whose dx is at p, to acc.
#define ROW(off, p, x, acc) \
	VMOVUPS     off(R13), x; \
	VMULPS.BCST p, x, x;     \
	VFMADD231PS Z24, x, acc

#define ROWS(off, a, b, c, d) \
	ROW(off+0, (R10), Z16, a);         \
	ROW(off+64, (R10)(AX*1), Z17, b);  \
	ROW(off+128, (R10)(AX*2), Z18, c); \
	ROW(off+192, (R10)(CX*1), Z19, d); \
	LEAQ (R10)(AX*4), R10

// MINS32 and MINS16 add the minima, a row of Sums being as long as one of dx, or
// twice as long.
#define MINS32(off, a, b, c, d) \
	VFMADD231PS.BCST (R10), Z25, a;       \
	VFMADD231PS.BCST (R10)(AX*1), Z25, b; \
	VFMADD231PS.BCST (R10)(AX*2), Z25, c; \
	VFMADD231PS.BCST (R10)(CX*1), Z25, d; \
	LEAQ (R10)(AX*4), R10

#define MINS16(off, a, b, c, d) \
	VFMADD231PS.BCST (R10), Z25, a;       \
	VFMADD231PS.BCST (R10)(AX*2), Z25, b; \
	VFMADD231PS.BCST (R10)(AX*4), Z25, c; \
	VFMADD231PS.BCST (R10)(CX*2), Z25, d; \
	LEAQ (R10)(AX*8), R10

// MORE goes on where blocks have more than n rows: 4, 8, 12 or 16.
#define MORE(n, label) \
	CMPQ R12, $n; \
	JLE  label

// STEP issues products to the tile c, stores d at to, and sums what is at from.
// The last arguments are labels.
#define STEP(c, d, from, to, inc, codesinc, dxinc, MINS, tiles, rows4, rows8, rows12, sums) \
	VMOVUPS (BP), Z24;              \
	MOVQ    DX, R10;                \
	HIGH(c);                        \
	ROWS(from, Z0, Z1, Z2, Z3);     \
	TILESTORED(d, to, regR13, regR8); \
	MORE(4, rows4);                 \
	ROWS(from+256, Z4, Z5, Z6, Z7); \
rows4:                              \
	LOW(c);                         \
	TILENEXT(inc, codesinc, tiles)  \
	MORE(8, rows8);                 \
	ROWS(from+512, Z8, Z9, Z10, Z11);   \
rows8:                              \
	MORE(12, rows12);               \
	ROWS(from+768, Z12, Z13, Z14, Z15); \
rows12:                             \
	ADDQ    $dxinc, DX;             \
	TESTQ   R11, R11;               \
	JZ      sums;                   \
	MOVQ    APART, R10;             \
	VMOVUPS (BP)(R10*1), Z25;       \
	MOVQ    R11, R10;               \
	ADDQ    $4, R11;                \
	FOURS(MINS, sums);              \
sums:                               \
	ADDQ    $64, BP;                \
	DECQ    R15

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

// ARGUMENTS loads the registers and what follows the buffers.
#define ARGUMENTS \
	LEAQ buffers-2207(SP), R13;   \
	ADDQ $63, R13;                \
	ANDQ $~63, R13;               \
	MOVQ panels+0(FP), DI;        \
	MOVQ DI, PANELS;              \
	MOVQ DI, TILEPANEL;           \
	MOVQ count+8(FP), R10;        \
	IMUL3Q $48, R10, R10;         \
	ADDQ DI, R10;                 \
	MOVQ R10, PANELSEND;          \
	MOVQ k+48(FP), AX;            \
	MOVQ AX, R14;                 \
	SHLQ $5, R14;                 \
	MOVQ R14, CODESBYTES;         \
	MOVQ (DI), DI;                \
	ADDQ DI, R14;                 \
	MOVQ AX, R9;                  \
	SHLQ $2, R9;                  \
	MOVQ R9, R10;                 \
	SHLQ $4, R10;                 \
	MOVQ R10, BLOCKBYTES;         \
	MOVQ R10, BX;                 \
	IMULQ blocks+16(FP), R10;     \
	MOVQ acts+24(FP), SI;         \
	MOVQ SI, ACTS;                \
	ADDQ SI, R10;                 \
	MOVQ R10, ACTSEND;            \
	MOVQ dx+32(FP), DX;           \
	SHRQ $3, AX;                  \
	LEAQ (AX)(AX*2), CX;          \
	MOVQ sums+40(FP), R11;        \
	MOVQ groups+56(FP), R10;      \
	SHLQ $2, R10;                 \
	TESTQ R11, R11;               \
	CMOVQEQ R11, R10;             \
	MOVQ R10, SUMSBYTES;          \
	MOVQ height+72(FP), R12;      \
	MOVQ $64, R8;                 \
	MOVQ config+64(FP), R10;      \
	LDTILECFG(0, regR10);         \
	XORL R10, R10;                \
	MOVQ R10, DONE;               \
	MOVQ R10, NEXTSTEP

// TILES is the function. even and odd lead from the activations of such a group
// to those of the next one.
#define TILES(even, odd, codesinc, dxinc, MINS) \
	ARGUMENTS;                               \
	HIGH(tmm0);                              \
	LOW(tmm0);                               \
	TILENEXT(even, codesinc, first)          \
	HIGH(tmm1);                              \
	LOW(tmm1);                               \
	TILENEXT(odd, codesinc, second)          \
	HIGH(tmm2);                              \
	LOW(tmm2);                               \
	TILENEXT(even, codesinc, third)          \
	TILESTORED(tmm0, 0, regR13, regR8);      \
	MOVQ PANELS, R10;                        \
	JMP  panel;                              \
step0:                                       \
	STEP(tmm3, tmm1, 0, 1024, odd, codesinc, dxinc, MINS, tiles0, rows40, rows80, rows120, sums0); \
	MOVQ $1, R10;                            \
	JZ   end;                                \
step1:                                       \
	STEP(tmm0, tmm2, 1024, 0, even, codesinc, 4, MINS, tiles1, rows41, rows81, rows121, sums1); \
	MOVQ $2, R10;                            \
	JZ   end;                                \
step2:                                       \
	STEP(tmm1, tmm3, 0, 1024, odd, codesinc, dxinc, MINS, tiles2, rows42, rows82, rows122, sums2); \
	MOVQ $3, R10;                            \
	JZ   end;                                \
step3:                                       \
	STEP(tmm2, tmm0, 1024, 0, even, codesinc, 4, MINS, tiles3, rows43, rows83, rows123, sums3); \
	JNZ  step0;                              \
	XORL R10, R10;                           \
end:                                         \
	MOVQ R10, NEXTSTEP;                      \
	MOVQ PANEL, R10;                         \
	MOVQ 24(R10), R10;                       \
	ADDQ DONE, R10;                          \
	FOURS(STORE, stored);                    \
stored:                                      \
	SUBQ AX, DX;                             \
	SUBQ SUMSBYTES, R11;                     \
	MOVQ PANEL, R10;                         \
	ADDQ $48, R10;                           \
	CMPQ R10, PANELSEND;                     \
	JNE  panel;                              \
	DECQ blocks+16(FP);                      \
	JZ   done;                               \
	ADDQ $1024, DONE;                        \
	MOVQ AX, R10;                            \
	SHLQ $4, R10;                            \
	ADDQ R10, DX;                            \
	MOVQ SUMSBYTES, R10;                     \
	SHLQ $4, R10;                            \
	ADDQ R10, R11;                           \
	MOVQ PANELS, R10;                        \
panel:                                       \
	MOVQ R10, PANEL;                         \
	MOVQ 32(R10), BP;                        \
	MOVQ 40(R10), R15;                       \
	ADDQ $1, R15;                            \
	JMP  more;                               \
fetch:                                       \
	PREFETCHT1 (BP);                         \
	ADDQ $64, BP;                            \
more:                                        \
	DECQ R15;                                \
	JNZ  fetch;                              \
	MOVQ BP, 32(R10);                        \
	MOVQ 8(R10), BP;                         \
	MOVQ 16(R10), R15;                       \
	SUBQ BP, R15;                            \
	MOVQ R15, APART;                         \
	MOVQ groups+56(FP), R15;                 \
	MOVQ 24(R10), R10;                       \
	ADDQ DONE, R10;                          \
	FOURS(LOAD, loaded);                     \
loaded:                                      \
	MOVQ NEXTSTEP, R10;                      \
	CMPQ R10, $1;                            \
	JLT  step0;                              \
	JEQ  step1;                              \
	CMPQ R10, $2;                            \
	JEQ  step2;                              \
	JMP  step3;                              \
done:                                        \
	TILERELEASE;                             \
	VZEROUPPER;                              \
	RET

// func tiles32AMX(panels *tilePanel, count, blocks int, acts *uint16, dx, sums *float32, k, groups int, config *tileConfig, height int)
TEXT ·tiles32AMX(SB), 0, $2208-80
	TILES(128, 128, 1024, 4, MINS32)

// Two groups of 16 share 64 activations, of which the high parts come first, and a dx.

// func tiles16AMX(panels *tilePanel, count, blocks int, acts *uint16, dx, sums *float32, k, groups int, config *tileConfig, height int)
TEXT ·tiles16AMX(SB), 0, $2208-80
	TILES(32, 96, 512, 0, MINS16)

// INTEGERS sets every element of z.
#define INTEGERS(n, z) \
	MOVL         $n, AX; \
	VPBROADCASTD AX, z

// PAIR joins bfloat16 numbers that are the upper halves of low and high.
#define PAIR(low, high) \
	VPSRLD $16, low, low; \
	VPORD  low, high, high

// func splitAVX512(dst []uint16, q []int16)
TEXT ·splitAVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ q_base+24(FP), SI
	MOVQ q_len+32(FP), CX
	INTEGERS(255, Z16)
	SHRQ $5, CX
	JZ   done

loop:
	VMOVDQU32 (SI), Z0
	VPSLLD    $16, Z0, Z1
	VPSRAD    $16, Z1, Z1
	VPSRAD    $16, Z0, Z2
	VPANDD    Z16, Z1, Z3
	VPANDD    Z16, Z2, Z4
	VPSUBD    Z3, Z1, Z1
	VPSUBD    Z4, Z2, Z2
	VCVTDQ2PS Z1, Z1
	VCVTDQ2PS Z2, Z2
	VCVTDQ2PS Z3, Z3
	VCVTDQ2PS Z4, Z4
	PAIR(Z1, Z2)
	PAIR(Z3, Z4)
	VMOVDQU32 Z2, (DI)
	VMOVDQU32 Z4, 64(DI)
	ADDQ      $64, SI
	ADDQ      $128, DI
	DECQ      CX
	JNZ       loop

done:
	VZEROUPPER
	RET

// MAGIC makes the float32 2^23 + the low byte of each element of z.
#define MAGIC(z) VPTERNLOGD $0xea, Z17, Z16, z

// func widenAVX512(dst []uint16, codes []byte, offset byte)
TEXT ·widenAVX512(SB), NOSPLIT, $0-49
	MOVQ dst_base+0(FP), DI
	MOVQ codes_base+24(FP), SI
	MOVQ codes_len+32(FP), CX
	INTEGERS(255, Z16)
	INTEGERS(0x4b000000, Z17)
	MOVBLZX      offset+48(FP), DX
	ORL          DX, AX
	VPBROADCASTD AX, Z18
	SHRQ         $6, CX
	JZ           done

loop:
	VMOVDQU32 (SI), Z0
	VPSRLD    $8, Z0, Z1
	VPSRLD    $16, Z0, Z2
	VPSRLD    $24, Z0, Z3
	MAGIC(Z0)
	MAGIC(Z1)
	MAGIC(Z2)
	VPORD     Z17, Z3, Z3
	VSUBPS    Z18, Z0, Z0
	VSUBPS    Z18, Z1, Z1
	VSUBPS    Z18, Z2, Z2
	VSUBPS    Z18, Z3, Z3
	PAIR(Z0, Z2)
	PAIR(Z1, Z3)
	VMOVDQU32 Z2, (DI)
	VMOVDQU32 Z3, 64(DI)
	ADDQ      $64, SI
	ADDQ      $128, DI
	DECQ      CX
	JNZ       loop

done:
	VZEROUPPER
	RET
