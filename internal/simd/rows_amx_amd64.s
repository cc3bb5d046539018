#include "textflag.h"
#include "words_amd64.h"

// Few rows with AMX: whole panels as they are stored. A step is two groups of
// columns. One product is of the high bytes of all rows' activations, and one of the
// low ones; of a tile's rows the first half are for the first group and the others for
// the second, with zeros where the other group's columns are. So the sums of both
// groups, of eight rows, fill a tile: what it takes to store it does not depend on that.
//
// Under way are, of a step, the unpacking of codes; of that two steps before, the
// products; of the one before that, their store and the float sums. (A tile cannot be
// loaded from what has just been stored, and waits until that is in the cache.) The
// stream goes on from panel to panel; behind the last one the first is read again.
//
//	BX       the chunk whose codes are unpacked
//	SI       codes of the next unit
//	R9       what is fetched meanwhile
//	R8       activations of the step whose products are next, R14 of that whose sums are
//	R10      scales of the latter
//	DI       sums
//	CX       twos of steps left of the chunk
//	R11      bytes of a tile of activations
//	R12      64
//	R13      64 times the rows
//	R15      the buffers: codes of two steps, and products with high and with low bytes
//	AX, DX   free
//	Z0-Z7    sums, a row each
//	Z16-Z20  free
//	Z21, Z22 what scales and minima that are bytes are multiplied by
//	Z24, Z25 scales and minima
//	Z26      a vector of the plane of one bit
//	Z28      its bits, or the matrix of codes in low halves of bytes
//	Z29      the table, or the matrix of codes in high halves
//	Z30      low halves of bytes
#define HIGHS   2048
#define LOWS    3072
#define CHUNKS  4096(R15) // left of the panel, for codes
#define PANELS  4104(R15)
#define UNPACKS 4112(R15) // twos of steps left of the chunk, for codes
#define SCALED  4120(R15) // chunks left of the panel, for sums
#define SUMMED  4128(R15) // panels left
#define CHUNK   4136(R15) // whose sums are next
#define GAP     4144(R15) // bytes between a panel's last chunk and the next panel
#define ACTSEND 4152(R15)

// HEADER is the bytes before the activations of a step, as Join makes them: DX, Init
// and Sums.
#define HEADER 192

// FACTORED says whether scales are bytes and a factor, SCALEBYTES how many bytes those
// of a group take, MINIMA whether there are minima, and STARTED whether sums start
// from Init.
#define FACTORED   bytes+80(FP)
#define MINIMA     min+88(FP)
#define STARTED    init+96(FP)
#define SCALEBYTES 4160(R15)

// AHEAD is how many bytes before its use memory is fetched: 3.5 KB do as well as 6, and
// 12 are worse.
#define AHEAD 3584

#define FETCH(i) PREFETCHT0 (i*64)(R9)

// NEAR and FAR are those of codes of eight bits, to the first cache and to the second.
#define NEAR 2048
#define FAR  12288

#define BOTH(i) \
	PREFETCHT0 (i*64+NEAR-AHEAD)(R9); \
	PREFETCHT1 (i*64+FAR-AHEAD)(R9)

#define BYTES(n, z) \
	MOVL         $(n*0x01010101), AX; \
	VPBROADCASTD AX, z

// FOUR makes bytes of vector i of the plane of four bits.
#define FOUR(i) \
	FETCH(i);                  \
	VMOVDQU32 (i*64)(SI), Z16; \
	VPANDD    Z30, Z16, Z17;   \
	VPSRLW    $4, Z16, Z18;    \
	VPANDD    Z30, Z18, Z18

// HIGH adds bits of the other plane to the bytes a, shifted there by OP.
#define HIGH(OP, n, bits, a) \
	OP         $n, bits, Z20; \
	VPTERNLOGD $0xf8, Z28, Z20, a

#define STORE(i, to) \
	VMOVDQU32 Z17, (to+i*64)(R15); \
	VMOVDQU32 Z18, (to+i*64+256)(R15)

#define LOOKUP(i, to) \
	FOUR(i);               \
	VPSHUFB Z17, Z29, Z17; \
	VPSHUFB Z18, Z29, Z18; \
	STORE(i, to)

// NEXT ends a unit.
#define NEXT(bytes, lines) \
	ADDQ $bytes, SI; \
	ADDQ $(64*lines), R9

// MATRIX is that of eight bytes.
#define MATRIX(m, z) \
	MOVQ         $m, AX; \
	VPBROADCASTQ AX, z

// CODES4 makes bytes of vector i of the plane of four bits: those of the matrices, and
// bits that are inverted. The codes are less 8 where their top bits go to all bits above
// and are inverted.
#define CODES4(i, to, inverted) \
	FETCH(i);                                  \
	VMOVDQU32 (i*64)(SI), Z16;                 \
	VGF2P8AFFINEQB $inverted, Z28, Z16, Z17;   \
	VGF2P8AFFINEQB $inverted, Z29, Z16, Z18;   \
	STORE(i, to)

#define UNIT4(to, inverted) \
	CODES4(0, to, inverted); \
	CODES4(1, to, inverted); \
	CODES4(2, to, inverted); \
	CODES4(3, to, inverted); \
	FETCH(4);                \
	NEXT(256, 5)

#define UNITTABLE(to) \
	LOOKUP(0, to); \
	LOOKUP(1, to); \
	LOOKUP(2, to); \
	LOOKUP(3, to); \
	FETCH(4);      \
	NEXT(256, 5)

#define UNIT41(to) \
	VMOVDQU32 256(SI), Z26;          \
	FOUR(0);                         \
	HIGH(VPSLLW, 4, Z26, Z17);       \
	VPTERNLOGD $0xf8, Z28, Z26, Z18; \
	STORE(0, to);                    \
	FOUR(1);                         \
	HIGH(VPSLLW, 3, Z26, Z17);       \
	HIGH(VPSRLW, 1, Z26, Z18);       \
	STORE(1, to);                    \
	FOUR(2);                         \
	HIGH(VPSLLW, 2, Z26, Z17);       \
	HIGH(VPSRLW, 2, Z26, Z18);       \
	STORE(2, to);                    \
	FOUR(3);                         \
	HIGH(VPSLLW, 1, Z26, Z17);       \
	HIGH(VPSRLW, 3, Z26, Z18);       \
	STORE(3, to);                    \
	FETCH(4);                        \
	FETCH(5);                        \
	NEXT(320, 6)

// The UNITS macros unpack a step, and CODES loads it.
#define CODES(at) TILELOADD(at, regR15, regR12, tmm6)

#define UNITS4(to) UNIT4(to, 0); UNIT4(to+512, 0)

#define UNITSLESS8(to) UNIT4(to, 0xf8); UNIT4(to+512, 0xf8)

#define UNITSTABLE(to) UNITTABLE(to); UNITTABLE(to+512)

#define UNITS41(to) UNIT41(to); UNIT41(to+512)

// Codes of eight bits lie in memory as in a tile: what is kept is where.
#define WHERE(at) (4168+at/128)(R15)

#define UNITS8(to) \
	MOVQ SI, WHERE(to);                                      \
	BOTH(0); BOTH(1); BOTH(2); BOTH(3); BOTH(4); BOTH(5);    \
	BOTH(6); BOTH(7); BOTH(8); BOTH(9); BOTH(10); BOTH(11);  \
	BOTH(12); BOTH(13); BOTH(14); BOTH(15); BOTH(16);        \
	NEXT(1024, 17)

#define CODES8(at) \
	MOVQ WHERE(at), DX; \
	TILELOADD(0, regDX, regR12, tmm6)

// PRODUCTS issues a step's, OFHIGH and OFLOW being instructions for codes with signs or
// without.
#define PRODUCTS(LOADCODES, OFHIGH, OFLOW, at, high, low, label) \
	LOADCODES(at);                          \
	TILELOADD(HEADER, regR8, regR12, tmm4); \
	TILEZERO(high);                         \
	OFHIGH(tmm6, tmm4, high);               \
	LEAQ (R8)(R11*1), DX;                   \
	TILELOADD(HEADER, regDX, regR12, tmm5); \
	TILEZERO(low);                          \
	OFLOW(tmm6, tmm5, low);                 \
	LEAQ HEADER(R8)(R11*2), R8;             \
	CMPQ R8, ACTSEND;                       \
	JNE  label;                             \
	MOVQ acts+16(FP), R8;                   \
label:

// MORE goes on where there are more than n rows.
#define MORE(n, label) \
	CMPQ R13, $(64*n); \
	JLE  label

#define EACH(OP, base, at, end) \
	OP(0, base, at, Z0); \
	OP(1, base, at, Z1); \
	MORE(2, end);        \
	OP(2, base, at, Z2); \
	MORE(3, end);        \
	OP(3, base, at, Z3); \
	MORE(4, end);        \
	OP(4, base, at, Z4); \
	MORE(5, end);        \
	OP(5, base, at, Z5); \
	MORE(6, end);        \
	OP(6, base, at, Z6); \
	MORE(7, end);        \
	OP(7, base, at, Z7)

#define BOTHPARTS(t, base) \
	VPSLLD $8, (HIGHS+t*64)(base), Z16; \
	VPADDD (LOWS+t*64)(base), Z16, Z16

#define ADDSUM(t, at, acc) \
	VCVTDQ2PS   Z16, Z16;                \
	VMULPS.BCST (at+4*t)(R14), Z16, Z16; \
	VFMADD231PS Z24, Z16, acc

#define SUM(t, base, at, acc) \
	BOTHPARTS(t, base); \
	ADDSUM(t, at, acc)

#define STARTEDSUM(t, base, at, acc) \
	BOTHPARTS(t, base);                     \
	VPADDD.BCST (64+at+4*t)(R14), Z16, Z16; \
	ADDSUM(t, at, acc)

#define MINIMUM(t, base, at, acc) \
	VFMADD231PS.BCST (128+at+4*t)(R14), Z25, acc

// SCALE makes those of a group, at R10.
#define SCALE(halves, bytes, factors, z, byte, made) \
	CMPQ FACTORED, $0;          \
	JNE  byte;                  \
	VCVTPH2PS   halves(R10), z; \
	JMP   made;                 \
byte:                               \
	VPMOVSXBD   bytes(R10), z;  \
	VCVTDQ2PS   z, z;           \
	VMULPS      factors, z, z;  \
made:

// GROUP adds the products of one.
#define GROUP(base, at, byte, made, started, summed, minbyte, minmade, done) \
	SCALE(0, 0, Z21, Z24, byte, made)           \
	CMPQ STARTED, $0;                           \
	JNE  started;                               \
	EACH(SUM, base, at, summed);                \
	JMP  summed;                                \
started:                                            \
	EACH(STARTEDSUM, base, at, summed);         \
summed:                                             \
	CMPQ MINIMA, $0;                            \
	JEQ  done;                                  \
	SCALE(256, 128, Z22, Z25, minbyte, minmade) \
	EACH(MINIMUM, base, at, done);              \
done:                                               \
	ADDQ SCALEBYTES, R10

#define SUMS(a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5, b6) \
	GROUP(R15, 0, a0, a1, a2, a3, a4, a5, a6); \
	LEAQ (R15)(R13*1), DX;                     \
	GROUP(DX, 32, b0, b1, b2, b3, b4, b5, b6); \
	LEAQ HEADER(R14)(R11*2), R14

// KEEP stores a step's products.
#define KEEP(high, low) \
	TILESTORED(high, HIGHS, regR15, regR12); \
	TILESTORED(low, LOWS, regR15, regR12)

#define LOAD(t, base, at, acc) VMOVUPS (64*t)(DI), acc
#define PUT(t, base, at, acc) VMOVUPS acc, (64*t)(DI)

// FACTORS readies the scales of a chunk, at R10.
#define FACTORS(label) \
	CMPQ FACTORED, $0;    \
	JEQ  label;           \
	VCVTPH2PS (R10), Z21; \
	ADDQ $32, R10;        \
	CMPQ MINIMA, $0;      \
	JEQ  label;           \
	VCVTPH2PS (R10), Z22; \
	ADDQ $32, R10;        \
label:

#define ARGUMENTS \
	LEAQ buffers-4255(SP), R15; \
	ADDQ $63, R15;              \
	ANDQ $~63, R15;             \
	MOVQ data+8(FP), BX;        \
	MOVQ BX, CHUNK;             \
	MOVQ BX, R10;               \
	MOVQ BX, SI;                \
	ADDQ scales+64(FP), SI;     \
	LEAQ AHEAD(BX), R9;         \
	MOVQ acts+16(FP), R8;       \
	MOVQ R8, R14;               \
	MOVQ size+24(FP), DX;       \
	ADDQ R8, DX;                \
	MOVQ DX, ACTSEND;           \
	MOVQ rows+32(FP), R13;      \
	SHLQ $6, R13;               \
	MOVQ panels+40(FP), DX;     \
	MOVQ DX, PANELS;            \
	MOVQ DX, SUMMED;            \
	MOVQ chunks+48(FP), DX;     \
	MOVQ DX, CHUNKS;            \
	MOVQ DX, SCALED;            \
	IMULQ stride+72(FP), DX;    \
	MOVQ panel+56(FP), AX;      \
	SUBQ DX, AX;                \
	MOVQ AX, GAP;               \
	MOVQ FACTORED, AX;          \
	SHLQ $4, AX;                \
	SUBQ $32, AX;               \
	NEGQ AX;                    \
	MOVQ AX, SCALEBYTES;        \
	MOVQ config+112(FP), DX;    \
	LDTILECFG(0, regDX);        \
	MOVQ $64, R12;              \
	MOVQ acc+0(FP), DI;         \
	EACH(LOAD, DI, 0, loaded);  \
loaded:                             \
	FACTORS(factors)

// ROWS is the function.
#define ROWS(UNPACK, LOADCODES, OFHIGH, OFLOW) \
	LEAQ (R13)(R13*1), R11;                                 \
	UNPACK(0);                                              \
	UNPACK(1024);                                           \
	PRODUCTS(LOADCODES, OFHIGH, OFLOW, 0, tmm0, tmm1, begun)               \
	UNPACK(0);                                              \
	MOVQ $1, DX;                                            \
	MOVQ DX, UNPACKS;                                       \
	MOVQ $2, CX;                                            \
more:                                                           \
	DECQ CX;                                                \
	KEEP(tmm0, tmm1);                                       \
	PRODUCTS(LOADCODES, OFHIGH, OFLOW, 1024, tmm2, tmm3, odd)              \
	UNPACK(1024);                                           \
	SUMS(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13); \
	DECQ UNPACKS;                                           \
	JNZ  inside;                                            \
	MOVQ $2, DX;                                            \
	MOVQ DX, UNPACKS;                                       \
	ADDQ stride+72(FP), BX;                                 \
	DECQ CHUNKS;                                            \
	JNZ  panel;                                             \
	MOVQ chunks+48(FP), DX;                                 \
	MOVQ DX, CHUNKS;                                        \
	ADDQ GAP, BX;                                           \
	DECQ PANELS;                                            \
	JNZ  panel;                                             \
	MOVQ data+8(FP), BX;                                    \
panel:                                                          \
	MOVQ BX, SI;                                            \
	ADDQ scales+64(FP), SI;                                 \
	LEAQ AHEAD(BX), R9;                                     \
inside:                                                         \
	KEEP(tmm2, tmm3);                                       \
	PRODUCTS(LOADCODES, OFHIGH, OFLOW, 0, tmm0, tmm1, even)                \
	UNPACK(0);                                              \
	SUMS(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13); \
	TESTQ CX, CX;                                           \
	JNZ  more;                                              \
	MOVQ $2, CX;                                            \
	MOVQ CHUNK, R10;                                        \
	ADDQ stride+72(FP), R10;                                \
	DECQ SCALED;                                            \
	JNZ  scales;                                            \
	EACH(PUT, DI, 0, put);                                  \
put:                                                            \
	DECQ SUMMED;                                            \
	JZ   done;                                              \
	ADDQ R13, DI;                                           \
	EACH(LOAD, DI, 0, next);                                \
next:                                                           \
	MOVQ acts+16(FP), R14;                                  \
	MOVQ chunks+48(FP), DX;                                 \
	MOVQ DX, SCALED;                                        \
	ADDQ GAP, R10;                                          \
scales:                                                         \
	MOVQ R10, CHUNK;                                        \
	FACTORS(again)                                          \
	JMP  more;                                              \
done:                                                           \
	TILERELEASE;                                            \
	VZEROUPPER;                                             \
	RET

// func addRows4AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel, scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)
TEXT ·addRows4AMX(SB), 0, $4256-120
	MATRIX(0x0102040800000000, Z28)
	MATRIX(0x1020408000000000, Z29)
	ARGUMENTS
	ROWS(UNITS4, CODES, TDPBSUD, TDPBUUD)

// func addRowsLess8AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel, scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)
TEXT ·addRowsLess8AMX(SB), 0, $4256-120
	MATRIX(0x0102040808080808, Z28)
	MATRIX(0x1020408080808080, Z29)
	ARGUMENTS
	ROWS(UNITSLESS8, CODES, TDPBSSD, TDPBUSD)

// func addRowsTableAMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel, scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)
TEXT ·addRowsTableAMX(SB), 0, $4256-120
	MOVQ table+104(FP), AX
	VBROADCASTI32X4 (AX), Z29
	BYTES(15, Z30)
	ARGUMENTS
	ROWS(UNITSTABLE, CODES, TDPBSSD, TDPBUSD)

// func addRows41AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel, scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)
TEXT ·addRows41AMX(SB), 0, $4256-120
	BYTES(16, Z28)
	BYTES(15, Z30)
	ARGUMENTS
	ROWS(UNITS41, CODES, TDPBSUD, TDPBUUD)

// func addRows8AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel, scales, stride, bytes, min, init int, table *[16]byte, config *tileConfig)
TEXT ·addRows8AMX(SB), 0, $4256-120
	ARGUMENTS
	ROWS(UNITS8, CODES8, TDPBSUD, TDPBUUD)

// HALVES makes bytes of 32 activations: low ones in a, high ones in b, the columns in
// order.
#define HALVES(off, z, a, b) \
	VMOVDQU32 off(SI), z; \
	VPMOVWB   z, a;       \
	VPSRLW    $8, z, z;   \
	VPMOVWB   z, b;       \
	VPSHUFB   Y15, a, a;  \
	VPSHUFB   Y15, b, b

DATA columns<>+0(SB)/8, $0x0705060403010200
DATA columns<>+8(SB)/8, $0x0f0d0e0c0b090a08
GLOBL columns<>(SB), RODATA|NOPTR, $16

#define JOIN \
	MOVQ dst+0(FP), DI;    \
	MOVQ q+8(FP), SI;      \
	MOVQ steps+16(FP), CX; \
	MOVQ step+24(FP), BX;  \
	MOVQ tile+32(FP), R8;  \
	MOVQ R8, R9;           \
	SHRQ $1, R9;           \
	LEAQ (R8)(R9*1), R10;  \
	VPXOR Y14, Y14, Y14;   \
	VBROADCASTI128 columns<>(SB), Y15

// func joinRowAVX512(dst *byte, q *int16, steps, step, tile int)
TEXT ·joinRowAVX512(SB), NOSPLIT, $0-40
	JOIN
loop:
	HALVES(0, Z0, Y2, Y3)
	HALVES(64, Z1, Y4, Y5)
	VINSERTI64X4 $1, Y4, Z14, Z4
	VINSERTI64X4 $1, Y5, Z14, Z5
	VMOVDQU32    Z3, (DI)
	VMOVDQU32    Z5, (DI)(R9*1)
	VMOVDQU32    Z2, (DI)(R8*1)
	VMOVDQU32    Z4, (DI)(R10*1)
	ADDQ $128, SI
	ADDQ BX, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET
