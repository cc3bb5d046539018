#include "textflag.h"
#include "words_arm64.h"
#include "limits_arm64.h"

// PLACE reads 128 bytes at p, and fetches what lies further on.
#define PLACE(p) \
	ADD  R5, p, R9;            \
	ADD  R6, p, R10;           \
	PRFM (R9), PLDL1KEEP;      \
	PRFM 64(R9), PLDL1KEEP;    \
	PRFM (R10), PLDL2KEEP;     \
	PRFM 64(R10), PLDL2KEEP;   \
	ADD  $64, p, R11;          \
	VLD1 (p), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	VLD1 (R11), [V4.B16, V5.B16, V6.B16, V7.B16]; \
	ADD  R8, p, p

// func limitReadVec(b []byte, f *limitForm)
TEXT ·limitReadVec(SB), NOSPLIT, $0-32
	MOVD b_base+0(FP), R1
	MOVD b_len+8(FP), R3
	MOVD f+24(FP), R4
	MOVD 8(R4), R5
	MOVD 16(R4), R6
	MOVD 24(R4), R7
	MOVD 32(R4), R8
	ADD  R7, R1, R2
	ADD  R7, R2, R12
	ADD  R7, R12, R13
	LSR  $9, R3, R3
	CBZ  R3, done

loop:
	PLACE(R1)
	PLACE(R2)
	PLACE(R12)
	PLACE(R13)
	SUBS $1, R3, R3
	BNE  loop

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
