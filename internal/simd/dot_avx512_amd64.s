#include "textflag.h"

// Kernels that add the products of four rows of w and some of x to their 16
// partial sums, a Z register for each pair.

// FOUR does a step for each row of w.
#define FOUR(STEP) \
	STEP((SI), Z4, Z0);       \
	STEP((SI)(R8*1), Z5, Z1); \
	STEP((SI)(R8*2), Z6, Z2); \
	STEP((SI)(R9*1), Z7, Z3)

// A step adds 16 elements of a row of w times those of x in Z8, fused.
#define STEPF32(mem, w, sums) \
	VFMADD231PS mem, Z8, sums

#define STEPF16(mem, w, sums) \
	VCVTPH2PS   mem, w; \
	VFMADD231PS w, Z8, sums

#define STEPBF16(mem, w, sums) \
	VPMOVZXWD   mem, w;    \
	VPSLLD      $16, w, w; \
	VFMADD231PS w, Z8, sums

// ahead is how far before a step its rows are fetched: what follows their ends
// begins the next four rows.
#define ahead 1024

#define FETCH \
	PREFETCHT0 (R10);       \
	PREFETCHT0 (R10)(R8*1); \
	PREFETCHT0 (R10)(R8*2); \
	PREFETCHT0 (R10)(R9*1)

// ADDDOTS is the body of the kernels for one row of x. An element of w has
// 1<<shift bytes.
#define ADDDOTS(STEP, shift) \
	MOVQ    sums+0(FP), DI;      \
	MOVQ    w_base+8(FP), SI;    \
	MOVQ    stride+32(FP), R8;   \
	MOVQ    x_base+40(FP), DX;   \
	MOVQ    x_len+48(FP), CX;    \
	SHLQ    $shift, R8;          \
	LEAQ    (R8)(R8*2), R9;      \
	LEAQ    ahead(SI), R10;      \
	VMOVUPS (DI), Z0;            \
	VMOVUPS 64(DI), Z1;          \
	VMOVUPS 128(DI), Z2;         \
	VMOVUPS 192(DI), Z3;         \
	SHRQ    $4, CX;              \
	JZ      done;                \
loop:                                \
	CMPQ    CX, $(ahead/16>>shift); \
	JNE     fetch;               \
	ADDQ    R9, R10;             \
fetch:                               \
	FETCH;                       \
	VMOVUPS (DX), Z8;            \
	FOUR(STEP);                  \
	ADDQ    $64, DX;             \
	ADDQ    $(16<<shift), SI;    \
	ADDQ    $(16<<shift), R10;   \
	DECQ    CX;                  \
	JNZ     loop;                \
done:                                \
	VMOVUPS Z0, (DI);            \
	VMOVUPS Z1, 64(DI);          \
	VMOVUPS Z2, 128(DI);         \
	VMOVUPS Z3, 192(DI);         \
	VZEROUPPER;                  \
	RET

// func addDotsF32AVX512(sums *dotSums, w []float32, stride int, x []float32)
TEXT ·addDotsF32AVX512(SB), NOSPLIT, $0-64
	ADDDOTS(STEPF32, 2)

// func addDotsF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsF16AVX512(SB), NOSPLIT, $0-64
	ADDDOTS(STEPF16, 1)

// func addDotsBF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsBF16AVX512(SB), NOSPLIT, $0-64
	ADDDOTS(STEPBF16, 1)

// COL adds the products of a row of x.
#define COL(mem, a, b, c, d) \
	VMOVUPS     mem, Z28;     \
	VFMADD231PS Z28, Z24, a;  \
	VFMADD231PS Z28, Z25, b;  \
	VFMADD231PS Z28, Z26, c;  \
	VFMADD231PS Z28, Z27, d

// LOAD4 and STORE4 move the sums of a row of x.
#define LOAD4(at, a, b, c, d) \
	VMOVUPS (at+0)(DI), a;   \
	VMOVUPS (at+64)(DI), b;  \
	VMOVUPS (at+128)(DI), c; \
	VMOVUPS (at+192)(DI), d

#define STORE4(at, a, b, c, d) \
	VMOVUPS a, (at+0)(DI);   \
	VMOVUPS b, (at+64)(DI);  \
	VMOVUPS c, (at+128)(DI); \
	VMOVUPS d, (at+192)(DI)

#define SIX(MOVE) \
	MOVE(0, Z0, Z1, Z2, Z3);        \
	MOVE(256, Z4, Z5, Z6, Z7);      \
	MOVE(512, Z8, Z9, Z10, Z11);    \
	MOVE(768, Z12, Z13, Z14, Z15);  \
	MOVE(1024, Z16, Z17, Z18, Z19); \
	MOVE(1280, Z20, Z21, Z22, Z23)

// func addBlockAVX512(sums *[dotCols]dotSums, w, x []float32, stride, k int)
TEXT ·addBlockAVX512(SB), NOSPLIT, $0-72
	MOVQ sums+0(FP), DI
	MOVQ w_base+8(FP), SI
	MOVQ x_base+32(FP), DX
	MOVQ stride+56(FP), R8
	MOVQ k+64(FP), CX
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R9
	LEAQ (DX)(R9*1), R10
	SIX(LOAD4)
	SHRQ $4, CX
	JZ   done

loop:
	VMOVUPS (SI), Z24
	VMOVUPS (SI)(R8*1), Z25
	VMOVUPS (SI)(R8*2), Z26
	VMOVUPS (SI)(R9*1), Z27
	COL((DX), Z0, Z1, Z2, Z3)
	COL((DX)(R8*1), Z4, Z5, Z6, Z7)
	COL((DX)(R8*2), Z8, Z9, Z10, Z11)
	COL((R10), Z12, Z13, Z14, Z15)
	COL((R10)(R8*1), Z16, Z17, Z18, Z19)
	COL((R10)(R8*2), Z20, Z21, Z22, Z23)
	ADDQ    $64, SI
	ADDQ    $64, DX
	ADDQ    $64, R10
	DECQ    CX
	JNZ     loop

done:
	SIX(STORE4)
	VZEROUPPER
	RET
