#include "textflag.h"
#include "words_arm64.h"
#include "limits_arm64.h"

#define SDOT(m, n, d) VSDOT_S4_LANE(0, m, n, d)

// func limitIntsSDOT(rounds int)
TEXT ·limitIntsSDOT(SB), NOSPLIT, $0-8
	MOVD rounds+0(FP), R3
	ZERO

loop:
	SIXTEEN(SDOT)
	SUBS $1, R3, R3
	BGT  loop
	RET
