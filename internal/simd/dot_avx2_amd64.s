#include "textflag.h"
#include "tier_amd64.h"
#include "sum_amd64.h"

// Kernels that add the products of four rows of w and some of x to their 16
// partial sums.

// FOUR does a step for each row of w.
#define FOUR(STEP) \
	STEP((SI), Y0, Y1);       \
	STEP((SI)(R8*1), Y2, Y3); \
	STEP((SI)(R8*2), Y4, Y5); \
	STEP((SI)(R9*1), Y6, Y7)

// A step adds 16 elements of a row of w times those of x in Y8 and Y9, fused.
#define STEPF32(mem, lo, hi) \
	VFMADD231PS 0 mem, Y8, lo; \
	VFMADD231PS 32 mem, Y9, hi

#define STEPF16(mem, lo, hi) \
	VCVTPH2PS   0 mem, Y10;  \
	VCVTPH2PS   16 mem, Y11; \
	VFMADD231PS Y10, Y8, lo;      \
	VFMADD231PS Y11, Y9, hi

#define STEPBF16(mem, lo, hi) \
	VPMOVZXWD   0 mem, Y10;  \
	VPMOVZXWD   16 mem, Y11; \
	VPSLLD      $16, Y10, Y10;    \
	VPSLLD      $16, Y11, Y11;    \
	VFMADD231PS Y10, Y8, lo;      \
	VFMADD231PS Y11, Y9, hi

// ahead is how many bytes before a step its rows are fetched: what follows the end of
// one that lies apart is the next row there.
#define ahead 512

#define FETCH \
	PREFETCHT0 (R10);       \
	PREFETCHT0 (R10)(R8*1); \
	PREFETCHT0 (R10)(R8*2); \
	PREFETCHT0 (R10)(R9*1)

// ADDDOTS is the body of the kernels for one row of x, with two Y registers of
// sums for each row of w, whose elements have 1<<shift bytes.
#define ADDDOTS(STEP, shift) \
	MOVQ    sums+0(FP), DI;      \
	MOVQ    w_base+8(FP), SI;    \
	MOVQ    stride+32(FP), R8;   \
	MOVQ    x_base+40(FP), DX;   \
	MOVQ    x_len+48(FP), CX;    \
	SHLQ    $shift, R8;          \
	LEAQ    (R8)(R8*2), R9;      \
	LEAQ    ahead(SI), R10;      \
	VMOVUPS (DI), Y0;            \
	VMOVUPS 32(DI), Y1;          \
	VMOVUPS 64(DI), Y2;          \
	VMOVUPS 96(DI), Y3;          \
	VMOVUPS 128(DI), Y4;         \
	VMOVUPS 160(DI), Y5;         \
	VMOVUPS 192(DI), Y6;         \
	VMOVUPS 224(DI), Y7;         \
	SHRQ    $4, CX;              \
	JZ      done;                \
loop:                                \
	FETCH;                       \
	VMOVUPS (DX), Y8;            \
	VMOVUPS 32(DX), Y9;          \
	FOUR(STEP);                  \
	ADDQ    $64, DX;             \
	ADDQ    $(16<<shift), SI;    \
	ADDQ    $(16<<shift), R10;   \
	DECQ    CX;                  \
	JNZ     loop;                \
done:                                \
	VMOVUPS Y0, (DI);            \
	VMOVUPS Y1, 32(DI);          \
	VMOVUPS Y2, 64(DI);          \
	VMOVUPS Y3, 96(DI);          \
	VMOVUPS Y4, 128(DI);         \
	VMOVUPS Y5, 160(DI);         \
	VMOVUPS Y6, 192(DI);         \
	VMOVUPS Y7, 224(DI);         \
	VZEROUPPER;                  \
	RET

// func addDotsF32Vec(sums *dotSums, w []float32, stride int, x []float32)
TEXT ·addDotsF32Vec(SB), NOSPLIT, $0-64
	UPGRADE(·addDotsF32AVX512)
	ADDDOTS(STEPF32, 2)

// func addDotsF16Vec(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsF16Vec(SB), NOSPLIT, $0-64
	UPGRADE(·addDotsF16AVX512)
	ADDDOTS(STEPF16, 1)

// func addDotsBF16Vec(sums *dotSums, w []uint16, stride int, x []float32)
TEXT ·addDotsBF16Vec(SB), NOSPLIT, $0-64
	UPGRADE(·addDotsBF16AVX512)
	ADDDOTS(STEPBF16, 1)

// STEPE4M3 adds 16 elements of a row of w times those of x in Y8 and Y9, fused. Binary16 numbers, of 1/256 of the values,
// are made of codes extended to 16 bits: a shift leaves bit 14 equal to the sign, and adding 1<<7 carries into the bit
// where all below are set, in NaN. Y14 has 1<<7 in each word, Y15 1<<14.
#define STEPE4M3(mem, scale, lo, hi) \
	VPMOVSXBW    mem, Y10;          \
	VBROADCASTSS (scale), Y12;      \
	VPSLLW       $7, Y10, Y10;      \
	VPADDW       Y14, Y10, Y11;     \
	VPAND        Y15, Y11, Y11;     \
	VPXOR        Y11, Y10, Y10;     \
	VEXTRACTI128 $1, Y10, X11;      \
	VCVTPH2PS    X10, Y10;          \
	VCVTPH2PS    X11, Y11;          \
	VMULPS       Y12, Y10, Y10;     \
	VMULPS       Y12, Y11, Y11;     \
	VFMADD231PS  Y10, Y8, lo;       \
	VFMADD231PS  Y11, Y9, hi

// func addDotsE4M3Vec(sums *dotSums, w []byte, stride int, x []float32, scales *[dotRows]*float32, per int)
TEXT ·addDotsE4M3Vec(SB), NOSPLIT, $0-80
	UPGRADE(·addDotsE4M3AVX512)
	MOVQ         sums+0(FP), DI
	MOVQ         w_base+8(FP), SI
	MOVQ         stride+32(FP), R8
	MOVQ         x_base+40(FP), DX
	MOVQ         x_len+48(FP), CX
	MOVQ         scales+64(FP), R11
	LEAQ         (R8)(R8*2), R9
	MOVL         $0x00800080, AX
	VMOVD        AX, X14
	VPBROADCASTD X14, Y14
	MOVL         $0x40004000, AX
	VMOVD        AX, X15
	VPBROADCASTD X15, Y15
	MOVQ         24(R11), R13
	MOVQ         16(R11), R12
	MOVQ         (R11), R10
	MOVQ         8(R11), R11
	MOVQ         per+72(FP), BX
	VMOVUPS      (DI), Y0
	VMOVUPS      32(DI), Y1
	VMOVUPS      64(DI), Y2
	VMOVUPS      96(DI), Y3
	VMOVUPS      128(DI), Y4
	VMOVUPS      160(DI), Y5
	VMOVUPS      192(DI), Y6
	VMOVUPS      224(DI), Y7
	SHRQ         $4, CX
	JZ           done

loop:
	PREFETCHT0 ahead(SI)
	PREFETCHT0 ahead(SI)(R8*1)
	PREFETCHT0 ahead(SI)(R8*2)
	PREFETCHT0 ahead(SI)(R9*1)
	VMOVUPS    (DX), Y8
	VMOVUPS    32(DX), Y9
	STEPE4M3((SI), R10, Y0, Y1)
	STEPE4M3((SI)(R8*1), R11, Y2, Y3)
	STEPE4M3((SI)(R8*2), R12, Y4, Y5)
	STEPE4M3((SI)(R9*1), R13, Y6, Y7)
	ADDQ       $64, DX
	ADDQ       $16, SI
	DECQ       BX
	JNZ        next
	MOVQ       per+72(FP), BX
	ADDQ       $4, R10
	ADDQ       $4, R11
	ADDQ       $4, R12
	ADDQ       $4, R13

next:
	DECQ CX
	JNZ  loop

done:
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	VZEROUPPER
	RET

// ROW adds the products of a row of w and three of x, in Y12 to Y14.
#define ROW(mem, a, b, c) \
	VMOVUPS     mem, Y15;     \
	VFMADD231PS Y15, Y12, a;  \
	VFMADD231PS Y15, Y13, b;  \
	VFMADD231PS Y15, Y14, c

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

#define THREE(MOVE) \
	MOVE(0, Y0, Y1, Y2, Y3);   \
	MOVE(256, Y4, Y5, Y6, Y7); \
	MOVE(512, Y8, Y9, Y10, Y11)

// func addBlockVec(sums *[dotCols]dotSums, w, x []float32, stride, k int)
//
// Four rounds, each for half of the sums of three rows of x: R11 counts them,
// R12 is where x begins in each.
TEXT ·addBlockVec(SB), NOSPLIT, $0-72
	UPGRADE(·addBlockAVX512)
	MOVQ sums+0(FP), DI
	MOVQ w_base+8(FP), R10
	MOVQ x_base+32(FP), R12
	MOVQ stride+56(FP), R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R9
	MOVL $4, R11

round:
	MOVQ R10, SI
	MOVQ R12, DX
	MOVQ k+64(FP), CX
	THREE(LOAD4)
	SHRQ $4, CX
	JZ   next

loop:
	VMOVUPS (DX), Y12
	VMOVUPS (DX)(R8*1), Y13
	VMOVUPS (DX)(R8*2), Y14
	ROW((SI), Y0, Y4, Y8)
	ROW((SI)(R8*1), Y1, Y5, Y9)
	ROW((SI)(R8*2), Y2, Y6, Y10)
	ROW((SI)(R9*1), Y3, Y7, Y11)
	ADDQ    $64, SI
	ADDQ    $64, DX
	DECQ    CX
	JNZ     loop

next:
	THREE(STORE4)
	ADDQ  $32, DI
	ADDQ  $32, R10
	ADDQ  $32, R12
	DECQ  R11
	JZ    done
	CMPQ  R11, $2
	JNE   round
	ADDQ  $(3*256-64), DI
	SUBQ  $64, R10
	LEAQ  -64(R12)(R9*1), R12
	JMP   round

done:
	VZEROUPPER
	RET

// func sumDotsVec(dst *[dotRows]float32, sums *dotSums)
TEXT ·sumDotsVec(SB), NOSPLIT, $0-16
	MOVQ    dst+0(FP), DI
	MOVQ    sums+8(FP), SI
	VMOVUPS (SI), Y0
	VMOVUPS 64(SI), Y1
	VMOVUPS 128(SI), Y2
	VMOVUPS 192(SI), Y3
	VADDPS  32(SI), Y0, Y0
	VADDPS  96(SI), Y1, Y1
	VADDPS  160(SI), Y2, Y2
	VADDPS  224(SI), Y3, Y3
	SUM4(Y0, Y1, Y2, Y3, X0)
	VMOVUPS X0, (DI)
	VZEROUPPER
	RET

// func addSerialAVX2(sums *[serialRows][serialCols]float32, w []float32, gap int, x []float32)
//
//	SI, R8, R9, R10  rows 0 to 3 of w
//	DX, CX           x, elements of a row left
//	Y0..Y3           sums of each row of w
TEXT ·addSerialAVX2(SB), NOSPLIT, $0-64
	MOVQ sums+0(FP), DI
	MOVQ w_base+8(FP), SI
	MOVQ gap+32(FP), R10
	MOVQ x_base+40(FP), DX
	MOVQ x_len+48(FP), CX
	SHRQ $3, CX
	SHLQ $2, R10
	LEAQ (SI)(R10*1), R8
	LEAQ (R8)(R10*1), R9
	ADDQ R9, R10
	VMOVUPS 0(DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	XORQ AX, AX
serial:
	VMOVUPS (DX), Y8
	VBROADCASTSS (SI)(AX*4), Y9
	VBROADCASTSS (R8)(AX*4), Y10
	VBROADCASTSS (R9)(AX*4), Y11
	VBROADCASTSS (R10)(AX*4), Y12
	VMULPS Y8, Y9, Y9
	VMULPS Y8, Y10, Y10
	VMULPS Y8, Y11, Y11
	VMULPS Y8, Y12, Y12
	VADDPS Y9, Y0, Y0
	VADDPS Y10, Y1, Y1
	VADDPS Y11, Y2, Y2
	VADDPS Y12, Y3, Y3
	ADDQ $32, DX
	INCQ AX
	CMPQ AX, CX
	JB   serial
	VMOVUPS Y0, 0(DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VZEROUPPER
	RET
