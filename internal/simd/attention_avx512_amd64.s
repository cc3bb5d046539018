#include "textflag.h"
#include "exp_amd64.h"
#include "exp_avx512_amd64.h"

// Scores of four queries: 32 keys at a time, side by side in two registers for
// each query. Their 16 partial sums are made one after the other, in an order
// in which they can be added as soon as there are two. No lane meets another.
//
//	DI          scores of the first query, BlockSlots to the next one
//	SI          the keys from the current ones on, R11 bytes in 16 of them
//	R8          the queries, R9 bytes in one, R10 in three
//	AX          elements of a query
//	BX          the current keys' position
//	DX          sums of four and of eight partial sums that wait
//	R12         the queries from the current element on
//	R13         the keys from the current element on
//	Z0 to Z7    a partial sum, and those that have been added to it
//	Z16 to Z23  a partial sum that waits
//	Z24 to Z31  a sum of two that waits

#define STEP(q, z, a, b) \
	VBROADCASTSS q, z;     \
	VFMADD231PS  z, Z8, a; \
	VFMADD231PS  z, Z9, b

#define LEAF(l, loop, done, a, b, c, d, e, f, g, h) \
	LEAQ 15-l+0(AX), CX;           \
	LEAQ 4*l+0(R8), R12;           \
	LEAQ 64*l+0(SI), R13;          \
	VPXORD a, a, a;                \
	VPXORD b, b, b;                \
	VPXORD c, c, c;                \
	VPXORD d, d, d;                \
	VPXORD e, e, e;                \
	VPXORD f, f, f;                \
	VPXORD g, g, g;                \
	VPXORD h, h, h;                \
	SHRQ $4, CX;                   \
	JZ   done;                     \
loop:                              \
	VMOVUPS (R13), Z8;             \
	VMOVUPS (R13)(R11*1), Z9;      \
	STEP((R12), Z10, a, b);        \
	STEP((R12)(R9*1), Z11, c, d);  \
	STEP((R12)(R9*2), Z12, e, f);  \
	STEP((R12)(R10*1), Z13, g, h); \
	ADDQ $64, R12;                 \
	ADDQ $1024, R13;               \
	DECQ CX;                       \
	JNZ  loop;                     \
done:

// FIRST leaves partial sum l waiting, and SECOND adds one to it.
#define FIRST(l, loop, done) \
	LEAF(l, loop, done, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)

#define SECOND(l, loop, done) \
	LEAF(l, loop, done, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7); \
	VADDPS Z16, Z0, Z0;                                  \
	VADDPS Z17, Z1, Z1;                                  \
	VADDPS Z18, Z2, Z2;                                  \
	VADDPS Z19, Z3, Z3;                                  \
	VADDPS Z20, Z4, Z4;                                  \
	VADDPS Z21, Z5, Z5;                                  \
	VADDPS Z22, Z6, Z6;                                  \
	VADDPS Z23, Z7, Z7

#define WAIT \
	VMOVAPS Z0, Z24; \
	VMOVAPS Z1, Z25; \
	VMOVAPS Z2, Z26; \
	VMOVAPS Z3, Z27; \
	VMOVAPS Z4, Z28; \
	VMOVAPS Z5, Z29; \
	VMOVAPS Z6, Z30; \
	VMOVAPS Z7, Z31

#define ADDWAITING \
	VADDPS Z24, Z0, Z0; \
	VADDPS Z25, Z1, Z1; \
	VADDPS Z26, Z2, Z2; \
	VADDPS Z27, Z3, Z3; \
	VADDPS Z28, Z4, Z4; \
	VADDPS Z29, Z5, Z5; \
	VADDPS Z30, Z6, Z6; \
	VADDPS Z31, Z7, Z7

#define PUSH(n) \
	VMOVUPS Z0, 512*n+0(DX);   \
	VMOVUPS Z1, 512*n+64(DX);  \
	VMOVUPS Z2, 512*n+128(DX); \
	VMOVUPS Z3, 512*n+192(DX); \
	VMOVUPS Z4, 512*n+256(DX); \
	VMOVUPS Z5, 512*n+320(DX); \
	VMOVUPS Z6, 512*n+384(DX); \
	VMOVUPS Z7, 512*n+448(DX)

#define POP(n) \
	VADDPS 512*n+0(DX), Z0, Z0;   \
	VADDPS 512*n+64(DX), Z1, Z1;  \
	VADDPS 512*n+128(DX), Z2, Z2; \
	VADDPS 512*n+192(DX), Z3, Z3; \
	VADDPS 512*n+256(DX), Z4, Z4; \
	VADDPS 512*n+320(DX), Z5, Z5; \
	VADDPS 512*n+384(DX), Z6, Z6; \
	VADDPS 512*n+448(DX), Z7, Z7

// func scoreKeysAVX512(s *scores, q, k []float32, from, to int, scale float32)
TEXT ·scoreKeysAVX512(SB), 0, $1088-76
	MOVQ s+0(FP), DI
	MOVQ q_base+8(FP), R8
	MOVQ q_len+16(FP), AX
	SHRQ $2, AX
	MOVQ k_base+32(FP), SI
	MOVQ from+56(FP), BX
	ANDQ $-32, BX // 32 positions at a time
	LEAQ (AX*4), R9
	LEAQ (R9)(R9*2), R10
	MOVQ AX, R11
	SHLQ $6, R11
	MOVQ BX, CX
	SHRQ $4, CX
	IMULQ R11, CX
	ADDQ CX, SI
	LEAQ (DI)(BX*4), DI
	LEAQ waiting-1088(SP), DX
	ADDQ $63, DX
	ANDQ $~63, DX

block:
	FIRST(0, leaf0, done0)
	SECOND(8, leaf8, done8)
	WAIT
	FIRST(4, leaf4, done4)
	SECOND(12, leaf12, done12)
	ADDWAITING
	PUSH(0)
	FIRST(2, leaf2, done2)
	SECOND(10, leaf10, done10)
	WAIT
	FIRST(6, leaf6, done6)
	SECOND(14, leaf14, done14)
	ADDWAITING
	POP(0)
	PUSH(1)
	FIRST(1, leaf1, done1)
	SECOND(9, leaf9, done9)
	WAIT
	FIRST(5, leaf5, done5)
	SECOND(13, leaf13, done13)
	ADDWAITING
	PUSH(0)
	FIRST(3, leaf3, done3)
	SECOND(11, leaf11, done11)
	WAIT
	FIRST(7, leaf7, done7)
	SECOND(15, leaf15, done15)
	ADDWAITING
	POP(0)
	POP(1)

	VBROADCASTSS scale+72(FP), Z10
	VMULPS  Z10, Z0, Z0
	VMULPS  Z10, Z1, Z1
	VMULPS  Z10, Z2, Z2
	VMULPS  Z10, Z3, Z3
	VMULPS  Z10, Z4, Z4
	VMULPS  Z10, Z5, Z5
	VMULPS  Z10, Z6, Z6
	VMULPS  Z10, Z7, Z7
	VMOVUPS Z0, 0(DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 256(DI)
	VMOVUPS Z3, 320(DI)
	VMOVUPS Z4, 512(DI)
	VMOVUPS Z5, 576(DI)
	VMOVUPS Z6, 768(DI)
	VMOVUPS Z7, 832(DI)
	ADDQ    $128, DI
	LEAQ    (SI)(R11*2), SI
	ADDQ    $32, BX
	CMPQ    BX, to+64(FP)
	JLT     block
	VZEROUPPER
	RET

// Weights of four queries.
//
//	DI         scores of the first query, BlockSlots to the next one
//	SI         masks of the positions that each query sees
//	R8         expConst
//	R9         the largest score of each query so far
//	Z4 to Z7   the largest scores of the block
//	Z29        -Inf
//	K7         lanes that saw a NaN

// LARGEST leaves query r's largest scores in x, in four lanes.
#define LARGEST(r, x) \
	KMOVW   8*r+0(SI), K1;         \
	KMOVW   8*r+2(SI), K2;         \
	KMOVW   8*r+4(SI), K3;         \
	KMOVW   8*r+6(SI), K4;         \
	VMOVAPS Z29, Z0;               \
	VMOVAPS Z29, Z1;               \
	VMOVAPS Z29, Z2;               \
	VMOVAPS Z29, Z3;               \
	VMOVUPS 256*r+0(DI), K1, Z0;   \
	VMOVUPS 256*r+64(DI), K2, Z1;  \
	VMOVUPS 256*r+128(DI), K3, Z2; \
	VMOVUPS 256*r+192(DI), K4, Z3; \
	VCMPPS  $3, Z1, Z0, K1;        \
	VCMPPS  $3, Z3, Z2, K2;        \
	KORW    K1, K7, K7;            \
	KORW    K2, K7, K7;            \
	VMAXPS  Z1, Z0, Z0;            \
	VMAXPS  Z3, Z2, Z2;            \
	VMAXPS  Z2, Z0, Z0;            \
	VEXTRACTF64X4 $1, Z0, Y1;      \
	VMAXPS  Y1, Y0, Y0;            \
	VEXTRACTF128  $1, Y0, X1;      \
	VMAXPS  X1, X0, x

#define WEIGH(at) \
	VMOVUPS at(DI), Z0;  \
	VSUBPS  Z15, Z0, Z0; \
	WEIGHT;                 \
	VMOVUPS Z0, at(DI)

// func weighAllAVX512(s *scores, seen *[Quad]uint64, top, c *[Quad]float32) (raised int)
TEXT ·weighAllAVX512(SB), NOSPLIT, $0-40
	MOVQ s+0(FP), DI
	MOVQ seen+8(FP), SI
	MOVQ top+16(FP), R9
	MOVQ ·expConst(SB), R8
	MOVL $0xff800000, AX
	VPBROADCASTD AX, Z29
	KXORW K7, K7, K7
	LARGEST(0, X4)
	LARGEST(1, X5)
	LARGEST(2, X6)
	LARGEST(3, X7)
	MOVQ $-1, AX
	KORTESTW K7, K7
	JNZ  done

	// X0 = the four largest, -0 becoming +0
	VUNPCKLPS X5, X4, X0
	VUNPCKHPS X5, X4, X1
	VMAXPS    X1, X0, X0
	VUNPCKLPS X7, X6, X2
	VUNPCKHPS X7, X6, X3
	VMAXPS    X3, X2, X2
	VMOVLHPS  X2, X0, X1
	VMOVHLPS  X0, X2, X3
	VMAXPS    X3, X1, X0
	VXORPS    X1, X1, X1
	VADDPS    X1, X0, X0

	// those that are not at most top replace it, and c = weight(old top - top)
	VMOVUPS (R9), X3
	VMOVAPS X3, X4
	VCMPPS  $6, X3, X0, K1
	VMOVAPS X0, K1, X4
	VMOVUPS X4, (R9)
	KMOVW   K1, BX
	CONSTANTS
	LEASTEXPONENT
	VSUBPS  X4, X3, X0
	WEIGHT
	MOVQ    c+24(FP), DX
	VMOVUPS X0, (DX)
	MOVQ    BX, AX

	MOVQ $4, CX

query:
	VBROADCASTSS (R9), Z15
	WEIGH(0)
	WEIGH(64)
	WEIGH(128)
	WEIGH(192)
	ADDQ $256, DI
	ADDQ $4, R9
	DECQ CX
	JNZ  query

done:
	MOVQ AX, raised+32(FP)
	VZEROUPPER
	RET

// Values of n positions times the weights of four queries, 64 columns and then 16 at a time,
// each over all positions in order; the weights are added up with the first ones.
//
//	DI   acc of the first query, R9 bytes to the next one, R10 to the fourth
//	CX   columns left
//	DX   values of the first position, R9 bytes to the next one
//	SI   weights of the first query, BlockSlots to the next one
//	R8   n
//	BX   the sums of weights
//	R12  the current position's values, R13 its weights

#define ADDWEIGHTS \
	VADDSS 0(R13), X24, X24;   \
	VADDSS 256(R13), X25, X25; \
	VADDSS 512(R13), X26, X26; \
	VADDSS 768(R13), X27, X27

#define NOWEIGHTS

#define COLUMNS64(loop, WEIGHTS) \
	VMOVUPS (DI), Z0;            \
	VMOVUPS 64(DI), Z1;          \
	VMOVUPS 128(DI), Z2;         \
	VMOVUPS 192(DI), Z3;         \
	VMOVUPS (DI)(R9*1), Z4;      \
	VMOVUPS 64(DI)(R9*1), Z5;    \
	VMOVUPS 128(DI)(R9*1), Z6;   \
	VMOVUPS 192(DI)(R9*1), Z7;   \
	VMOVUPS (DI)(R9*2), Z8;      \
	VMOVUPS 64(DI)(R9*2), Z9;    \
	VMOVUPS 128(DI)(R9*2), Z10;  \
	VMOVUPS 192(DI)(R9*2), Z11;  \
	VMOVUPS (DI)(R10*1), Z12;    \
	VMOVUPS 64(DI)(R10*1), Z13;  \
	VMOVUPS 128(DI)(R10*1), Z14; \
	VMOVUPS 192(DI)(R10*1), Z15; \
	MOVQ DX, R12;                \
	MOVQ SI, R13;                \
	MOVQ R8, AX;                 \
loop:                            \
	VMOVUPS (R12), Z16;          \
	VMOVUPS 64(R12), Z17;        \
	VMOVUPS 128(R12), Z18;       \
	VMOVUPS 192(R12), Z19;       \
	VBROADCASTSS (R13), Z20;     \
	VFMADD231PS Z20, Z16, Z0;    \
	VFMADD231PS Z20, Z17, Z1;    \
	VFMADD231PS Z20, Z18, Z2;    \
	VFMADD231PS Z20, Z19, Z3;    \
	VBROADCASTSS 256(R13), Z21;  \
	VFMADD231PS Z21, Z16, Z4;    \
	VFMADD231PS Z21, Z17, Z5;    \
	VFMADD231PS Z21, Z18, Z6;    \
	VFMADD231PS Z21, Z19, Z7;    \
	VBROADCASTSS 512(R13), Z22;  \
	VFMADD231PS Z22, Z16, Z8;    \
	VFMADD231PS Z22, Z17, Z9;    \
	VFMADD231PS Z22, Z18, Z10;   \
	VFMADD231PS Z22, Z19, Z11;   \
	VBROADCASTSS 768(R13), Z23;  \
	VFMADD231PS Z23, Z16, Z12;   \
	VFMADD231PS Z23, Z17, Z13;   \
	VFMADD231PS Z23, Z18, Z14;   \
	VFMADD231PS Z23, Z19, Z15;   \
	WEIGHTS;                     \
	ADDQ R9, R12;                \
	ADDQ $4, R13;                \
	DECQ AX;                     \
	JNZ  loop;                   \
	VMOVUPS Z0, (DI);            \
	VMOVUPS Z1, 64(DI);          \
	VMOVUPS Z2, 128(DI);         \
	VMOVUPS Z3, 192(DI);         \
	VMOVUPS Z4, (DI)(R9*1);      \
	VMOVUPS Z5, 64(DI)(R9*1);    \
	VMOVUPS Z6, 128(DI)(R9*1);   \
	VMOVUPS Z7, 192(DI)(R9*1);   \
	VMOVUPS Z8, (DI)(R9*2);      \
	VMOVUPS Z9, 64(DI)(R9*2);    \
	VMOVUPS Z10, 128(DI)(R9*2);  \
	VMOVUPS Z11, 192(DI)(R9*2);  \
	VMOVUPS Z12, (DI)(R10*1);    \
	VMOVUPS Z13, 64(DI)(R10*1);  \
	VMOVUPS Z14, 128(DI)(R10*1); \
	VMOVUPS Z15, 192(DI)(R10*1); \
	ADDQ $256, DI;               \
	ADDQ $256, DX;               \
	SUBQ $64, CX

#define COLUMNS16(loop, WEIGHTS) \
	VMOVUPS (DI), Z0;           \
	VMOVUPS (DI)(R9*1), Z4;     \
	VMOVUPS (DI)(R9*2), Z8;     \
	VMOVUPS (DI)(R10*1), Z12;   \
	MOVQ DX, R12;               \
	MOVQ SI, R13;               \
	MOVQ R8, AX;                \
loop:                           \
	VMOVUPS (R12), Z16;         \
	VBROADCASTSS (R13), Z20;    \
	VFMADD231PS Z20, Z16, Z0;   \
	VBROADCASTSS 256(R13), Z21; \
	VFMADD231PS Z21, Z16, Z4;   \
	VBROADCASTSS 512(R13), Z22; \
	VFMADD231PS Z22, Z16, Z8;   \
	VBROADCASTSS 768(R13), Z23; \
	VFMADD231PS Z23, Z16, Z12;  \
	WEIGHTS;                    \
	ADDQ R9, R12;               \
	ADDQ $4, R13;               \
	DECQ AX;                    \
	JNZ  loop;                  \
	VMOVUPS Z0, (DI);           \
	VMOVUPS Z4, (DI)(R9*1);     \
	VMOVUPS Z8, (DI)(R9*2);     \
	VMOVUPS Z12, (DI)(R10*1);   \
	ADDQ $64, DI;               \
	ADDQ $64, DX;               \
	SUBQ $16, CX

// func addValuesAVX512(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)
TEXT ·addValuesAVX512(SB), NOSPLIT, $0-80
	MOVQ acc_base+0(FP), DI
	MOVQ acc_len+8(FP), CX
	MOVQ v_base+24(FP), DX
	MOVQ p+48(FP), SI
	MOVQ n+56(FP), R8
	MOVQ stride+64(FP), R9
	MOVQ sum+72(FP), BX
	LEAQ (R9)(R9*2), R10
	SUBQ R10, CX
	SHLQ $2, R9
	SHLQ $2, R10
	VMOVSS (BX), X24
	VMOVSS 4(BX), X25
	VMOVSS 8(BX), X26
	VMOVSS 12(BX), X27
	CMPQ CX, $64
	JLT  first16
	COLUMNS64(first64, ADDWEIGHTS)

wide:
	CMPQ CX, $64
	JLT  narrow
	COLUMNS64(wideloop, NOWEIGHTS)
	JMP  wide

first16:
	COLUMNS16(first16loop, ADDWEIGHTS)

narrow:
	TESTQ CX, CX
	JZ   done
	COLUMNS16(narrowloop, NOWEIGHTS)
	JMP  narrow

done:
	VMOVSS X24, (BX)
	VMOVSS X25, 4(BX)
	VMOVSS X26, 8(BX)
	VMOVSS X27, 12(BX)
	VZEROUPPER
	RET
