// Bodies of the kernels of quantized rows, in groups of 32 or 16 integers, for
// tiers that differ in how they multiply: MADD32(off, mem, sum) sets sum to
// partial sums of the products of 32 words of activations at off+mem with the
// weights in Y12 and Y13. All else is AVX2.

// LOAD32 and LOAD16 unpack a group of weights, off bytes from SI, to words.
#define LOAD32(off) \
	VPMOVSXBW off+0(SI), Y12;  \
	VPMOVSXBW off+16(SI), Y13

#define LOAD16(off) \
	VPMOVSXBW off+0(SI), Y12

#define MADD16(off, mem, sum) \
	VPMADDWD off+0 mem, Y12, sum

// ADDLANES leaves the total of each of Y0 to Y7 in that lane of Y0.
#define ADDLANES \
	VPHADDD    Y1, Y0, Y0;        \
	VPHADDD    Y3, Y2, Y2;        \
	VPHADDD    Y5, Y4, Y4;        \
	VPHADDD    Y7, Y6, Y6;        \
	VPHADDD    Y2, Y0, Y0;        \
	VPHADDD    Y6, Y4, Y4;        \
	VPERM2I128 $0x20, Y4, Y0, Y1; \
	VPERM2I128 $0x31, Y4, Y0, Y0; \
	VPADDD     Y1, Y0, Y0

// ADDLANE leaves the total of Y0 in lane 0.
#define ADDLANE \
	VEXTRACTI128 $1, Y0, X1;    \
	VPADDD       X1, X0, X0;    \
	VPSHUFD      $0x4e, X0, X1; \
	VPADDD       X1, X0, X0;    \
	VPSHUFD      $0xb1, X0, X1; \
	VPADDD       X1, X0, X0

// SCALES32 loads the scales dx of eight groups, and SCALES16 has two groups
// share one.
#define SCALES32 \
	VMOVUPS (R8), Y1

#define SCALES16 \
	VPMOVZXDQ (R8), Y1; \
	VMOVSLDUP Y1, Y1

// One row of activations:
//
//	SI   weights
//	DX   activations
//	R8   dx
//	R9   scale
//	R10  min, or 0
//	R11  sums
//	CX   groups left
//	X15  acc

// FMA adds group i of the eight, whose integer times dx is x, and FMAMIN its
// minimum, too.
#define FMA(i, x) \
	VFMADD231SS 4*i+0(R9), x, X15

#define FMAMIN(i, x) \
	FMA(i, x);                        \
	VMOVSS      4*i+0(R11), X8;       \
	VFMADD231SS 4*i+0(R10), X8, X15

// LANES copies the lanes of Y0 to lane 0 of X0 to X7.
#define LANES \
	VEXTRACTF128 $1, Y0, X4; \
	VMOVSHDUP X0, X1;        \
	VPSHUFD   $2, X0, X2;    \
	VPSHUFD   $3, X0, X3;    \
	VMOVSHDUP X4, X5;        \
	VPSHUFD   $2, X4, X6;    \
	VPSHUFD   $3, X4, X7

#define PRODUCT(i, size, LOAD, MADD, sum) \
	LOAD(size*i);                \
	MADD(2*size*i, (DX), sum)

// DOTQ is the body of func(q []int8, scale, min []float32, x []int16, dx, sums
// []float32) float32 for groups of size, 1<<shift of which share a dx.
#define DOTQ(size, shift, LOAD, MADD, SCALES) \
	MOVQ q_base+0(FP), SI;             \
	MOVQ scale_base+24(FP), R9;        \
	MOVQ scale_len+32(FP), CX;         \
	MOVQ min_base+48(FP), R10;         \
	MOVQ x_base+72(FP), DX;            \
	MOVQ dx_base+96(FP), R8;           \
	MOVQ sums_base+120(FP), R11;       \
	VXORPS X15, X15, X15;              \
	SUBQ $8, CX;                       \
	JLT  few;                          \
eight:                                 \
	PRODUCT(0, size, LOAD, MADD, Y0);  \
	PRODUCT(1, size, LOAD, MADD, Y1);  \
	PRODUCT(2, size, LOAD, MADD, Y2);  \
	PRODUCT(3, size, LOAD, MADD, Y3);  \
	PRODUCT(4, size, LOAD, MADD, Y4);  \
	PRODUCT(5, size, LOAD, MADD, Y5);  \
	PRODUCT(6, size, LOAD, MADD, Y6);  \
	PRODUCT(7, size, LOAD, MADD, Y7);  \
	ADDLANES;                          \
	VCVTDQ2PS Y0, Y0;                  \
	SCALES;                            \
	VMULPS Y1, Y0, Y0;                 \
	LANES;                             \
	TESTQ R10, R10;                    \
	JNZ  minima;                       \
	FMA(0, X0);                        \
	FMA(1, X1);                        \
	FMA(2, X2);                        \
	FMA(3, X3);                        \
	FMA(4, X4);                        \
	FMA(5, X5);                        \
	FMA(6, X6);                        \
	FMA(7, X7);                        \
	JMP  next;                         \
minima:                                \
	FMAMIN(0, X0);                     \
	FMAMIN(1, X1);                     \
	FMAMIN(2, X2);                     \
	FMAMIN(3, X3);                     \
	FMAMIN(4, X4);                     \
	FMAMIN(5, X5);                     \
	FMAMIN(6, X6);                     \
	FMAMIN(7, X7);                     \
	ADDQ $32, R10;                     \
	ADDQ $32, R11;                     \
next:                                  \
	ADDQ $(8*size), SI;                \
	ADDQ $(16*size), DX;               \
	ADDQ $(32>>shift), R8;             \
	ADDQ $32, R9;                      \
	SUBQ $8, CX;                       \
	JGE  eight;                        \
few:                                   \
	ADDQ $8, CX;                       \
	JZ   done;                         \
	XORL BX, BX;                       \
one:                                   \
	PRODUCT(0, size, LOAD, MADD, Y0);  \
	ADDLANE;                           \
	VCVTDQ2PS X0, X0;                  \
	MOVQ BX, AX;                       \
	SHRQ $shift, AX;                   \
	VMULSS (R8)(AX*4), X0, X0;         \
	VFMADD231SS (R9)(BX*4), X0, X15;   \
	TESTQ R10, R10;                    \
	JZ   nomin;                        \
	VMOVSS (R11)(BX*4), X2;            \
	VFMADD231SS (R10)(BX*4), X2, X15;  \
nomin:                                 \
	ADDQ $size, SI;                    \
	ADDQ $(2*size), DX;                \
	INCQ BX;                           \
	CMPQ BX, CX;                       \
	JLT  one;                          \
done:                                  \
	VMOVSS X15, ret+144(FP);           \
	VZEROUPPER;                        \
	RET

// Eight rows of activations, one in each lane, in blocks of up to eight steps
// of 32 weights:
//
//	SI      weights
//	DX, BX  rows 0 to 3 and 4 to 7 of the activations
//	R8, R9  bytes in one and in three of those rows
//	R10     scale
//	R11     min, or 0
//	R12     dx
//	R13     sums
//	CX      steps left
//	DI      end of the block's scales in the frame
//	AX      the step's scales in the frame
//	Y15     acc
//
// and in the frame, at 0 the scales and at 256 the sums of a block, transposed
// so that each vector has a lane for each row, and at 768 acc.

// TRANSPOSE turns eight rows of eight floats at p, AX bytes apart, to eight
// vectors in the frame. Lanes of the rows that the mask Y14 leaves out are 0.
#define TRANSPOSE(p, frame) \
	LEAQ (AX)(AX*2), BX;            \
	VMASKMOVPS (p), Y14, Y0;        \
	VMASKMOVPS (p)(AX*1), Y14, Y1;  \
	VMASKMOVPS (p)(AX*2), Y14, Y2;  \
	VMASKMOVPS (p)(BX*1), Y14, Y3;  \
	LEAQ (p)(AX*4), DI;             \
	VMASKMOVPS (DI), Y14, Y4;       \
	VMASKMOVPS (DI)(AX*1), Y14, Y5; \
	VMASKMOVPS (DI)(AX*2), Y14, Y6; \
	VMASKMOVPS (DI)(BX*1), Y14, Y7; \
	VUNPCKLPS Y1, Y0, Y8;           \
	VUNPCKHPS Y1, Y0, Y9;           \
	VUNPCKLPS Y3, Y2, Y10;          \
	VUNPCKHPS Y3, Y2, Y11;          \
	VUNPCKLPS Y5, Y4, Y0;           \
	VUNPCKHPS Y5, Y4, Y1;           \
	VUNPCKLPS Y7, Y6, Y2;           \
	VUNPCKHPS Y7, Y6, Y3;           \
	VUNPCKLPD Y10, Y8, Y4;          \
	VUNPCKHPD Y10, Y8, Y5;          \
	VUNPCKLPD Y11, Y9, Y6;          \
	VUNPCKHPD Y11, Y9, Y7;          \
	VUNPCKLPD Y2, Y0, Y8;           \
	VUNPCKHPD Y2, Y0, Y9;           \
	VUNPCKLPD Y3, Y1, Y10;          \
	VUNPCKHPD Y3, Y1, Y11;          \
	HALVES(Y4, Y8, frame+0);        \
	HALVES(Y5, Y9, frame+32);       \
	HALVES(Y6, Y10, frame+64);      \
	HALVES(Y7, Y11, frame+96)

// HALVES stores the lower halves of a and b, and then the upper ones.
#define HALVES(a, b, frame) \
	VPERM2F128 $0x20, b, a, Y12; \
	VPERM2F128 $0x31, b, a, Y13; \
	VMOVUPS    Y12, frame+0(SP);   \
	VMOVUPS    Y13, frame+128(SP)

// COUNTMASK sets Y14 to the mask of AX lanes, 0 to 8.
#define COUNTMASK \
	LEAQ ·tailMask+64(SB), DI; \
	SHLQ $2, AX;               \
	SUBQ AX, DI;               \
	VMOVUPS (DI), Y14

#define MADDROWS(off, MADD) \
	MADD(off, (DX), Y0);       \
	MADD(off, (DX)(R8*1), Y1); \
	MADD(off, (DX)(R8*2), Y2); \
	MADD(off, (DX)(R9*1), Y3); \
	MADD(off, (BX), Y4);       \
	MADD(off, (BX)(R8*1), Y5); \
	MADD(off, (BX)(R8*2), Y6); \
	MADD(off, (BX)(R9*1), Y7)

// FMAROWS adds the integers of one group to acc.
#define FMAROWS \
	VCVTDQ2PS    Y0, Y0;        \
	VMULPS       (SP)(AX*1), Y0, Y0; \
	VBROADCASTSS (R10), Y1;     \
	VFMADD231PS  Y1, Y0, Y15;   \
	ADDQ         $4, R10

// FMAMINS adds its minimum; the sums of its rows are at off+(SP)(AX*m).
#define FMAMINS(off, m) \
	VBROADCASTSS (R11), Y1;                   \
	VFMADD231PS  off+256(SP)(AX*m), Y1, Y15;  \
	ADDQ         $4, R11

#define ARGROWS \
	MOVQ q_base+24(FP), SI;      \
	MOVQ q_len+32(FP), CX;       \
	MOVQ scale_base+48(FP), R10; \
	MOVQ min_base+72(FP), R11;   \
	MOVQ x_base+96(FP), DX;      \
	MOVQ dx_base+120(FP), R12;   \
	MOVQ sums_base+144(FP), R13; \
	LEAQ (CX)(CX*1), R8;         \
	LEAQ (R8)(R8*2), R9;         \
	SHRQ $5, CX;                 \
	VXORPS Y15, Y15, Y15

// BLOCKSCALES transposes the dx of a block. It leaves its steps, at most 8, at
// 800 of the frame.
#define BLOCKSCALES \
	VMOVUPS Y15, 768(SP);   \
	MOVQ $8, AX;            \
	CMPQ CX, AX;            \
	CMOVQLT CX, AX;         \
	MOVQ AX, 800(SP);       \
	COUNTMASK;              \
	MOVQ R8, AX;            \
	SHRQ $4, AX;            \
	TRANSPOSE(R12, 0);      \
	ADDQ $32, R12

// BLOCKSTART sets the registers for a block's steps.
#define BLOCKSTART \
	MOVQ 800(SP), DI;       \
	SHLQ $5, DI;            \
	XORL AX, AX;            \
	LEAQ (DX)(R8*4), BX;    \
	VMOVUPS 768(SP), Y15

#define BLOCKNEXT \
	ADDQ $32, SI; \
	ADDQ $64, DX; \
	ADDQ $64, BX; \
	ADDQ $32, AX; \
	CMPQ AX, DI

// DOTROWSQ32 is the body of func(dst []float32, q []int8, scale, min []float32,
// x []int16, dx, sums []float32), for eight rows and groups of 32.
#define DOTROWSQ32(MADD) \
	ARGROWS;                \
	TESTQ CX, CX;           \
	JZ   done;              \
block:                      \
	BLOCKSCALES;            \
	TESTQ R11, R11;         \
	JZ   start;             \
	MOVQ R8, AX;            \
	SHRQ $4, AX;            \
	TRANSPOSE(R13, 256);    \
	ADDQ $32, R13;          \
start:                      \
	BLOCKSTART;             \
step:                       \
	LOAD32(0);              \
	MADDROWS(0, MADD);         \
	ADDLANES;               \
	FMAROWS;                \
	TESTQ R11, R11;         \
	JZ   next;              \
	FMAMINS(0, 1);          \
next:                       \
	BLOCKNEXT;              \
	JLT  step;              \
	SUBQ 800(SP), CX;       \
	JNZ  block;             \
done:                       \
	MOVQ dst_base+0(FP), DI; \
	VMOVUPS Y15, (DI);      \
	VZEROUPPER;             \
	RET

// DOTROWSQ16 is that for groups of 16, two in a step.
#define DOTROWSQ16 \
	ARGROWS;                \
	TESTQ CX, CX;           \
	JZ   done;              \
block:                      \
	BLOCKSCALES;            \
	TESTQ R11, R11;         \
	JZ   start;             \
	MOVQ 800(SP), AX;       \
	SHLQ $1, AX;            \
	MOVQ $8, DI;            \
	CMPQ AX, DI;            \
	CMOVQGT DI, AX;         \
	COUNTMASK;              \
	MOVQ R8, AX;            \
	SHRQ $3, AX;            \
	TRANSPOSE(R13, 256);    \
	ADDQ $32, R13;          \
	MOVQ 800(SP), AX;       \
	SUBQ $4, AX;            \
	JLE  start;             \
	SHLQ $1, AX;            \
	COUNTMASK;              \
	MOVQ R8, AX;            \
	SHRQ $3, AX;            \
	TRANSPOSE(R13, 512);    \
	ADDQ $32, R13;          \
start:                      \
	BLOCKSTART;             \
step:                       \
	LOAD16(0);              \
	MADDROWS(0, MADD16);       \
	ADDLANES;               \
	FMAROWS;                \
	TESTQ R11, R11;         \
	JZ   second;            \
	FMAMINS(0, 2);          \
second:                     \
	LOAD16(16);             \
	MADDROWS(32, MADD16);   \
	ADDLANES;               \
	FMAROWS;                \
	TESTQ R11, R11;         \
	JZ   next;              \
	FMAMINS(32, 2);         \
next:                       \
	BLOCKNEXT;              \
	JLT  step;              \
	SUBQ 800(SP), CX;       \
	JNZ  block;             \
done:                       \
	MOVQ dst_base+0(FP), DI; \
	VMOVUPS Y15, (DI);      \
	VZEROUPPER;             \
	RET
