#include "textflag.h"
#include "limits_amd64.h"

#define PLACE(place) \
	FETCH(place); \
	VMOVDQU64 (SI)(place*1), Z0; \
	VMOVDQU64 64(SI)(place*1), Z1

// func limitReadAVX512(b []byte, f *limitForm)
TEXT ·limitReadAVX512(SB), NOSPLIT, $0-32
	READING(done)

loop:
	READ(PLACE)
	READ_ON(loop)

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
