#include "textflag.h"
#include "tier_amd64.h"

// Scores of four queries: 16 keys at a time, side by side in two registers for
// each query. Their 16 partial sums are made one after the other, in an order
// in which they can be added as soon as there are two: never more than four
// wait, in memory. No lane meets another.
//
//	DI   scores of the first query, BlockSlots to the next one
//	SI   the keys from the current ones on, R11 bytes in 16 of them
//	R8   the queries, R9 bytes in one, R10 in three
//	AX   elements of a query
//	BX   the current keys' position
//	DX   the sums that wait, eight registers each
//	R12  the queries from the current element on
//	R13  the keys from the current element on

#define STEP(q, a, b) \
	VBROADCASTSS q, Y10;     \
	VFMADD231PS  Y10, Y8, a; \
	VFMADD231PS  Y10, Y9, b

#define LEAF(l, loop, done) \
	LEAQ 15-l+0(AX), CX;        \
	LEAQ 4*l+0(R8), R12;        \
	LEAQ 64*l+0(SI), R13;       \
	VXORPS Y0, Y0, Y0;          \
	VXORPS Y1, Y1, Y1;          \
	VXORPS Y2, Y2, Y2;          \
	VXORPS Y3, Y3, Y3;          \
	VXORPS Y4, Y4, Y4;          \
	VXORPS Y5, Y5, Y5;          \
	VXORPS Y6, Y6, Y6;          \
	VXORPS Y7, Y7, Y7;          \
	SHRQ $4, CX;                \
	JZ   done;                  \
loop:                           \
	VMOVUPS (R13), Y8;          \
	VMOVUPS 32(R13), Y9;        \
	STEP((R12), Y0, Y1);        \
	STEP((R12)(R9*1), Y2, Y3);  \
	STEP((R12)(R9*2), Y4, Y5);  \
	STEP((R12)(R10*1), Y6, Y7); \
	ADDQ $64, R12;              \
	ADDQ $1024, R13;            \
	DECQ CX;                    \
	JNZ  loop;                  \
done:

#define PUSH(n) \
	VMOVUPS Y0, 256*n+0(DX);   \
	VMOVUPS Y1, 256*n+32(DX);  \
	VMOVUPS Y2, 256*n+64(DX);  \
	VMOVUPS Y3, 256*n+96(DX);  \
	VMOVUPS Y4, 256*n+128(DX); \
	VMOVUPS Y5, 256*n+160(DX); \
	VMOVUPS Y6, 256*n+192(DX); \
	VMOVUPS Y7, 256*n+224(DX)

#define POP(n) \
	VADDPS 256*n+0(DX), Y0, Y0;   \
	VADDPS 256*n+32(DX), Y1, Y1;  \
	VADDPS 256*n+64(DX), Y2, Y2;  \
	VADDPS 256*n+96(DX), Y3, Y3;  \
	VADDPS 256*n+128(DX), Y4, Y4; \
	VADDPS 256*n+160(DX), Y5, Y5; \
	VADDPS 256*n+192(DX), Y6, Y6; \
	VADDPS 256*n+224(DX), Y7, Y7

// func scoreKeysVec(s *scores, q, k []float32, from, to int, scale float32)
TEXT ·scoreKeysVec(SB), NOSPLIT, $0-76
	UPGRADE(·scoreKeysAVX512)
	JMP ·scoreKeysAVX2(SB) // which has a frame

// func scoreKeysAVX2(s *scores, q, k []float32, from, to int, scale float32)
TEXT ·scoreKeysAVX2(SB), 0, $1088-76
	MOVQ s+0(FP), DI
	MOVQ q_base+8(FP), R8
	MOVQ q_len+16(FP), AX
	SHRQ $2, AX
	MOVQ k_base+32(FP), SI
	MOVQ from+56(FP), BX
	LEAQ (AX*4), R9
	LEAQ (R9)(R9*2), R10
	MOVQ AX, R11
	SHLQ $6, R11
	MOVQ BX, CX
	SHRQ $4, CX
	IMULQ R11, CX
	ADDQ CX, SI
	LEAQ (DI)(BX*4), DI
	LEAQ pending-1088(SP), DX
	ADDQ $63, DX
	ANDQ $~63, DX

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

	VBROADCASTSS scale+72(FP), Y10
	VMULPS  Y10, Y0, Y0
	VMULPS  Y10, Y1, Y1
	VMULPS  Y10, Y2, Y2
	VMULPS  Y10, Y3, Y3
	VMULPS  Y10, Y4, Y4
	VMULPS  Y10, Y5, Y5
	VMULPS  Y10, Y6, Y6
	VMULPS  Y10, Y7, Y7
	VMOVUPS Y0, 0(DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 256(DI)
	VMOVUPS Y3, 288(DI)
	VMOVUPS Y4, 512(DI)
	VMOVUPS Y5, 544(DI)
	VMOVUPS Y6, 768(DI)
	VMOVUPS Y7, 800(DI)
	ADDQ    $64, DI
	LEAQ    (SI)(R11*1), SI
	ADDQ    $16, BX
	CMPQ    BX, to+64(FP)
	JLT     block
	VZEROUPPER
	RET

// Values of n positions times the weights of four queries, 16 columns at a time,
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
	VADDSS 0(R13), X12, X12;   \
	VADDSS 256(R13), X13, X13; \
	VADDSS 512(R13), X14, X14; \
	VADDSS 768(R13), X15, X15

#define NOWEIGHTS

#define COLUMNS16(loop, WEIGHTS) \
	VMOVUPS (DI), Y0;           \
	VMOVUPS 32(DI), Y1;         \
	VMOVUPS (DI)(R9*1), Y2;     \
	VMOVUPS 32(DI)(R9*1), Y3;   \
	VMOVUPS (DI)(R9*2), Y4;     \
	VMOVUPS 32(DI)(R9*2), Y5;   \
	VMOVUPS (DI)(R10*1), Y6;    \
	VMOVUPS 32(DI)(R10*1), Y7;  \
	MOVQ DX, R12;               \
	MOVQ SI, R13;               \
	MOVQ R8, AX;                \
loop:                           \
	VMOVUPS (R12), Y8;          \
	VMOVUPS 32(R12), Y9;        \
	VBROADCASTSS (R13), Y10;    \
	VFMADD231PS Y10, Y8, Y0;    \
	VFMADD231PS Y10, Y9, Y1;    \
	VBROADCASTSS 256(R13), Y11; \
	VFMADD231PS Y11, Y8, Y2;    \
	VFMADD231PS Y11, Y9, Y3;    \
	VBROADCASTSS 512(R13), Y10; \
	VFMADD231PS Y10, Y8, Y4;    \
	VFMADD231PS Y10, Y9, Y5;    \
	VBROADCASTSS 768(R13), Y11; \
	VFMADD231PS Y11, Y8, Y6;    \
	VFMADD231PS Y11, Y9, Y7;    \
	WEIGHTS;                    \
	ADDQ R9, R12;               \
	ADDQ $4, R13;               \
	DECQ AX;                    \
	JNZ  loop;                  \
	VMOVUPS Y0, (DI);           \
	VMOVUPS Y1, 32(DI);         \
	VMOVUPS Y2, (DI)(R9*1);     \
	VMOVUPS Y3, 32(DI)(R9*1);   \
	VMOVUPS Y4, (DI)(R9*2);     \
	VMOVUPS Y5, 32(DI)(R9*2);   \
	VMOVUPS Y6, (DI)(R10*1);    \
	VMOVUPS Y7, 32(DI)(R10*1);  \
	ADDQ $64, DI;               \
	ADDQ $64, DX;               \
	SUBQ $16, CX

// func addValuesVec(acc, v []float32, p *float32, n, stride int, sum *[Quad]float32)
TEXT ·addValuesVec(SB), NOSPLIT, $0-80
	UPGRADE(·addValuesAVX512)
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
	VMOVSS (BX), X12
	VMOVSS 4(BX), X13
	VMOVSS 8(BX), X14
	VMOVSS 12(BX), X15
	COLUMNS16(first, ADDWEIGHTS)
	JZ   done

next:
	COLUMNS16(loop, NOWEIGHTS)
	JNZ  next

done:
	VMOVSS X12, (BX)
	VMOVSS X13, 4(BX)
	VMOVSS X14, 8(BX)
	VMOVSS X15, 12(BX)
	VZEROUPPER
	RET
