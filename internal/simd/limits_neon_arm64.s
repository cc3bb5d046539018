#include "textflag.h"
#include "words_arm64.h"
#include "limits_arm64.h"

// func limitReadNEON(b []byte)
TEXT ·limitReadNEON(SB), NOSPLIT, $0-24
	MOVD b_base+0(FP), R1
	MOVD b_len+8(FP), R3
	LSR  $9, R3, R3
	CBZ  R3, done

loop:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R1), [V4.B16, V5.B16, V6.B16, V7.B16]
	VLD1.P 64(R1), [V8.B16, V9.B16, V10.B16, V11.B16]
	VLD1.P 64(R1), [V12.B16, V13.B16, V14.B16, V15.B16]
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R1), [V4.B16, V5.B16, V6.B16, V7.B16]
	VLD1.P 64(R1), [V8.B16, V9.B16, V10.B16, V11.B16]
	VLD1.P 64(R1), [V12.B16, V13.B16, V14.B16, V15.B16]
	SUBS   $1, R3, R3
	BNE    loop

done:
	RET

// Products with one lane, as the kernels have them.
#define SMLAL(m, n, d) VSMLAL_S4_LANE(0, m, n, d)

// func limitIntsNEON(rounds int)
TEXT ·limitIntsNEON(SB), NOSPLIT, $0-8
	MOVD rounds+0(FP), R3
	ZERO

loop:
	SIXTEEN(SMLAL)
	SUBS $1, R3, R3
	BGT  loop
	RET

// func limitFloatsNEON(rounds int)
TEXT ·limitFloatsNEON(SB), NOSPLIT, $0-8
	MOVD rounds+0(FP), R3
	ZERO

loop:
	SIXTEEN(VFMLA_S4)
	SUBS $1, R3, R3
	BGT  loop
	RET
