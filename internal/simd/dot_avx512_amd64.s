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

// HALF makes binary16 numbers, of 1/256 of the values, of codes extended to 16 bits: a shift leaves bit 14 equal to the
// sign, and adding 1<<7 carries into the bit where all below are set, in NaN. Z30 has 1<<7 in each word, Z31 1<<14.
#define HALF(w, t, ones, top) \
	VPSLLW     $7, w, w;       \
	VPADDW     ones, w, t;     \
	VPTERNLOGD $0x78, top, t, w

// STEPE4M3 adds 32 elements of a row of w times those of x in Z8 and Z9, fused. STEP1E4M3 adds 16.
#define STEPE4M3(mem, scale, sums) \
	VPMOVSXBW     mem, Z10;         \
	HALF(Z10, Z11, Z30, Z31);       \
	VEXTRACTI64X4 $1, Z10, Y11;     \
	VCVTPH2PS     Y10, Z10;         \
	VCVTPH2PS     Y11, Z11;         \
	VMULPS        scale, Z10, Z10;  \
	VMULPS        scale, Z11, Z11;  \
	VFMADD231PS   Z10, Z8, sums;    \
	VFMADD231PS   Z11, Z9, sums

#define STEP1E4M3(mem, scale, sums) \
	VPMOVSXBW   mem, Y10;         \
	HALF(Y10, Y11, Y30, Y31);     \
	VCVTPH2PS   Y10, Z10;         \
	VMULPS      scale, Z10, Z10;  \
	VFMADD231PS Z10, Z8, sums

#define FOURE4M3(STEP) \
	STEP((SI), Z4, Z0);       \
	STEP((SI)(R8*1), Z5, Z1); \
	STEP((SI)(R8*2), Z6, Z2); \
	STEP((SI)(R9*1), Z7, Z3)

// func addDotsE4M3AVX512(sums *dotSums, w []byte, stride int, x []float32, scales *[dotRows]*float32, per int)
TEXT ·addDotsE4M3AVX512(SB), NOSPLIT, $0-80
	MOVQ         sums+0(FP), DI
	MOVQ         w_base+8(FP), SI
	MOVQ         stride+32(FP), R8
	MOVQ         x_base+40(FP), DX
	MOVQ         x_len+48(FP), CX
	MOVQ         scales+64(FP), R10
	LEAQ         (R8)(R8*2), R9
	MOVQ         24(R10), R13
	MOVQ         16(R10), R12
	MOVQ         8(R10), R11
	MOVQ         (R10), R10
	MOVL         $0x00800080, AX
	VPBROADCASTD AX, Z30
	MOVL         $0x40004000, AX
	VPBROADCASTD AX, Z31
	MOVQ         per+72(FP), AX
	VMOVUPS      (DI), Z0
	VMOVUPS      64(DI), Z1
	VMOVUPS      128(DI), Z2
	VMOVUPS      192(DI), Z3
	SHRQ         $4, CX
	JZ           done

group:
	VBROADCASTSS (R10), Z4
	VBROADCASTSS (R11), Z5
	VBROADCASTSS (R12), Z6
	VBROADCASTSS (R13), Z7
	ADDQ         $4, R10
	ADDQ         $4, R11
	ADDQ         $4, R12
	ADDQ         $4, R13
	MOVQ         AX, BX
	CMPQ         CX, BX
	CMOVQLT      CX, BX
	SUBQ         BX, CX
	SUBQ         $2, BX
	JLT          last

loop:
	FETCH(0)
	VMOVUPS (DX), Z8
	VMOVUPS 64(DX), Z9
	FOURE4M3(STEPE4M3)
	ADDQ    $128, DX
	ADDQ    $32, SI
	SUBQ    $2, BX
	JGE     loop

last:
	TESTQ   $1, BX
	JZ      next
	VMOVUPS (DX), Z8
	FOURE4M3(STEP1E4M3)
	ADDQ    $64, DX
	ADDQ    $16, SI

next:
	TESTQ CX, CX
	JNZ   group

done:
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VZEROUPPER
	RET

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

// QUARTERS leaves sums of four rows of w with a row of x in z, four in each quarter: i takes i+8, then i+4.
#define QUARTERS(at, y, z, Yt, Zt, Yu, Zu) \
	VMOVUPS      (at+0)(SI), y;            \
	VMOVUPS      (at+32)(SI), Yt;          \
	VINSERTF64X4 $1, (at+64)(SI), z, z;    \
	VINSERTF64X4 $1, (at+96)(SI), Zt, Zt;  \
	VADDPS       Zt, z, z;                 \
	VMOVUPS      (at+128)(SI), Yt;         \
	VMOVUPS      (at+160)(SI), Yu;         \
	VINSERTF64X4 $1, (at+192)(SI), Zt, Zt; \
	VINSERTF64X4 $1, (at+224)(SI), Zu, Zu; \
	VADDPS       Zu, Zt, Zt;               \
	VSHUFF64X2   $0xdd, Zt, z, Zu;         \
	VSHUFF64X2   $0x88, Zt, z, z;          \
	VADDPS       Zu, z, z

// HALVES adds sums i+2 to i, of two rows of x, in a. TOTALS adds the last two of each.
#define HALVES(b, a, t) \
	VUNPCKHPD b, a, t; \
	VUNPCKLPD b, a, a; \
	VADDPS    t, a, a

#define TOTALS(b, a, t) \
	VSHUFPS $0xdd, b, a, t; \
	VSHUFPS $0x88, b, a, a; \
	VADDPS  t, a, a

// The place of each total: of a row of x, one after another.
DATA totals<>+0(SB)/8, $0x0d0905010c080400
DATA totals<>+8(SB)/8, $0x0f0b07030e0a0602
GLOBL totals<>(SB), RODATA|NOPTR, $16

// func sumBlockAVX512(dst []float32, stride int, sums *[dotCols]dotSums)
TEXT ·sumBlockAVX512(SB), NOSPLIT, $0-40
	MOVQ          dst_base+0(FP), DI
	MOVQ          stride+24(FP), R8
	MOVQ          sums+32(FP), SI
	SHLQ          $2, R8
	LEAQ          (R8)(R8*2), R9
	LEAQ          (DI)(R8*4), R10
	VPMOVZXBD     totals<>(SB), Z31
	QUARTERS(0, Y0, Z0, Y6, Z6, Y7, Z7)
	QUARTERS(256, Y1, Z1, Y8, Z8, Y9, Z9)
	QUARTERS(512, Y2, Z2, Y10, Z10, Y11, Z11)
	QUARTERS(768, Y3, Z3, Y12, Z12, Y13, Z13)
	QUARTERS(1024, Y4, Z4, Y14, Z14, Y15, Z15)
	QUARTERS(1280, Y5, Z5, Y6, Z6, Y7, Z7)
	HALVES(Z1, Z0, Z8)
	HALVES(Z3, Z2, Z9)
	HALVES(Z5, Z4, Z10)
	TOTALS(Z2, Z0, Z8)
	TOTALS(Z4, Z4, Z9)
	VPERMPS       Z0, Z31, Z0
	VPERMPS       Z4, Z31, Z4
	VMOVUPS       X0, (DI)
	VEXTRACTF32X4 $1, Z0, (DI)(R8*1)
	VEXTRACTF32X4 $2, Z0, (DI)(R8*2)
	VEXTRACTF32X4 $3, Z0, (DI)(R9*1)
	VMOVUPS       X4, (R10)
	VEXTRACTF32X4 $1, Z4, (R10)(R8*1)
	VZEROUPPER
	RET
