#include "textflag.h"

// func limitReadAVX512(b []byte)
TEXT ·limitReadAVX512(SB), NOSPLIT, $0-24
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX
	SHRQ $9, CX
	JZ   done

loop:
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VMOVDQU64 256(SI), Z4
	VMOVDQU64 320(SI), Z5
	VMOVDQU64 384(SI), Z6
	VMOVDQU64 448(SI), Z7
	ADDQ      $512, SI
	DECQ      CX
	JNZ       loop
	VZEROUPPER

done:
	RET

#define TWELVE(OP) \
	OP Z15, Z14, Z0;  \
	OP Z15, Z14, Z1;  \
	OP Z15, Z14, Z2;  \
	OP Z15, Z14, Z3;  \
	OP Z15, Z14, Z4;  \
	OP Z15, Z14, Z5;  \
	OP Z15, Z14, Z6;  \
	OP Z15, Z14, Z7;  \
	OP Z15, Z14, Z8;  \
	OP Z15, Z14, Z9;  \
	OP Z15, Z14, Z10; \
	OP Z15, Z14, Z11

// func limitIntsAVX512(rounds int)
TEXT ·limitIntsAVX512(SB), NOSPLIT, $0-8
	MOVQ rounds+0(FP), CX
	VZEROALL

loop:
	TWELVE(VPDPWSSD)
	DECQ CX
	JG   loop
	VZEROUPPER
	RET

// func limitFloatsAVX512(rounds int)
TEXT ·limitFloatsAVX512(SB), NOSPLIT, $0-8
	MOVQ rounds+0(FP), CX
	VZEROALL

loop:
	TWELVE(VFMADD231PS)
	DECQ CX
	JG   loop
	VZEROUPPER
	RET
