#include "textflag.h"

// Kernels that add rows of values times weights to acc, whose length is a
// multiple of 16: 64 columns at a time and then 16, each over all rows in order.
//
//	DI  acc
//	CX  columns left
//	DX  first row's values, R8 bytes in a row
//	SI  weights, R9 how many
//	R12 the current row's values, R13 its weight
//	Y8  that weight, in all lanes

#define STEPF32(off, sum) \
	VFMADD231PS 4*off+0(R12), Y8, sum

#define STEPF16(off, sum) \
	VCVTPH2PS   2*off+0(R12), Y9; \
	VFMADD231PS Y9, Y8, sum

#define ROWS(n) \
	MOVQ DX, R12; \
	MOVQ SI, R13; \
	MOVQ n, AX

#define NEXTROW \
	ADDQ R8, R12; \
	ADDQ $4, R13; \
	DECQ AX

// WEIGH is the body of func(acc, v, p []float32, stride int), or of one whose v
// are binary16, 1<<shift bytes each.
#define WEIGH(STEP, shift) \
	MOVQ acc_base+0(FP), DI;       \
	MOVQ acc_len+8(FP), CX;        \
	MOVQ v_base+24(FP), DX;        \
	MOVQ p_base+48(FP), SI;        \
	MOVQ p_len+56(FP), R9;         \
	MOVQ stride+72(FP), R8;        \
	SHLQ $shift, R8;               \
	TESTQ R9, R9;                  \
	JZ   done;                     \
wide:                              \
	CMPQ CX, $64;                  \
	JLT  narrow;                   \
	VMOVUPS (DI), Y0;              \
	VMOVUPS 32(DI), Y1;            \
	VMOVUPS 64(DI), Y2;            \
	VMOVUPS 96(DI), Y3;            \
	VMOVUPS 128(DI), Y4;           \
	VMOVUPS 160(DI), Y5;           \
	VMOVUPS 192(DI), Y6;           \
	VMOVUPS 224(DI), Y7;           \
	ROWS(R9);                      \
widerow:                           \
	VBROADCASTSS (R13), Y8;        \
	STEP(0, Y0);                   \
	STEP(8, Y1);                   \
	STEP(16, Y2);                  \
	STEP(24, Y3);                  \
	STEP(32, Y4);                  \
	STEP(40, Y5);                  \
	STEP(48, Y6);                  \
	STEP(56, Y7);                  \
	NEXTROW;                       \
	JNZ  widerow;                  \
	VMOVUPS Y0, (DI);              \
	VMOVUPS Y1, 32(DI);            \
	VMOVUPS Y2, 64(DI);            \
	VMOVUPS Y3, 96(DI);            \
	VMOVUPS Y4, 128(DI);           \
	VMOVUPS Y5, 160(DI);           \
	VMOVUPS Y6, 192(DI);           \
	VMOVUPS Y7, 224(DI);           \
	ADDQ $256, DI;                 \
	ADDQ $(64<<shift), DX;         \
	SUBQ $64, CX;                  \
	JMP  wide;                     \
narrow:                            \
	TESTQ CX, CX;                  \
	JZ   done;                     \
	VMOVUPS (DI), Y0;              \
	VMOVUPS 32(DI), Y1;            \
	ROWS(R9);                      \
narrowrow:                         \
	VBROADCASTSS (R13), Y8;        \
	STEP(0, Y0);                   \
	STEP(8, Y1);                   \
	NEXTROW;                       \
	JNZ  narrowrow;                \
	VMOVUPS Y0, (DI);              \
	VMOVUPS Y1, 32(DI);            \
	ADDQ $64, DI;                  \
	ADDQ $(16<<shift), DX;         \
	SUBQ $16, CX;                  \
	JMP  narrow;                   \
done:                              \
	VZEROUPPER;                    \
	RET

// func weighF32AVX2(acc, v, p []float32, stride int)
TEXT ·weighF32AVX2(SB), NOSPLIT, $0-80
	WEIGH(STEPF32, 2)

// func weighF16AVX2(acc []float32, v []uint16, p []float32, stride int)
TEXT ·weighF16AVX2(SB), NOSPLIT, $0-80
	WEIGH(STEPF16, 1)
