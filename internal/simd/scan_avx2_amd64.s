#include "textflag.h"
#include "tier_amd64.h"

// Rows times two lines' weights, 32 or 16 columns at a time, each over all rows in order. The rows eight later are
// fetched.
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
	VBROADCASTSS (R13), Y12;   \
	VBROADCASTSS 256(R13), Y13

#define ADD(at, x, a, b) \
	VMOVUPS at(R12), x;    \
	VFMADD231PS Y12, x, a; \
	VFMADD231PS Y13, x, b

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

// func addPairVec(acc, v []float32, p *float32, n, stride int)
TEXT ·addPairVec(SB), NOSPLIT, $0-72
	UPGRADE(·addPairAVX512)
	MOVQ acc_base+0(FP), DI
	MOVQ acc_len+8(FP), CX
	MOVQ v_base+24(FP), DX
	MOVQ p+48(FP), SI
	MOVQ n+56(FP), R8
	MOVQ stride+64(FP), R9
	SUBQ R9, CX
	SHLQ $2, R9

wide:
	CMPQ CX, $32
	JLT  narrow
	LOAD(0, Y0, Y4)
	LOAD(32, Y1, Y5)
	LOAD(64, Y2, Y6)
	LOAD(96, Y3, Y7)
	BEGIN

wideloop:
	PREFETCHT0 (R12)(R9*8)
	PREFETCHT0 64(R12)(R9*8)
	WEIGHTS
	ADD(0, Y8, Y0, Y4)
	ADD(32, Y9, Y1, Y5)
	ADD(64, Y10, Y2, Y6)
	ADD(96, Y11, Y3, Y7)
	NEXT(wideloop)
	STORE(0, Y0, Y4)
	STORE(32, Y1, Y5)
	STORE(64, Y2, Y6)
	STORE(96, Y3, Y7)
	ADDQ $128, DI
	ADDQ $128, DX
	SUBQ $32, CX
	JMP  wide

narrow:
	TESTQ CX, CX
	JZ   done
	LOAD(0, Y0, Y4)
	LOAD(32, Y1, Y5)
	BEGIN

narrowloop:
	WEIGHTS
	ADD(0, Y8, Y0, Y4)
	ADD(32, Y9, Y1, Y5)
	NEXT(narrowloop)
	STORE(0, Y0, Y4)
	STORE(32, Y1, Y5)

done:
	VZEROUPPER
	RET
