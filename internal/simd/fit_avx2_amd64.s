#include "textflag.h"

// Searches for scales with AVX2: a lane for each of eight groups.

// func interleaveAVX2(dst, src *float32, n int)
//
// dst[i*8+g] = src[g*n+i], i below n, which is a multiple of 8.
//
//	DI, SI   dst, src
//	CX       eights of n left
//	R8, R9   bytes of a group, and three times that
TEXT ·interleaveAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ CX, R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R9
	SHRQ $3, CX
loop:
	LEAQ    (SI)(R8*4), R10
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(R8*1), Y1
	VMOVUPS (SI)(R8*2), Y2
	VMOVUPS (SI)(R9*1), Y3
	VMOVUPS (R10), Y4
	VMOVUPS (R10)(R8*1), Y5
	VMOVUPS (R10)(R8*2), Y6
	VMOVUPS (R10)(R9*1), Y7
	VUNPCKLPS Y1, Y0, Y8
	VUNPCKHPS Y1, Y0, Y9
	VUNPCKLPS Y3, Y2, Y10
	VUNPCKHPS Y3, Y2, Y11
	VUNPCKLPS Y5, Y4, Y12
	VUNPCKHPS Y5, Y4, Y13
	VUNPCKLPS Y7, Y6, Y14
	VUNPCKHPS Y7, Y6, Y15
	VUNPCKLPD Y10, Y8, Y0
	VUNPCKHPD Y10, Y8, Y1
	VUNPCKLPD Y11, Y9, Y2
	VUNPCKHPD Y11, Y9, Y3
	VUNPCKLPD Y14, Y12, Y4
	VUNPCKHPD Y14, Y12, Y5
	VUNPCKLPD Y15, Y13, Y6
	VUNPCKHPD Y15, Y13, Y7
	VPERM2F128 $0x20, Y4, Y0, Y8
	VPERM2F128 $0x20, Y5, Y1, Y9
	VPERM2F128 $0x20, Y6, Y2, Y10
	VPERM2F128 $0x20, Y7, Y3, Y11
	VPERM2F128 $0x31, Y4, Y0, Y12
	VPERM2F128 $0x31, Y5, Y1, Y13
	VPERM2F128 $0x31, Y6, Y2, Y14
	VPERM2F128 $0x31, Y7, Y3, Y15
	VMOVUPS Y8, 0(DI)
	VMOVUPS Y9, 32(DI)
	VMOVUPS Y10, 64(DI)
	VMOVUPS Y11, 96(DI)
	VMOVUPS Y12, 128(DI)
	VMOVUPS Y13, 160(DI)
	VMOVUPS Y14, 192(DI)
	VMOVUPS Y15, 224(DI)
	ADDQ    $32, SI
	ADDQ    $256, DI
	DECQ    CX
	JNZ     loop
	VZEROUPPER
	RET

DATA fit<>+0(SB)/4, $0x4b400000  // 1.5*2^23
DATA fit<>+4(SB)/4, $0x7fffffff
DATA fit<>+8(SB)/4, $0x3f800000  // 1
DATA fit<>+12(SB)/4, $0x26901d7d // 1e-15
GLOBL fit<>(SB), RODATA|NOPTR, $16
GLOBL zeros<>(SB), RODATA|NOPTR, $32

// SCALESUMS leaves the sums xq in Y4 and qq in Y5 for the inverse in Y3.
//
//	SI, DX    x and w, side by side
//	CX, AX    bytes of either, and those done
//	Y12, Y13  -top and top-1
//	Y14       1.5*2^23
#define SCALESUMS(loop) \
	VXORPS  Y4, Y4, Y4;        \
	VXORPS  Y5, Y5, Y5;        \
	XORQ    AX, AX;            \
loop:                              \
	VMOVUPS (SI)(AX*1), Y6;    \
	VMOVUPS (DX)(AX*1), Y7;    \
	VMULPS  Y3, Y6, Y8;        \
	VADDPS  Y14, Y8, Y8;       \
	VSUBPS  Y14, Y8, Y8;       \
	VMAXPS  Y12, Y8, Y8;       \
	VMINPS  Y8, Y13, Y8;       \
	VMULPS  Y6, Y7, Y6;        \
	VMULPS  Y8, Y6, Y6;        \
	VMULPS  Y8, Y7, Y7;        \
	VMULPS  Y8, Y7, Y7;        \
	VADDPS  Y6, Y4, Y4;        \
	VADDPS  Y7, Y5, Y5;        \
	ADDQ    $32, AX;           \
	CMPQ    AX, CX;            \
	JNE     loop

// func fitScaleAVX2(f *Fit, x, w *float32, n int, tries []float32, top float32)
//
//	DI        f
//	R8, R9    tries, and how many are left
//	Y0        peaks
//	Y1        their magnitudes
//	Y2        best
//	Y10, Y11  scale, inverse
TEXT ·fitScaleAVX2(SB), NOSPLIT, $0-60
	MOVQ f+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ w+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ tries_base+32(FP), R8
	MOVQ tries_len+40(FP), R9
	SHLQ $5, CX
	VBROADCASTSS top+56(FP), Y13
	VXORPS       Y12, Y12, Y12
	VSUBPS       Y13, Y12, Y12
	VBROADCASTSS fit<>+8(SB), Y4
	VSUBPS       Y4, Y13, Y13
	VBROADCASTSS fit<>+0(SB), Y14
	VBROADCASTSS fit<>+4(SB), Y15
	VXORPS       Y0, Y0, Y0
	VXORPS       Y1, Y1, Y1
	XORQ         AX, AX
peaks:
	VMOVUPS   (SI)(AX*1), Y4
	VANDPS    Y15, Y4, Y5
	VCMPPS    $0x1e, Y1, Y5, Y6
	VBLENDVPS Y6, Y4, Y0, Y0
	VMAXPS    Y1, Y5, Y1
	ADDQ      $32, AX
	CMPQ      AX, CX
	JNE       peaks
	VDIVPS    Y0, Y12, Y3
	SCALESUMS(first)
	VXORPS    Y6, Y6, Y6
	VCMPPS    $0x04, Y6, Y5, Y6
	VDIVPS    Y5, Y4, Y10
	VANDPS    Y6, Y10, Y10
	VMULPS    Y4, Y10, Y2
	VMOVAPS   Y3, Y11
	TESTQ     R9, R9
	JZ        done
try:
	VBROADCASTSS (R8), Y3
	VDIVPS    Y0, Y3, Y3
	SCALESUMS(sums)
	VXORPS    Y6, Y6, Y6
	VCMPPS    $0x1e, Y6, Y5, Y6
	VMULPS    Y4, Y4, Y7
	VMULPS    Y5, Y2, Y8
	VCMPPS    $0x1e, Y8, Y7, Y7
	VANDPS    Y7, Y6, Y6
	VDIVPS    Y5, Y4, Y7
	VMULPS    Y4, Y7, Y8
	VBLENDVPS Y6, Y7, Y10, Y10
	VBLENDVPS Y6, Y3, Y11, Y11
	VBLENDVPS Y6, Y8, Y2, Y2
	ADDQ      $4, R8
	DECQ      R9
	JNZ       try
done:
	VBROADCASTSS fit<>+12(SB), Y4
	VCMPPS    $0x05, Y4, Y1, Y4
	VANDPS    Y4, Y10, Y10
	VANDPS    Y4, Y11, Y11
	VXORPS    Y5, Y5, Y5
	VMOVUPS   Y10, 0(DI)
	VMOVUPS   Y5, 32(DI)
	VMOVUPS   Y5, 64(DI)
	VMOVUPS   Y11, 96(DI)
	VZEROUPPER
	RET

// LOSS leaves in Y6 the errors weighed by w of the codes at (BX), for the scale in
// Y4 and the minimum in Y5.
#define LOSS(loop) \
	VXORPS  Y6, Y6, Y6;        \
	XORQ    AX, AX;            \
loop:                              \
	VMULPS  (BX)(AX*1), Y4, Y7; \
	VADDPS  Y5, Y7, Y7;        \
	VSUBPS  (SI)(AX*1), Y7, Y7; \
	VMULPS  Y7, Y7, Y8;        \
	VANDPS  Y15, Y7, Y7;       \
	VBLENDVPS Y10, Y7, Y8, Y7; \
	VMULPS  (DX)(AX*1), Y7, Y7; \
	VADDPS  Y7, Y6, Y6;        \
	ADDQ    $32, AX;           \
	CMPQ    AX, CX;            \
	JNE     loop

// CODE sets Y8 to the codes of x in Y6, by the low in Y0 and the inverse in Y3, and
// puts them at (BX)(AX).
#define CODE \
	VSUBPS  Y0, Y6, Y8;        \
	VMULPS  Y3, Y8, Y8;        \
	VADDPS  Y14, Y8, Y8;       \
	VSUBPS  Y14, Y8, Y8;       \
	VMAXPS  zeros<>(SB), Y8, Y8; \
	VMINPS  Y8, Y13, Y8;       \
	VMOVUPS Y8, (BX)(AX*1)

// func fitMinAVX2(f *Fit, x, w, codes *float32, n int, tries []float32, top float32, absolute uint32)
//
//	DI        f
//	SI, DX    x and w, side by side
//	BX        codes
//	CX        bytes of each
//	R8, R9    tries, and how many are left
//	Y0, Y1    low, high
//	Y2        best
//	Y3        inverse
//	Y10       absolute, as a mask
//	Y11, Y12  Σ w, Σ w*x
//	Y13       top
//	Y14       1.5*2^23
//	Y15       all bits but the sign
TEXT ·fitMinAVX2(SB), NOSPLIT, $0-72
	MOVQ f+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ w+16(FP), DX
	MOVQ codes+24(FP), BX
	MOVQ n+32(FP), CX
	MOVQ tries_base+40(FP), R8
	MOVQ tries_len+48(FP), R9
	SHLQ $5, CX
	VBROADCASTSS top+64(FP), Y13
	VBROADCASTSS absolute+68(FP), Y10
	VBROADCASTSS fit<>+0(SB), Y14
	VBROADCASTSS fit<>+4(SB), Y15
	VMOVUPS      (SI), Y0
	VMOVAPS      Y0, Y1
	VMOVUPS      (DX), Y11
	VMULPS       Y0, Y11, Y12
	MOVQ         $32, AX
ends:
	VMOVUPS (SI)(AX*1), Y6
	VMOVUPS (DX)(AX*1), Y7
	VMINPS  Y0, Y6, Y0
	VMAXPS  Y1, Y6, Y1
	VADDPS  Y7, Y11, Y11
	VMULPS  Y6, Y7, Y7
	VADDPS  Y7, Y12, Y12
	ADDQ    $32, AX
	CMPQ    AX, CX
	JNE     ends
	VXORPS  Y4, Y4, Y4
	VMINPS  Y0, Y4, Y0
	VSUBPS  Y0, Y1, Y4
	VDIVPS  Y4, Y13, Y3
	XORQ    AX, AX
codes:
	VMOVUPS (SI)(AX*1), Y6
	CODE
	ADDQ    $32, AX
	CMPQ    AX, CX
	JNE     codes
	VBROADCASTSS fit<>+8(SB), Y4
	VDIVPS  Y3, Y4, Y4
	VMOVAPS Y0, Y5
	LOSS(first)
	VMOVAPS Y6, Y2
	VCMPPS  $0x04, Y0, Y1, Y7 // without a range the inverse is 0
	VANDPS  Y7, Y3, Y3
	VMOVUPS Y4, 0(DI)
	VMOVUPS Y5, 32(DI)
	VMOVUPS Y0, 64(DI)
	VMOVUPS Y3, 96(DI)
	TESTQ   R9, R9
	JZ      done
try:
	VBROADCASTSS (R8), Y3
	VSUBPS  Y0, Y1, Y4
	VDIVPS  Y4, Y3, Y3
	VXORPS  Y4, Y4, Y4 // Σ w*q
	VXORPS  Y5, Y5, Y5 // Σ w*q*q
	VXORPS  Y7, Y7, Y7 // Σ w*q*x
	XORQ    AX, AX
sums:
	VMOVUPS (SI)(AX*1), Y6
	CODE
	VMULPS  (DX)(AX*1), Y8, Y9
	VADDPS  Y9, Y4, Y4
	VMULPS  Y9, Y8, Y8
	VADDPS  Y8, Y5, Y5
	VMULPS  Y9, Y6, Y6
	VADDPS  Y6, Y7, Y7
	ADDQ    $32, AX
	CMPQ    AX, CX
	JNE     sums
	VMULPS    Y11, Y5, Y6 // the determinant
	VMULPS    Y4, Y4, Y8
	VSUBPS    Y8, Y6, Y6
	VMULPS    Y11, Y7, Y8 // the scale
	VMULPS    Y12, Y4, Y9
	VSUBPS    Y9, Y8, Y8
	VDIVPS    Y6, Y8, Y8
	VMULPS    Y5, Y12, Y9 // the minimum
	VMULPS    Y4, Y7, Y4
	VSUBPS    Y4, Y9, Y9
	VDIVPS    Y6, Y9, Y9
	VDIVPS    Y5, Y7, Y7 // the scale where the minimum would be above 0
	VCMPPS    $0x1e, zeros<>(SB), Y9, Y5
	VBLENDVPS Y5, Y7, Y8, Y4
	VANDNPS   Y9, Y5, Y5
	VCMPPS    $0x1e, zeros<>(SB), Y6, Y9
	LOSS(errors)
	VCMPPS    $0x11, Y2, Y6, Y7
	VANDPS    Y7, Y9, Y9
	VMOVUPS   0(DI), Y7
	VMOVUPS   32(DI), Y8
	VBLENDVPS Y9, Y4, Y7, Y7
	VBLENDVPS Y9, Y5, Y8, Y8
	VMOVUPS   Y7, 0(DI)
	VMOVUPS   Y8, 32(DI)
	VMOVUPS   64(DI), Y7
	VMOVUPS   96(DI), Y8
	VBLENDVPS Y9, Y0, Y7, Y7
	VBLENDVPS Y9, Y3, Y8, Y8
	VMOVUPS   Y7, 64(DI)
	VMOVUPS   Y8, 96(DI)
	VBLENDVPS Y9, Y6, Y2, Y2
	VBLENDVPS Y9, Y5, Y0, Y0
	ADDQ      $4, R8
	DECQ      R9
	JNZ       try
done:
	VZEROUPPER
	RET
