#include "textflag.h"
#include "fetch_avx512_amd64.h"

// Kernels that add the products of four rows of w and some of x to their 16
// partial sums, a Z register for each pair.

// FOUR does a step for each row of w, so many bytes behind SI.
#define FOUR(at, STEP) \
	STEP(at, (SI), Z4, Z0);       \
	STEP(at, (SI)(R8*1), Z5, Z1); \
	STEP(at, (SI)(R8*2), Z6, Z2); \
	STEP(at, (SI)(R9*1), Z7, Z3)

// A step adds 16 elements of a row of w times those of x in Z8, fused.
#define STEPF32(at, mem, w, sums) \
	VFMADD231PS at mem, Z8, sums

#define STEPF16(at, mem, w, sums) \
	VCVTPH2PS   at mem, w; \
	VFMADD231PS w, Z8, sums

#define STEPBF16(at, mem, w, sums) \
	VPMOVZXWD   at mem, w; \
	VPSLLD      $16, w, w; \
	VFMADD231PS w, Z8, sums

// FETCH fetches a line of each row. Behind their ends lies what the next call reads.
#define FETCH(at) \
	PREFETCHT0 (NEAR+at)(SI);       \
	PREFETCHT0 (NEAR+at)(SI)(R8*1); \
	PREFETCHT0 (NEAR+at)(SI)(R8*2); \
	PREFETCHT0 (NEAR+at)(SI)(R9*1); \
	PREFETCHT1 (FAR+at)(SI);        \
	PREFETCHT1 (FAR+at)(SI)(R8*1);  \
	PREFETCHT1 (FAR+at)(SI)(R8*2);  \
	PREFETCHT1 (FAR+at)(SI)(R9*1)

// LINE and LINES fetch as much as two steps take of elements of 16 bits, and of 32.
#define LINE FETCH(0)

#define LINES \
	FETCH(0); \
	FETCH(64)

// ADDDOTS is the body of the kernels for one row of x. An element of w has
// 1<<shift bytes.
#define ADDDOTS(STEP, FETCHES, shift) \
	MOVQ    sums+0(FP), DI;      \
	MOVQ    w_base+8(FP), SI;    \
	MOVQ    stride+32(FP), R8;   \
	MOVQ    x_base+40(FP), DX;   \
	MOVQ    x_len+48(FP), CX;    \
	SHLQ    $shift, R8;          \
	LEAQ    (R8)(R8*2), R9;      \
	VMOVUPS (DI), Z0;            \
	VMOVUPS 64(DI), Z1;          \
	VMOVUPS 128(DI), Z2;         \
	VMOVUPS 192(DI), Z3;         \
	SHRQ    $4, CX;              \
	SUBQ    $2, CX;              \
	JLT     last;                \
loop:                                \
	FETCHES;                     \
	VMOVUPS (DX), Z8;            \
	FOUR(0, STEP);               \
	VMOVUPS 64(DX), Z8;          \
	FOUR((16<<shift), STEP);     \
	ADDQ    $128, DX;            \
	ADDQ    $(32<<shift), SI;    \
	SUBQ    $2, CX;              \
	JGE     loop;                \
last:                                \
	TESTQ   $1, CX;              \
	JZ      done;                \
	VMOVUPS (DX), Z8;            \
	FOUR(0, STEP);               \
done:                                \
	VMOVUPS Z0, (DI);            \
	VMOVUPS Z1, 64(DI);          \
	VMOVUPS Z2, 128(DI);         \
	VMOVUPS Z3, 192(DI);         \
	VZEROUPPER;                  \
	RET

// func addDotsF32AVX512(sums *dotSums, w []float32, stride int, x []float32)
TEXT ·addDotsF32AVX512(SB), NOSPLIT, $0-64
	ADDDOTS(STEPF32, LINES, 2)

// func addDotsF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsF16AVX512(SB), NOSPLIT, $0-64
	ADDDOTS(STEPF16, LINE, 1)

// func addDotsBF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsBF16AVX512(SB), NOSPLIT, $0-64
	ADDDOTS(STEPBF16, LINE, 1)

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
