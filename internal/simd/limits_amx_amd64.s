#include "textflag.h"
#include "words_amd64.h"

// func limitIntsAMX(rounds int, config *[64]byte)
TEXT ·limitIntsAMX(SB), NOSPLIT, $0-16
	MOVQ rounds+0(FP), CX
	MOVQ config+8(FP), AX
	LDTILECFG(0, regAX)      // and all tiles are zero

loop:
	TDPBF16PS(tmm6, tmm4, tmm0)
	TDPBF16PS(tmm7, tmm4, tmm1)
	TDPBF16PS(tmm6, tmm5, tmm2)
	TDPBF16PS(tmm7, tmm5, tmm3)
	DECQ CX
	JG   loop
	TILERELEASE
	RET
