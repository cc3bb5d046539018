#include "textflag.h"
#include "words_arm64.h"

// Blocks with points: eight weights of four rows at a time.
//
//	R0, R14   codes of a row's first four weights and of the others
//	R1        the block, R2 the octet, R5 octets left
//	R3        points by number, a byte for each level
//	R7, R9    dwords with low bits of the octet's first and second number
//	R10, R11  with high bits, R12 with signs
//	V4, V5    levels of a row's first four weights and of the others
//	V16       codes by level and sign
//	V17, V18  a sign's bit in each byte, V19 8 in each
//	V20-V24   shifts of R7, R9, R10, R11 and R12, to the left
//	V26, V27  signs by a field's halves, V28 the lowest byte of each 32-bit integer, four times over
//	V29       low halves of bytes; V30, V31 masks of low and high bits of numbers

// PLACE sets a place's pointer and shift.
#define PLACE(at, r, shift) \
	MOVWU (at)(R2), r;     \
	MOVWU (at+4)(R2), R13; \
	ADD   R1, r, r;        \
	NEG   R13, R13;        \
	VDUP  R13, shift

// NUMBERS makes a point's numbers of four rows in V0.
#define NUMBERS(low, lowshift, high, highshift) \
	VLD1.P 16(low), [V0.S4];           \
	VLD1.P 16(high), [V1.S4];          \
	VUSHL_S4(lowshift, v0, v0);        \
	VUSHL_S4(highshift, v1, v1);       \
	VAND   V30.B16, V0.B16, V0.B16;    \
	VAND   V31.B16, V1.B16, V1.B16;    \
	VSHL   $8, V1.S4, V1.S4;           \
	VORR   V1.B16, V0.B16, V0.B16

// LANE loads the point of row i to a lane.
#define LANE(i, shift, to) \
	VMOV V0.S[i], R13;            \
	ADD  R13<<shift, R3, R13;     \
	VLD1 (R13), to

#define EIGHT \
	NUMBERS(R7, v20, R10, v22);   \
	LANE(0, 3, V2.D[0]);          \
	LANE(1, 3, V2.D[1]);          \
	LANE(2, 3, V3.D[0]);          \
	LANE(3, 3, V3.D[1]);          \
	VUZP1 V3.S4, V2.S4, V4.S4;    \
	VUZP2 V3.S4, V2.S4, V5.S4

#define QUADS \
	NUMBERS(R7, v20, R10, v22);   \
	LANE(0, 2, V4.S[0]);          \
	LANE(1, 2, V4.S[1]);          \
	LANE(2, 2, V4.S[2]);          \
	LANE(3, 2, V4.S[3]);          \
	NUMBERS(R9, v21, R11, v23);   \
	LANE(0, 2, V5.S[0]);          \
	LANE(1, 2, V5.S[1]);          \
	LANE(2, 2, V5.S[2]);          \
	LANE(3, 2, V5.S[3])

// SIGNED stores the codes of levels with signs.
#define SIGNED(bits, levels, r) \
	VCMTST_B16(bits, v1, v6);             \
	VAND   V19.B16, V6.B16, V6.B16;       \
	VORR   levels, V6.B16, V6.B16;        \
	VTBL   V6.B16, [V16.B16], V6.B16;     \
	VST1.P [V6.B16], 16(r)

// ROWS makes four rows' codes.
#define ROWS(LEVELS) \
	LEVELS;                               \
	VLD1.P 16(R12), [V1.S4];              \
	VUSHL_S4(v24, v1, v1);                \
	VUSHR  $4, V1.B16, V6.B16;            \
	VAND   V29.B16, V1.B16, V1.B16;       \
	VTBL   V1.B16, [V26.B16], V1.B16;     \
	VTBL   V6.B16, [V27.B16], V6.B16;     \
	VEOR   V6.B16, V1.B16, V1.B16;        \
	VTBL   V28.B16, [V1.B16], V1.B16;     \
	SIGNED(v17, V4.B16, R0);              \
	SIGNED(v18, V5.B16, R14)

// OCTETS makes all rows' codes of the octets left.
#define OCTETS(octet, LEVELS) \
octet:                            \
	PLACE(0, R7, V20.S4);     \
	PLACE(8, R9, V21.S4);     \
	PLACE(16, R10, V22.S4);   \
	PLACE(24, R11, V23.S4);   \
	PLACE(32, R12, V24.S4);   \
	ADD  $64, R0, R14;        \
	ROWS(LEVELS);             \
	ROWS(LEVELS);             \
	ROWS(LEVELS);             \
	ROWS(LEVELS);             \
	ADD  $64, R0, R0;         \
	ADD  $40, R2, R2;         \
	SUBS $1, R5, R5;          \
	BNE  octet;               \
	RET

// func unpackGridVec(dst, src *byte, octets *gridOctet, shape *gridShape, spread *byte, high uint32, four int)
TEXT ·unpackGridVec(SB), NOSPLIT, $0-56
	MOVD  dst+0(FP), R0
	MOVD  src+8(FP), R1
	MOVD  octets+16(FP), R2
	MOVD  shape+24(FP), R6
	MOVD  spread+32(FP), R3
	MOVWU high+40(FP), R4
	MOVD  $32, R5
	ADD   $104, R6, R6
	VLD1  (R6), [V16.B16]
	ADD   $16, R6, R6
	VLD1  (R6), [V26.B16, V27.B16]
	MOVD  $0x0804020108040201, R6
	VDUP  R6, V17.D2
	MOVD  $0x8040201080402010, R6
	VDUP  R6, V18.D2
	VMOVI $8, V19.B16
	MOVD  $0x0404040400000000, R6
	VMOV  R6, V28.D[0]
	MOVD  $0x0c0c0c0c08080808, R6
	VMOV  R6, V28.D[1]
	VMOVI $15, V29.B16
	MOVD  $255, R6
	VDUP  R6, V30.S4
	VDUP  R4, V31.S4
	MOVD  four+48(FP), R6
	CBNZ  R6, fours
	OCTETS(eights, EIGHT)
	OCTETS(fours, QUADS)

// SCALE makes the scales of four rows.
#define SCALE(vx, x, d) \
	VUSHL_S4(v19, vx, vx);           \
	VAND V16.B16, x.B16, x.B16;      \
	VSHL $1, x.S4, x.S4;             \
	VORR V18.B16, x.B16, x.B16;      \
	VSCVTF_S4(vx, vx);               \
	VFMUL_S4(d, vx, vx)

// func gridScalesVec(dst *float32, src *byte, places *gridPlace, n int, mask uint32, unit float32)
TEXT ·gridScalesVec(SB), NOSPLIT, $0-40
	MOVD  dst+0(FP), R0
	MOVD  src+8(FP), R1
	MOVD  places+16(FP), R2
	MOVD  n+24(FP), R3
	MOVWU mask+32(FP), R4
	FMOVS unit+36(FP), F17
	VDUP  R4, V16.S4
	VDUP  V17.S[0], V17.S4
	MOVD  $1, R4
	VDUP  R4, V18.S4
	VLD1  (R1), [V0.H8, V1.H8]
	ADD   $64, R1, R1
	VFCVTL_S4(v0, v20)
	VFCVTL2_S4(v0, v21)
	VFCVTL_S4(v1, v22)
	VFCVTL2_S4(v1, v23)
	VFMUL_S4(v17, v20, v20)
	VFMUL_S4(v17, v21, v21)
	VFMUL_S4(v17, v22, v22)
	VFMUL_S4(v17, v23, v23)

loop:
	MOVWU (R2), R4
	MOVWU 4(R2), R5
	ADD   R1, R4, R4
	NEG   R5, R5
	VDUP  R5, V19.S4
	VLD1  (R4), [V0.S4, V1.S4, V2.S4, V3.S4]
	SCALE(v0, V0, v20)
	SCALE(v1, V1, v21)
	SCALE(v2, V2, v22)
	SCALE(v3, V3, v23)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	ADD   $8, R2, R2
	SUBS  $1, R3, R3
	BNE   loop
	RET
