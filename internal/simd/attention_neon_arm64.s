#include "textflag.h"
#include "words_arm64.h"

// Scores of four queries: 16 keys at a time, side by side in four registers for
// each query. Their 16 partial sums are made one after the other, in an order
// in which they can be added as soon as there are two: never more than four
// wait, in memory. No lane meets another.
//
//	R0        scores of the first query, BlockSlots to the next one
//	R1        the keys from the current ones on, R8 bytes in 16 of them
//	R2        the queries, R3 bytes in one
//	R4        elements of a query
//	R5        the current keys' position, R6 where they end
//	R7        the sums that wait, 16 registers each
//	R9        a number of steps
//	R10, R11  64 and 1024: bytes in 16 elements of a query and of the keys
//	R12       the keys from the current element on
//	R13, R14, R15, R17  the queries likewise

#define TIMES(q, a, b, c, d) \
	VFMLA V16.S4, q.S4, a.S4; \
	VFMLA V17.S4, q.S4, b.S4; \
	VFMLA V18.S4, q.S4, c.S4; \
	VFMLA V19.S4, q.S4, d.S4

#define LEAF(l, loop, done) \
	ADD  $(15-l), R4, R9;                                \
	LSR  $4, R9, R9;                                     \
	ADD  $(64*l), R1, R12;                               \
	ADD  $(4*l), R2, R13;                                \
	ADD  R3, R13, R14;                                   \
	ADD  R3, R14, R15;                                   \
	ADD  R3, R15, R17;                                   \
	VEOR V0.B16, V0.B16, V0.B16;                         \
	VEOR V1.B16, V1.B16, V1.B16;                         \
	VEOR V2.B16, V2.B16, V2.B16;                         \
	VEOR V3.B16, V3.B16, V3.B16;                         \
	VEOR V4.B16, V4.B16, V4.B16;                         \
	VEOR V5.B16, V5.B16, V5.B16;                         \
	VEOR V6.B16, V6.B16, V6.B16;                         \
	VEOR V7.B16, V7.B16, V7.B16;                         \
	VEOR V8.B16, V8.B16, V8.B16;                         \
	VEOR V9.B16, V9.B16, V9.B16;                         \
	VEOR V10.B16, V10.B16, V10.B16;                      \
	VEOR V11.B16, V11.B16, V11.B16;                      \
	VEOR V12.B16, V12.B16, V12.B16;                      \
	VEOR V13.B16, V13.B16, V13.B16;                      \
	VEOR V14.B16, V14.B16, V14.B16;                      \
	VEOR V15.B16, V15.B16, V15.B16;                      \
	CBZ  R9, done;                                       \
loop:                                                    \
	VLD1.P (R12)(R11), [V16.S4, V17.S4, V18.S4, V19.S4]; \
	VLD1R.P (R13)(R10), [V20.S4];                        \
	VLD1R.P (R14)(R10), [V21.S4];                        \
	VLD1R.P (R15)(R10), [V22.S4];                        \
	VLD1R.P (R17)(R10), [V23.S4];                        \
	TIMES(V20, V0, V1, V2, V3);                          \
	TIMES(V21, V4, V5, V6, V7);                          \
	TIMES(V22, V8, V9, V10, V11);                        \
	TIMES(V23, V12, V13, V14, V15);                      \
	SUBS $1, R9, R9;                                     \
	BNE  loop;                                           \
done:

#define PUSH(n) \
	ADD  $(256*n), R7, R12;                          \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R12);    \
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R12);    \
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R12);  \
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R12)

#define POP(n) \
	ADD  $(256*n), R7, R12;                           \
	VLD1.P 64(R12), [V16.S4, V17.S4, V18.S4, V19.S4]; \
	VFADD_S4(v16, v0, v0);                            \
	VFADD_S4(v17, v1, v1);                            \
	VFADD_S4(v18, v2, v2);                            \
	VFADD_S4(v19, v3, v3);                            \
	VLD1.P 64(R12), [V16.S4, V17.S4, V18.S4, V19.S4]; \
	VFADD_S4(v16, v4, v4);                            \
	VFADD_S4(v17, v5, v5);                            \
	VFADD_S4(v18, v6, v6);                            \
	VFADD_S4(v19, v7, v7);                            \
	VLD1.P 64(R12), [V16.S4, V17.S4, V18.S4, V19.S4]; \
	VFADD_S4(v16, v8, v8);                            \
	VFADD_S4(v17, v9, v9);                            \
	VFADD_S4(v18, v10, v10);                          \
	VFADD_S4(v19, v11, v11);                          \
	VLD1.P 64(R12), [V16.S4, V17.S4, V18.S4, V19.S4]; \
	VFADD_S4(v16, v12, v12);                          \
	VFADD_S4(v17, v13, v13);                          \
	VFADD_S4(v18, v14, v14);                          \
	VFADD_S4(v19, v15, v15)

// func scoreKeysVec(s *scores, q, k []float32, from, to int, scale float32)
TEXT ·scoreKeysVec(SB), 0, $1024-76
	MOVD s+0(FP), R0
	MOVD q_base+8(FP), R2
	MOVD q_len+16(FP), R3
	MOVD k_base+32(FP), R1
	MOVD from+56(FP), R5
	MOVD to+64(FP), R6
	LSR  $2, R3, R4
	LSL  $6, R4, R8
	LSR  $4, R5, R9
	MUL  R8, R9, R9
	ADD  R9, R1, R1
	ADD  R5<<2, R0, R0
	MOVD $pending-1024(SP), R7
	MOVD $64, R10
	MOVD $1024, R11

block:
	LEAF(0, leaf0, done0)
	PUSH(0)
	LEAF(8, leaf8, done8)
	POP(0)
	PUSH(1)
	LEAF(4, leaf4, done4)
	PUSH(0)
	LEAF(12, leaf12, done12)
	POP(0)
	POP(1)
	PUSH(2)
	LEAF(2, leaf2, done2)
	PUSH(0)
	LEAF(10, leaf10, done10)
	POP(0)
	PUSH(1)
	LEAF(6, leaf6, done6)
	PUSH(0)
	LEAF(14, leaf14, done14)
	POP(0)
	POP(1)
	POP(2)
	PUSH(3)
	LEAF(1, leaf1, done1)
	PUSH(0)
	LEAF(9, leaf9, done9)
	POP(0)
	PUSH(1)
	LEAF(5, leaf5, done5)
	PUSH(0)
	LEAF(13, leaf13, done13)
	POP(0)
	POP(1)
	PUSH(2)
	LEAF(3, leaf3, done3)
	PUSH(0)
	LEAF(11, leaf11, done11)
	POP(0)
	PUSH(1)
	LEAF(7, leaf7, done7)
	PUSH(0)
	LEAF(15, leaf15, done15)
	POP(0)
	POP(1)
	POP(2)
	POP(3)

	FMOVS scale+72(FP), F16
	MOVD R0, R12
	MOVD $256, R9
	VFMUL_S4_LANE(0, v16, v0, v0)
	VFMUL_S4_LANE(0, v16, v1, v1)
	VFMUL_S4_LANE(0, v16, v2, v2)
	VFMUL_S4_LANE(0, v16, v3, v3)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], (R12)(R9)
	VFMUL_S4_LANE(0, v16, v4, v4)
	VFMUL_S4_LANE(0, v16, v5, v5)
	VFMUL_S4_LANE(0, v16, v6, v6)
	VFMUL_S4_LANE(0, v16, v7, v7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], (R12)(R9)
	VFMUL_S4_LANE(0, v16, v8, v8)
	VFMUL_S4_LANE(0, v16, v9, v9)
	VFMUL_S4_LANE(0, v16, v10, v10)
	VFMUL_S4_LANE(0, v16, v11, v11)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], (R12)(R9)
	VFMUL_S4_LANE(0, v16, v12, v12)
	VFMUL_S4_LANE(0, v16, v13, v13)
	VFMUL_S4_LANE(0, v16, v14, v14)
	VFMUL_S4_LANE(0, v16, v15, v15)
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], (R12)(R9)
	ADD  $64, R0, R0
	ADD  R8, R1, R1
	ADD  $16, R5, R5
	CMP  R6, R5
	BLT  block
	RET

// Values of n positions times the weights of four queries, 16 columns at a time,
// each over all positions in order; the weights are added up with the first ones.
//
//	R0         acc of the first query from the current column on, R1 bytes to
//	           the next one
//	R2         columns left
//	R3         values of the first position from the current column on
//	R4         weights of the first query, BlockSlots to the next one
//	R5         n
//	R6         the sums of weights
//	R7, R8     the current position's values, and the positions left
//	R9 to R12  its weights
//	R13        an acc

#define ADDWEIGHTS \
	FADDS F20, F28, F28; \
	FADDS F21, F29, F29; \
	FADDS F22, F30, F30; \
	FADDS F23, F31, F31

#define NOWEIGHTS

#define COLUMNS16(loop, WEIGHTS) \
	MOVD R0, R13;                                       \
	VLD1.P (R13)(R1), [V0.S4, V1.S4, V2.S4, V3.S4];     \
	VLD1.P (R13)(R1), [V4.S4, V5.S4, V6.S4, V7.S4];     \
	VLD1.P (R13)(R1), [V8.S4, V9.S4, V10.S4, V11.S4];   \
	VLD1.P (R13)(R1), [V12.S4, V13.S4, V14.S4, V15.S4]; \
	MOVD R3, R7;                                        \
	MOVD R5, R8;                                        \
	MOVD R4, R9;                                        \
	ADD  $256, R9, R10;                                 \
	ADD  $256, R10, R11;                                \
	ADD  $256, R11, R12;                                \
loop:                                                   \
	VLD1.P (R7)(R1), [V16.S4, V17.S4, V18.S4, V19.S4];  \
	VLD1R.P 4(R9), [V20.S4];                            \
	VLD1R.P 4(R10), [V21.S4];                           \
	VLD1R.P 4(R11), [V22.S4];                           \
	VLD1R.P 4(R12), [V23.S4];                           \
	TIMES(V20, V0, V1, V2, V3);                         \
	TIMES(V21, V4, V5, V6, V7);                         \
	TIMES(V22, V8, V9, V10, V11);                       \
	TIMES(V23, V12, V13, V14, V15);                     \
	WEIGHTS;                                            \
	SUBS $1, R8, R8;                                    \
	BNE  loop;                                          \
	MOVD R0, R13;                                       \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], (R13)(R1);     \
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], (R13)(R1);     \
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], (R13)(R1);   \
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], (R13)(R1); \
	ADD  $64, R0, R0;                                   \
	ADD  $64, R3, R3;                                   \
	SUB  $16, R2, R2

// func addValuesVec(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)
TEXT ·addValuesVec(SB), NOSPLIT, $0-80
	MOVD acc_base+0(FP), R0
	MOVD acc_len+8(FP), R2
	MOVD v_base+24(FP), R3
	MOVD p+48(FP), R4
	MOVD n+56(FP), R5
	MOVD stride+64(FP), R1
	MOVD sum+72(FP), R6
	SUB  R1<<1, R2, R2
	SUB  R1, R2, R2
	LSL  $2, R1, R1
	FMOVS 0(R6), F28
	FMOVS 4(R6), F29
	FMOVS 8(R6), F30
	FMOVS 12(R6), F31
	COLUMNS16(first, ADDWEIGHTS)
	CBZ  R2, done

next:
	COLUMNS16(loop, NOWEIGHTS)
	CBNZ R2, next

done:
	FMOVS F28, 0(R6)
	FMOVS F29, 4(R6)
	FMOVS F30, 8(R6)
	FMOVS F31, 12(R6)
	RET
