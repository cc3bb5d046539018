#include "textflag.h"

// Kernels that add rows of values times weights to acc, whose length is a
// multiple of 16: 128 columns at a time, then 64 and then 16, each over all rows in order.
//
//	DI  acc
//	CX  columns left
//	DX  first row's values, R8 bytes in a row
//	SI  weights, R9 how many
//	R12 the current row's values, R13 its weight
//	Z8  that weight, in all lanes

#define STEPF32(off, sum) \
	VFMADD231PS 4*off+0(R12), Z8, sum

#define STEPF16(off, sum) \
	VCVTPH2PS   2*off+0(R12), Z9; \
	VFMADD231PS Z9, Z8, sum

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
wide:                           \
	CMPQ CX, $128;               \
	JLT  half;                   \
	VMOVUPS (DI), Z0;            \
	VMOVUPS 64(DI), Z1;          \
	VMOVUPS 128(DI), Z2;         \
	VMOVUPS 192(DI), Z3;         \
	VMOVUPS 256(DI), Z4;         \
	VMOVUPS 320(DI), Z5;         \
	VMOVUPS 384(DI), Z6;         \
	VMOVUPS 448(DI), Z7;         \
	ROWS(R9);                    \
widerow:                        \
	VBROADCASTSS (R13), Z8;      \
	STEP(0, Z0);                 \
	STEP(16, Z1);                \
	STEP(32, Z2);                \
	STEP(48, Z3);                \
	STEP(64, Z4);                \
	STEP(80, Z5);                \
	STEP(96, Z6);                \
	STEP(112, Z7);               \
	NEXTROW;                     \
	JNZ  widerow;                \
	VMOVUPS Z0, (DI);            \
	VMOVUPS Z1, 64(DI);          \
	VMOVUPS Z2, 128(DI);         \
	VMOVUPS Z3, 192(DI);         \
	VMOVUPS Z4, 256(DI);         \
	VMOVUPS Z5, 320(DI);         \
	VMOVUPS Z6, 384(DI);         \
	VMOVUPS Z7, 448(DI);         \
	ADDQ $512, DI;               \
	ADDQ $(128<<shift), DX;      \
	SUBQ $128, CX;               \
	JMP  wide;                   \
half:                           \
	CMPQ CX, $64;                \
	JLT  narrow;                 \
	VMOVUPS (DI), Z0;            \
	VMOVUPS 64(DI), Z1;          \
	VMOVUPS 128(DI), Z2;         \
	VMOVUPS 192(DI), Z3;         \
	ROWS(R9);                    \
halfrow:                        \
	VBROADCASTSS (R13), Z8;      \
	STEP(0, Z0);                 \
	STEP(16, Z1);                \
	STEP(32, Z2);                \
	STEP(48, Z3);                \
	NEXTROW;                     \
	JNZ  halfrow;                \
	VMOVUPS Z0, (DI);            \
	VMOVUPS Z1, 64(DI);          \
	VMOVUPS Z2, 128(DI);         \
	VMOVUPS Z3, 192(DI);         \
	ADDQ $256, DI;               \
	ADDQ $(64<<shift), DX;       \
	SUBQ $64, CX;                \
	JMP  half;                   \
narrow:                         \
	TESTQ CX, CX;                \
	JZ   done;                   \
	VMOVUPS (DI), Z0;            \
	ROWS(R9);                    \
narrowrow:                      \
	VBROADCASTSS (R13), Z8;      \
	STEP(0, Z0);                 \
	NEXTROW;                     \
	JNZ  narrowrow;              \
	VMOVUPS Z0, (DI);            \
	ADDQ $64, DI;                \
	ADDQ $(16<<shift), DX;       \
	SUBQ $16, CX;                \
	JMP  narrow;                 \
done:                              \
	VZEROUPPER;                    \
	RET

// func weighF32AVX512(acc, v, p []float32, stride int)
TEXT ·weighF32AVX512(SB), NOSPLIT, $0-80
	WEIGH(STEPF32, 2)

// func weighF16AVX512(acc []float32, v []uint16, p []float32, stride int)
TEXT ·weighF16AVX512(SB), NOSPLIT, $0-80
	WEIGH(STEPF16, 1)
