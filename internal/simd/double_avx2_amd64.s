#include "textflag.h"

// Products of float64 with AVX2, rounded before they are added.

// func addDoublesAVX2(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64)
//
// sums[j][l] += w[j*stride+i] * x[i], l = i mod 16, for i below x's length, a multiple of 16.
//
//	DI       sums
//	SI, R8   rows 0 and 1 of w
//	DX       x
//	CX       blocks of 16 left
//	Y0..Y3   sums of row 0, Y4..Y7 of row 1
TEXT ·addDoublesAVX2(SB), NOSPLIT, $0-64
	MOVQ sums+0(FP), DI
	MOVQ w_base+8(FP), SI
	MOVQ stride+32(FP), R8
	LEAQ (SI)(R8*8), R8
	MOVQ x_base+40(FP), DX
	MOVQ x_len+48(FP), CX
	SHRQ $4, CX
	JZ   done
	VMOVUPD 0(DI), Y0
	VMOVUPD 32(DI), Y1
	VMOVUPD 64(DI), Y2
	VMOVUPD 96(DI), Y3
	VMOVUPD 128(DI), Y4
	VMOVUPD 160(DI), Y5
	VMOVUPD 192(DI), Y6
	VMOVUPD 224(DI), Y7
loop:
	VMOVUPD 0(DX), Y8
	VMOVUPD 32(DX), Y9
	VMOVUPD 64(DX), Y10
	VMOVUPD 96(DX), Y11
	VMULPD  0(SI), Y8, Y12
	VMULPD  32(SI), Y9, Y13
	VMULPD  64(SI), Y10, Y14
	VMULPD  96(SI), Y11, Y15
	VADDPD  Y12, Y0, Y0
	VADDPD  Y13, Y1, Y1
	VADDPD  Y14, Y2, Y2
	VADDPD  Y15, Y3, Y3
	VMULPD  0(R8), Y8, Y12
	VMULPD  32(R8), Y9, Y13
	VMULPD  64(R8), Y10, Y14
	VMULPD  96(R8), Y11, Y15
	VADDPD  Y12, Y4, Y4
	VADDPD  Y13, Y5, Y5
	VADDPD  Y14, Y6, Y6
	VADDPD  Y15, Y7, Y7
	ADDQ $128, DX
	ADDQ $128, SI
	ADDQ $128, R8
	DECQ CX
	JNZ  loop
	VMOVUPD Y0, 0(DI)
	VMOVUPD Y1, 32(DI)
	VMOVUPD Y2, 64(DI)
	VMOVUPD Y3, 96(DI)
	VMOVUPD Y4, 128(DI)
	VMOVUPD Y5, 160(DI)
	VMOVUPD Y6, 192(DI)
	VMOVUPD Y7, 224(DI)
	VZEROUPPER
done:
	RET

// func dotColumnsAVX2(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64)
//
// sums[j][c] = the sum of w[j*stride+i] * x[i*16+c], for i in order.
//
//	DI       sums
//	SI, R8   rows 0 and 1 of w
//	DX       x
//	CX       rows of x left
//	Y0..Y3   sums of row 0, Y4..Y7 of row 1
TEXT ·dotColumnsAVX2(SB), NOSPLIT, $0-64
	MOVQ sums+0(FP), DI
	MOVQ w_base+8(FP), SI
	MOVQ stride+32(FP), R8
	LEAQ (SI)(R8*8), R8
	MOVQ x_base+40(FP), DX
	MOVQ x_len+48(FP), CX
	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	VXORPD Y2, Y2, Y2
	VXORPD Y3, Y3, Y3
	VXORPD Y4, Y4, Y4
	VXORPD Y5, Y5, Y5
	VXORPD Y6, Y6, Y6
	VXORPD Y7, Y7, Y7
	SHRQ $4, CX
	JZ   store
row:
	VBROADCASTSD (SI), Y8
	VBROADCASTSD (R8), Y9
	VMOVUPD 0(DX), Y10
	VMOVUPD 32(DX), Y11
	VMOVUPD 64(DX), Y12
	VMOVUPD 96(DX), Y13
	VMULPD  Y10, Y8, Y14
	VMULPD  Y10, Y9, Y15
	VADDPD  Y14, Y0, Y0
	VADDPD  Y15, Y4, Y4
	VMULPD  Y11, Y8, Y14
	VMULPD  Y11, Y9, Y15
	VADDPD  Y14, Y1, Y1
	VADDPD  Y15, Y5, Y5
	VMULPD  Y12, Y8, Y14
	VMULPD  Y12, Y9, Y15
	VADDPD  Y14, Y2, Y2
	VADDPD  Y15, Y6, Y6
	VMULPD  Y13, Y8, Y14
	VMULPD  Y13, Y9, Y15
	VADDPD  Y14, Y3, Y3
	VADDPD  Y15, Y7, Y7
	ADDQ $128, DX
	ADDQ $8, SI
	ADDQ $8, R8
	DECQ CX
	JNZ  row
store:
	VMOVUPD Y0, 0(DI)
	VMOVUPD Y1, 32(DI)
	VMOVUPD Y2, 64(DI)
	VMOVUPD Y3, 96(DI)
	VMOVUPD Y4, 128(DI)
	VMOVUPD Y5, 160(DI)
	VMOVUPD Y6, 192(DI)
	VMOVUPD Y7, 224(DI)
	VZEROUPPER
	RET
