#include "textflag.h"

// Rows times two lines' weights, 128, 64 or 16 columns at a time, each over all rows in order.
//
//	DI          the first line's sums from the current column on, R9 bytes to the second's
//	CX          columns left
//	DX          the first row from the current column on, R9 bytes to the next one
//	SI          weights of the first line, BlockSlots to the second's
//	R8          rows

#define BEGIN \
	MOVQ DX, R12; \
	MOVQ SI, R13; \
	MOVQ R8, AX

#define WEIGHTS \
	VBROADCASTSS (R13), Z24;   \
	VBROADCASTSS 256(R13), Z25

#define ADD(at, x, a, b) \
	VMOVUPS at(R12), x;    \
	VFMADD231PS Z24, x, a; \
	VFMADD231PS Z25, x, b

#define NEXT(loop) \
	ADDQ R9, R12; \
	ADDQ $4, R13; \
	DECQ AX;      \
	JNZ  loop

#define LOAD(at, a, b) \
	VMOVUPS at(DI), a;        \
	VMOVUPS at(DI)(R9*1), b

#define STORE(at, a, b) \
	VMOVUPS a, at(DI);        \
	VMOVUPS b, at(DI)(R9*1)

// func addPairAVX512(acc, v []float32, p *float32, n, stride int)
TEXT ·addPairAVX512(SB), NOSPLIT, $0-72
	MOVQ acc_base+0(FP), DI
	MOVQ acc_len+8(FP), CX
	MOVQ v_base+24(FP), DX
	MOVQ p+48(FP), SI
	MOVQ n+56(FP), R8
	MOVQ stride+64(FP), R9
	SUBQ R9, CX
	SHLQ $2, R9

wide:
	CMPQ CX, $128
	JLT  half
	LOAD(0, Z0, Z8)
	LOAD(64, Z1, Z9)
	LOAD(128, Z2, Z10)
	LOAD(192, Z3, Z11)
	LOAD(256, Z4, Z12)
	LOAD(320, Z5, Z13)
	LOAD(384, Z6, Z14)
	LOAD(448, Z7, Z15)
	BEGIN

wideloop:
	WEIGHTS
	ADD(0, Z16, Z0, Z8)
	ADD(64, Z17, Z1, Z9)
	ADD(128, Z18, Z2, Z10)
	ADD(192, Z19, Z3, Z11)
	ADD(256, Z20, Z4, Z12)
	ADD(320, Z21, Z5, Z13)
	ADD(384, Z22, Z6, Z14)
	ADD(448, Z23, Z7, Z15)
	NEXT(wideloop)
	STORE(0, Z0, Z8)
	STORE(64, Z1, Z9)
	STORE(128, Z2, Z10)
	STORE(192, Z3, Z11)
	STORE(256, Z4, Z12)
	STORE(320, Z5, Z13)
	STORE(384, Z6, Z14)
	STORE(448, Z7, Z15)
	ADDQ $512, DI
	ADDQ $512, DX
	SUBQ $128, CX
	JMP  wide

half:
	CMPQ CX, $64
	JLT  narrow
	LOAD(0, Z0, Z8)
	LOAD(64, Z1, Z9)
	LOAD(128, Z2, Z10)
	LOAD(192, Z3, Z11)
	BEGIN

halfloop:
	WEIGHTS
	ADD(0, Z16, Z0, Z8)
	ADD(64, Z17, Z1, Z9)
	ADD(128, Z18, Z2, Z10)
	ADD(192, Z19, Z3, Z11)
	NEXT(halfloop)
	STORE(0, Z0, Z8)
	STORE(64, Z1, Z9)
	STORE(128, Z2, Z10)
	STORE(192, Z3, Z11)
	ADDQ $256, DI
	ADDQ $256, DX
	SUBQ $64, CX
	JMP  half

narrow:
	TESTQ CX, CX
	JZ   done
	LOAD(0, Z0, Z8)
	BEGIN

narrowloop:
	WEIGHTS
	ADD(0, Z16, Z0, Z8)
	NEXT(narrowloop)
	STORE(0, Z0, Z8)
	ADDQ $64, DI
	ADDQ $64, DX
	SUBQ $16, CX
	JMP  narrow

done:
	VZEROUPPER
	RET
