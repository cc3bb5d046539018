#include "textflag.h"
#include "words_amd64.h"

// Panels with AMX. A tile takes the products of a group's codes with the
// activations' high parts and then those with the low ones, and goes to a buffer of
// the frame, from where vectors read a row of 16 weight rows each.
//
// The numbers are bfloat16 but integers, so that nothing is rounded where it must
// not be, and none is subnormal: codes have at most 8 bits, high parts are 256
// times 8 bits, low ones 8 bits. TDPBF16PS adds, in float32, the products of even
// columns and those of odd ones, then these two sums to each other, and then that
// to the tile. Of high parts all are multiples of 256 below 2^8*32*2^8*2^8 = 2^29,
// and of low ones integers below 2^21: exact in any order. The last addition, high
// + low, is rounded to nearest even, once: it is float32(I).
//
// A step is two groups of columns of a block of rows, and a panel. The activations of
// two groups stay in four tiles while all panels go by: then the only tiles loaded
// are those of codes, and the float sums of all panels, which come from memory and
// go there, stay in the first cache. Codes, which many panels take turns to read, are
// loaded with T1, to stay less in it. Then come the block's next two groups, and at
// last the next block.
//
// Under way are the products of a step, the stores of these and of the second of the
// step before, and the float sums of the one before that. The codes of a group are
// loaded before the products of the last one. With each panel a row of the next
// activations is fetched. The stream of products ends two steps behind that of
// the sums, at its beginning.
//
//	SI       activations that are fetched, a row for each panel
//	DI       codes of the step whose products are next
//	R8       64
//	R9       bytes in a row of activations
//	R13      three buffers, and then what follows
//	BX       the buffer of the step before the one whose products are next
//	R12      that of the one whose sums are next
//	R14      its float sums, R15 bytes in a row of these
//	DX       its dx, AX bytes in a row of them, CX in three
//	R11      its Sums, or 0
//	BP       its scales
//	R10      free
//	Z0-Z11   free
//	Z24, Z25 scales of the weight rows
//	Z26, Z27 their minima
#define CURRENT    6144(R13) // the buffer of the step whose products are next
#define PANELS     6152(R13) // the first tilePanel
#define PANELSEND  6160(R13)
#define TILEPANEL  6168(R13) // whose products are next
#define PANEL      6176(R13) // whose sums are next
#define ACTS       6184(R13) // the first activations
#define PAIRS      6192(R13) // of groups, in a block
#define BLOCKS     6200(R13)
#define ACTSPAIR   6208(R13) // bytes from one pair of groups to the next
#define ACTSBLOCK  6216(R13) // bytes from a block's last pair to the next block
#define CODESPAIR  6224(R13)
#define PAIRCODES  6232(R13) // where codes of the pair are whose products are next
#define NEXTCODES  6240(R13) // where those of the next pair are
#define NEXTACTS   6248(R13) // its activations
#define NEXTPAIRS  6256(R13) // pairs from it on in its block
#define NEXTBLOCKS 6264(R13) // blocks from it on
#define PAIRSCALES 6272(R13) // where scales of the pair are whose sums are next
#define PAIRSLEFT  6280(R13) // pairs from it on
#define PANELROW   6288(R13) // bytes of all panels' sums of a row
#define ACCUP      6296(R13) // bytes from behind a block's sums to the next panel's
#define DXUP       6304(R13) // bytes of a block's dx
#define SUMSUP     6312(R13) // of its Sums, or 0
#define SUMSPAIR   6320(R13) // bytes from one pair to the next, or 0
#define DXBLOCK    6328(R13) // bytes from behind a row's last pair to the next block
#define SUMSBLOCK  6336(R13) // likewise, or 0

// nextPair goes to the next pair's activations, SI, and codes.
TEXT nextPair<>(SB), NOSPLIT, $0-0
	MOVQ NEXTACTS, SI
	MOVQ NEXTCODES, R10
	MOVQ R10, PAIRCODES
	ADDQ CODESPAIR, R10
	MOVQ R10, NEXTCODES
	MOVQ ACTSPAIR, R10
	DECQ NEXTPAIRS
	JNZ  next
	MOVQ PAIRS, R10
	MOVQ R10, NEXTPAIRS
	XORL R10, R10
	MOVQ R10, NEXTCODES
	MOVQ ACTSBLOCK, R10
	DECQ NEXTBLOCKS
	JNZ  next
	MOVQ BLOCKS, R10
	MOVQ R10, NEXTBLOCKS
	MOVQ ACTS, R10
	SUBQ SI, R10

next:
	ADDQ SI, R10
	MOVQ R10, NEXTACTS
	RET

// ACTS32, ACTS16 and ACTS1 load the high and low parts of groups. Two groups of 16
// share 64 activations, of which the high parts come first, and a dx.
#define ACTS32 \
	TILELOADD(0, regSI, regR9, tmm0);   \
	TILELOADD(64, regSI, regR9, tmm1);  \
	TILELOADD(128, regSI, regR9, tmm2); \
	TILELOADD(192, regSI, regR9, tmm3)

#define ACTS16 \
	TILELOADD(0, regSI, regR9, tmm0);  \
	TILELOADD(64, regSI, regR9, tmm1); \
	TILELOADD(32, regSI, regR9, tmm2); \
	TILELOADD(96, regSI, regR9, tmm3)

#define ACTS1 \
	TILELOADD(0, regSI, regR9, tmm0); \
	TILELOADD(64, regSI, regR9, tmm1)

#define FETCH2 \
	PREFETCHT0 (SI); \
	PREFETCHT0 64(SI)

#define FETCH4 \
	FETCH2;            \
	PREFETCHT0 128(SI); \
	PREFETCHT0 192(SI)

// PRODUCTS issues those of a group.
#define PRODUCTS(codes, high, low, c) \
	TILEZERO(c);               \
	TDPBF16PS(codes, high, c); \
	TDPBF16PS(codes, low, c)

// FIRST and SECOND are the products of a step's groups. The second one's codes begin
// so many bytes behind the first one's.
#define FIRST(behind) \
	TILELOADDT1(behind, regDI, regR8, tmm5); \
	TILESTORED(tmm7, 1024, regBX, regR8);    \
	PRODUCTS(tmm4, tmm0, tmm1, tmm6)

#define SECOND(FETCH, LOADACTS, same) \
	MOVQ CURRENT, R10;                  \
	TILESTORED(tmm6, 0, regR10, regR8); \
	PRODUCTS(tmm5, tmm2, tmm3, tmm7);   \
	NEXT(FETCH, LOADACTS, same)

// ONLY is both for a step of one group.
#define ONLY(FETCH, LOADACTS, same) \
	TILESTORED(tmm6, 0, regBX, regR8); \
	PRODUCTS(tmm4, tmm0, tmm1, tmm6);  \
	NEXT(FETCH, LOADACTS, same)

// NEXT loads the codes of the next step, and its activations if they are others.
#define NEXT(FETCH, LOADACTS, same) \
	FETCH;               \
	ADDQ R9, SI;         \
	MOVQ TILEPANEL, R10; \
	ADDQ $40, R10;       \
	CMPQ R10, PANELSEND; \
	JNE  same;           \
	BEGIN(LOADACTS);     \
same:                        \
	MOVQ R10, TILEPANEL; \
	MOVQ (R10), DI;      \
	ADDQ PAIRCODES, DI;  \
	TILELOADDT1(0, regDI, regR8, tmm4)

#define BEGIN(LOADACTS) \
	CALL nextPair<>(SB); \
	LOADACTS;            \
	MOVQ NEXTACTS, SI;   \
	MOVQ PANELS, R10

// ROTATE goes on to the next buffers.
#define ROTATE \
	MOVQ CURRENT, R10; \
	MOVQ R12, CURRENT; \
	MOVQ BX, R12;      \
	MOVQ R10, BX

// ROW2 and ROW1 add the products of two groups or one, at off of the buffer, to acc.
// ROWMIN2 and ROWMIN1 add the minima, too.
#define ROW2(off, acc, dx0, dx1, s0, s1, x, y, z) \
	VMOVUPS     off(R12), x;        \
	VMULPS.BCST dx0, x, x;          \
	VMOVUPS     (off+1024)(R12), y; \
	VMULPS.BCST dx1, y, y;          \
	VMOVUPS     acc, z;             \
	VFMADD231PS Z24, x, z;          \
	VFMADD231PS Z25, y, z;          \
	VMOVUPS     z, acc

#define ROWMIN2(off, acc, dx0, dx1, s0, s1, x, y, z) \
	VMOVUPS          off(R12), x;        \
	VMULPS.BCST      dx0, x, x;          \
	VMOVUPS          (off+1024)(R12), y; \
	VMULPS.BCST      dx1, y, y;          \
	VMOVUPS          acc, z;             \
	VFMADD231PS      Z24, x, z;          \
	VFMADD231PS.BCST s0, Z26, z;         \
	VFMADD231PS      Z25, y, z;          \
	VFMADD231PS.BCST s1, Z27, z;         \
	VMOVUPS          z, acc

#define ROW1(off, acc, dx0, dx1, s0, s1, x, y, z) \
	VMOVUPS     off(R12), x; \
	VMULPS.BCST dx0, x, x;   \
	VMOVUPS     acc, z;      \
	VFMADD231PS Z24, x, z;   \
	VMOVUPS     z, acc

#define ROWMIN1(off, acc, dx0, dx1, s0, s1, x, y, z) \
	VMOVUPS          off(R12), x; \
	VMULPS.BCST      dx0, x, x;   \
	VMOVUPS          acc, z;      \
	VFMADD231PS      Z24, x, z;   \
	VFMADD231PS.BCST s0, Z26, z;  \
	VMOVUPS          z, acc

// FOUR does so for four rows. The second group's dx lie d bytes behind the first one's,
// and a row of Sums is m times as long as one of dx (m2 is twice, m4 four times m).
#define FOUR(ROW, off, d, m, m2, m4) \
	LEAQ (R15)(R15*2), R10; \
	ROW(off, (R14), (DX), d(DX), (R11), 4(R11), Z0, Z1, Z2);                                                   \
	ROW((off+64), (R14)(R15*1), (DX)(AX*1), d(DX)(AX*1), (R11)(AX*m), 4(R11)(AX*m), Z3, Z4, Z5);                \
	ROW((off+128), (R14)(R15*2), (DX)(AX*2), d(DX)(AX*2), (R11)(AX*m2), 4(R11)(AX*m2), Z6, Z7, Z8);             \
	ROW((off+192), (R14)(R10*1), (DX)(CX*1), d(DX)(CX*1), (R11)(CX*m), 4(R11)(CX*m), Z9, Z10, Z11);             \
	LEAQ (R14)(R15*4), R14; \
	LEAQ (DX)(AX*4), DX

#define FOURMIN(ROW, off, d, m, m2, m4) \
	FOUR(ROW, off, d, m, m2, m4); \
	LEAQ (R11)(AX*m4), R11

// MORE goes on where blocks have more than n rows: 4, 8, 12 or 16.
#define MORE(n, label) \
	CMPQ height+96(FP), $n; \
	JLE  label

// EIGHT does so for eight rows, or the first four of them if there are no more than n.
#define EIGHT(ROW, ROWMIN, off, n, d, m, m2, m4, min, done) \
	TESTQ R11, R11;                            \
	JNZ   min;                                 \
	FOUR(ROW, off, d, m, m2, m4);              \
	MORE(n, done);                             \
	FOUR(ROW, (off+256), d, m, m2, m4);        \
	JMP   done;                                \
min:                                               \
	FOURMIN(ROWMIN, off, d, m, m2, m4);        \
	MORE(n, done);                             \
	FOURMIN(ROWMIN, (off+256), d, m, m2, m4);  \
done:

// SCALES loads those of a step, of the panel at R10, last bytes behind the first ones, and fetches some of what the panel has next.
#define SCALES(last, fetch, more, nomin) \
	MOVQ 24(R10), BP;        \
	MOVQ 32(R10), R10;       \
	ADDQ BP, R10;            \
	JMP  more;               \
fetch:                           \
	PREFETCHT1 (BP);         \
	ADDQ $64, BP;            \
more:                            \
	CMPQ BP, R10;            \
	JLT  fetch;              \
	MOVQ PANEL, R10;         \
	MOVQ BP, 24(R10);        \
	MOVQ PAIRSCALES, BP;     \
	ADDQ 8(R10), BP;         \
	VMOVUPS (BP), Z24;       \
	VMOVUPS last(BP), Z25;   \
	TESTQ R11, R11;          \
	JZ   nomin;              \
	MOVQ PAIRSCALES, BP;     \
	ADDQ 16(R10), BP;        \
	VMOVUPS (BP), Z26;       \
	VMOVUPS last(BP), Z27;   \
nomin:

// ARGUMENTS loads the registers and what follows the buffers. A pair of groups has so
// many bytes of activations, codes and dx, and a row of Sums so many of dx.
#define ARGUMENTS(actspair, codespair, dxpair, sumspair) \
	LEAQ  buffers-6407(SP), R13;  \
	ADDQ  $63, R13;               \
	ANDQ  $~63, R13;              \
	MOVQ  R13, BX;                \
	LEAQ  2048(R13), R10;         \
	MOVQ  R10, CURRENT;           \
	LEAQ  4096(R13), R12;         \
	MOVQ  panels+0(FP), R10;      \
	MOVQ  R10, PANELS;            \
	MOVQ  R10, PANEL;             \
	MOVQ  count+8(FP), DI;        \
	LEAQ  (DI)(DI*4), SI;         \
	LEAQ  (R10)(SI*8), R10;       \
	MOVQ  R10, PANELSEND;         \
	SHLQ  $6, DI;                 \
	MOVQ  DI, PANELROW;           \
	MOVQ  k+64(FP), R9;           \
	MOVQ  R9, AX;                 \
	SHRQ  $3, AX;                 \
	LEAQ  (AX)(AX*2), CX;         \
	SHLQ  $2, R9;                 \
	MOVQ  $codespair, DI;         \
	MOVQ  DI, CODESPAIR;          \
	MOVQ  $actspair, DI;          \
	MOVQ  DI, ACTSPAIR;           \
	MOVQ  pairs+24(FP), SI;       \
	MOVQ  SI, PAIRS;              \
	MOVQ  SI, NEXTPAIRS;          \
	MOVQ  SI, PAIRSLEFT;          \
	DECQ  SI;                     \
	IMULQ DI, SI;                 \
	MOVQ  R9, DI;                 \
	SHLQ  $4, DI;                 \
	SUBQ  SI, DI;                 \
	MOVQ  DI, ACTSBLOCK;          \
	MOVQ  blocks+16(FP), DI;      \
	MOVQ  DI, BLOCKS;             \
	MOVQ  DI, NEXTBLOCKS;         \
	MOVQ  acts+32(FP), DI;        \
	MOVQ  DI, ACTS;               \
	MOVQ  DI, NEXTACTS;           \
	XORL  DI, DI;                 \
	MOVQ  DI, NEXTCODES;          \
	MOVQ  DI, PAIRSCALES;         \
	MOVQ  acc+40(FP), R14;        \
	MOVQ  stride+80(FP), R15;     \
	MOVQ  height+96(FP), BP;      \
	MOVQ  R15, DI;                \
	IMULQ BP, DI;                 \
	NEGQ  DI;                     \
	ADDQ  $64, DI;                \
	MOVQ  DI, ACCUP;              \
	MOVQ  dx+48(FP), DX;          \
	MOVQ  AX, DI;                 \
	IMULQ BP, DI;                 \
	MOVQ  DI, DXUP;               \
	MOVQ  AX, DI;                 \
	SHLQ  $4, DI;                 \
	IMUL3Q $dxpair, PAIRS, SI;    \
	SUBQ  SI, DI;                 \
	MOVQ  DI, DXBLOCK;            \
	MOVQ  sums+56(FP), R11;       \
	MOVQ  groups+72(FP), DI;      \
	SHLQ  $2, DI;                 \
	MOVQ  $sumspair, SI;          \
	TESTQ R11, R11;               \
	CMOVQEQ R11, DI;              \
	CMOVQEQ R11, SI;              \
	MOVQ  SI, SUMSPAIR;           \
	IMULQ DI, BP;                 \
	MOVQ  BP, SUMSUP;             \
	SHLQ  $4, DI;                 \
	IMULQ PAIRS, SI;              \
	SUBQ  SI, DI;                 \
	MOVQ  DI, SUMSBLOCK;          \
	MOVQ  $64, R8;                \
	MOVQ  config+88(FP), R10;     \
	LDTILECFG(0, regR10)

// FORWARD goes from one step's sums to the next ones, a pair having so many bytes of
// dx and scales.
#define FORWARD(dxpair, scalespair, panel, done) \
	ROTATE;                       \
	ADDQ ACCUP, R14;              \
	SUBQ DXUP, DX;                \
	SUBQ SUMSUP, R11;             \
	MOVQ PANEL, R10;              \
	ADDQ $40, R10;                \
	CMPQ R10, PANELSEND;          \
	JNE  panel;                   \
	SUBQ PANELROW, R14;           \
	ADDQ $dxpair, DX;             \
	ADDQ SUMSPAIR, R11;           \
	ADDQ $scalespair, PAIRSCALES; \
	MOVQ PANELS, R10;             \
	DECQ PAIRSLEFT;               \
	JNZ  panel;                   \
	DECQ blocks+16(FP);           \
	JZ   done;                    \
	MOVQ R15, R10;                \
	SHLQ $4, R10;                 \
	ADDQ R10, R14;                \
	ADDQ DXBLOCK, DX;             \
	ADDQ SUMSBLOCK, R11;          \
	MOVQ PAIRS, R10;              \
	MOVQ R10, PAIRSLEFT;          \
	XORL R10, R10;                \
	MOVQ R10, PAIRSCALES;         \
	MOVQ PANELS, R10;             \
	JMP  panel;                   \
done:                                 \
	TILERELEASE;                  \
	VZEROUPPER;                   \
	RET

// TILES is the function for pairs of groups.
#define TILES(behind, FETCH, LOADACTS, dxpair, d, m, m2, m4) \
	BEGIN(LOADACTS);                                                     \
	MOVQ R10, TILEPANEL;                                                 \
	MOVQ (R10), DI;                                                      \
	TILELOADDT1(0, regDI, regR8, tmm4);                                  \
	FIRST(behind);                                                       \
	SECOND(FETCH, LOADACTS, same0);                                      \
	ROTATE;                                                              \
	FIRST(behind);                                                       \
	SECOND(FETCH, LOADACTS, same1);                                      \
	ROTATE;                                                              \
	MOVQ PANELS, R10;                                                    \
panel:                                                                       \
	MOVQ R10, PANEL;                                                     \
	SCALES(64, fetch, more, nomin)                                       \
	FIRST(behind);                                                       \
	EIGHT(ROW2, ROWMIN2, 0, 4, d, m, m2, m4, min0, done0)                \
	SECOND(FETCH, LOADACTS, same);                                       \
	MORE(8, done1);                                                      \
	EIGHT(ROW2, ROWMIN2, 512, 12, d, m, m2, m4, min1, done1)             \
	FORWARD(dxpair, 128, panel, done)

// func tiles32AMX(panels *tilePanel, count, blocks, pairs int, acts *uint16, acc, dx, sums *float32, k, groups, stride int, config *tileConfig, height int)
TEXT ·tiles32AMX(SB), 0, $6408-104
	ARGUMENTS(256, 2048, 8, 8)
	TILES(1024, FETCH4, ACTS32, 8, 4, 1, 2, 4)

// func tiles16AMX(panels *tilePanel, count, blocks, pairs int, acts *uint16, acc, dx, sums *float32, k, groups, stride int, config *tileConfig, height int)
TEXT ·tiles16AMX(SB), 0, $6408-104
	ARGUMENTS(128, 1024, 4, 8)
	TILES(512, FETCH2, ACTS16, 4, 0, 2, 4, 8)

// func tiles1AMX(panels *tilePanel, count, blocks, pairs int, acts *uint16, acc, dx, sums *float32, k, groups, stride int, config *tileConfig, height int)
TEXT ·tiles1AMX(SB), 0, $6408-104
	ARGUMENTS(128, 1024, 4, 4)
	BEGIN(ACTS1)
	MOVQ R10, TILEPANEL
	MOVQ (R10), DI
	TILELOADDT1(0, regDI, regR8, tmm4)
	ONLY(FETCH2, ACTS1, same0)
	ROTATE
	ONLY(FETCH2, ACTS1, same1)
	ROTATE
	MOVQ PANELS, R10
panel:
	MOVQ R10, PANEL
	SCALES(0, fetch, more, nomin)
	ONLY(FETCH2, ACTS1, same)
	EIGHT(ROW1, ROWMIN1, 0, 4, 0, 1, 2, 4, min0, done0)
	MORE(8, done1)
	EIGHT(ROW1, ROWMIN1, 512, 12, 0, 1, 2, 4, min1, done1)
	FORWARD(4, 64, panel, done)

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
