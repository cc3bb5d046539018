#include "textflag.h"
#include "tier_amd64.h"
#include "limits_amd64.h"

#define PLACE(place) \
	FETCH(place); \
	VMOVDQU (SI)(place*1), Y0; \
	VMOVDQU 32(SI)(place*1), Y1; \
	VMOVDQU 64(SI)(place*1), Y2; \
	VMOVDQU 96(SI)(place*1), Y3

// func limitReadVec(b []byte, f *limitForm)
TEXT ·limitReadVec(SB), NOSPLIT, $0-32
	UPGRADE(·limitReadAVX512)
	READING(done)

loop:
	READ(PLACE)
	READ_ON(loop)

done:
	RET

#define MADD(t, sum) \
	VPMADDWD Y15, Y14, t; \
	VPADDD   t, sum, sum

// func limitIntsAVX2(rounds int)
TEXT ·limitIntsAVX2(SB), NOSPLIT, $0-8
	MOVQ  rounds+0(FP), CX
	VPXOR Y14, Y14, Y14
	VPXOR Y15, Y15, Y15

loop:
	MADD(Y8, Y0)
	MADD(Y9, Y1)
	MADD(Y10, Y2)
	MADD(Y11, Y3)
	MADD(Y8, Y4)
	MADD(Y9, Y5)
	MADD(Y10, Y6)
	MADD(Y11, Y7)
	DECQ CX
	JG   loop
	VZEROUPPER
	RET

// func limitFloatsAVX2(rounds int)
TEXT ·limitFloatsAVX2(SB), NOSPLIT, $0-8
	MOVQ   rounds+0(FP), CX
	VZEROALL

loop:
	VFMADD231PS Y15, Y14, Y0
	VFMADD231PS Y15, Y14, Y1
	VFMADD231PS Y15, Y14, Y2
	VFMADD231PS Y15, Y14, Y3
	VFMADD231PS Y15, Y14, Y4
	VFMADD231PS Y15, Y14, Y5
	VFMADD231PS Y15, Y14, Y6
	VFMADD231PS Y15, Y14, Y7
	VFMADD231PS Y15, Y14, Y8
	VFMADD231PS Y15, Y14, Y9
	VFMADD231PS Y15, Y14, Y10
	VFMADD231PS Y15, Y14, Y11
	DECQ        CX
	JG          loop
	VZEROUPPER
	RET
