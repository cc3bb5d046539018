#include "textflag.h"
#include "words_arm64.h"
#include "panel_arm64.h"

// Panels with dot products of bytes. An activation is 256*high + low, high being
// signed and low not; a code is s+128, s being signed:
//
//	sum of code*q = 256*(sum of s*high) + 2¹⁵*(sum of high) + (sum of code*low)
//
// 16 columns are taken at a time:
//
//	V0 to V3   four columns of four rows of the weight each
//	V4         indices that put columns in order, V5 all 1, V6 all 128
//	V8 to V11  high or low bytes of 16 columns
//	V12 to V15 sums of high bytes

// CONSTANTS makes them, of which the float steps leave nothing.
#define CONSTANTS \
	MOVD  $0x0705060403010200, R15; \
	VMOV  R15, V4.D[0];             \
	MOVD  $0x0f0d0e0c0b090a08, R15; \
	VMOV  R15, V4.D[1];             \
	VMOVI $1, V5.B16;               \
	VMOVI $128, V6.B16

#define CODES \
	VLD1.P 64(R19), [V0.B16, V1.B16, V2.B16, V3.B16]

#define SIGNED \
	VEOR V6.B16, V0.B16, V0.B16; \
	VEOR V6.B16, V1.B16, V1.B16; \
	VEOR V6.B16, V2.B16, V2.B16; \
	VEOR V6.B16, V3.B16, V3.B16

// DOTS adds the products of four columns with lane i of q.
#define DOTS(DOT, i, q, a, b, c, d) \
	DOT(i, q, v0, a); \
	DOT(i, q, v1, b); \
	DOT(i, q, v2, c); \
	DOT(i, q, v3, d)

#define DOTS4(DOT, i) \
	DOTS(DOT, i, v8, v16, v17, v18, v19);  \
	DOTS(DOT, i, v9, v20, v21, v22, v23);  \
	DOTS(DOT, i, v10, v24, v25, v26, v27); \
	DOTS(DOT, i, v11, v28, v29, v30, v31)

#define HIGH4(i) \
	CODES;  \
	SIGNED; \
	DOTS4(VSDOT_S4_LANE, i)

#define LOW4(i) \
	CODES; \
	DOTS4(VUDOT_S4_LANE, i)

// BYTES sets to to the bytes from, V0 being the low and V1 the high ones, of the
// row that R15 is at, and goes to the next row.
#define BYTES(from, to) \
	VLD2.P (R15)(R6), [V0.B16, V1.B16]; \
	VTBL   V4.B16, [from.B16], to.B16

#define BYTES4(from) \
	MOVD  R22, R15;  \
	BYTES(from, V8); \
	BYTES(from, V9); \
	BYTES(from, V10); \
	BYTES(from, V11)

// TOTAL makes of a sum of high bytes in four parts what belongs to each weight,
// with Init, which R15 is at.
#define TOTAL(z) \
	VADDP   z.S4, z.S4, z.S4;    \
	VADDP   z.S4, z.S4, z.S4;    \
	VSHL    $15, z.S4, z.S4;     \
	VLD1R.P (R15)(R10), [V0.S4]; \
	VADD    V0.S4, z.S4, z.S4

// HIGHER is a*256 + z for the sums a, b, c and d of a row.
#define HIGHER(z, a, b, c, d) \
	VSHL_S4(8, a, a);  \
	VSHL_S4(8, b, b);  \
	VSHL_S4(8, c, c);  \
	VSHL_S4(8, d, d);  \
	VADD_S4(z, a, a);  \
	VADD_S4(z, b, b);  \
	VADD_S4(z, c, c);  \
	VADD_S4(z, d, d)

#define ZERO(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16; \
	VEOR b.B16, b.B16, b.B16; \
	VEOR c.B16, c.B16, c.B16; \
	VEOR d.B16, d.B16, d.B16

// INTS4 goes through a group's codes twice: the sums of high and of low bytes
// have not enough registers at once.
#define INTS4 \
	CONSTANTS;                \
	ZERO(V12, V13, V14, V15); \
	ZERO(V16, V17, V18, V19); \
	ZERO(V20, V21, V22, V23); \
	ZERO(V24, V25, V26, V27); \
	ZERO(V28, V29, V30, V31); \
	MOVD R14, R26;            \
fourhigh:                     \
	BYTES4(V1);               \
	VSDOT_S4(v5, v8, v12);    \
	VSDOT_S4(v5, v9, v13);    \
	VSDOT_S4(v5, v10, v14);   \
	VSDOT_S4(v5, v11, v15);   \
	ADD  $32, R22, R22;       \
	HIGH4(0);                 \
	HIGH4(1);                 \
	HIGH4(2);                 \
	HIGH4(3);                 \
	SUBS $16, R26, R26;       \
	BNE  fourhigh;            \
	MOVD R24, R15;            \
	TOTAL(V12);               \
	TOTAL(V13);               \
	TOTAL(V14);               \
	TOTAL(V15);               \
	HIGHER(v12, v16, v17, v18, v19); \
	HIGHER(v13, v20, v21, v22, v23); \
	HIGHER(v14, v24, v25, v26, v27); \
	HIGHER(v15, v28, v29, v30, v31); \
	SUB  R14<<4, R19, R19;    \
	SUB  R14<<1, R22, R22;    \
	MOVD R14, R26;            \
fourlow:                      \
	BYTES4(V0);               \
	ADD  $32, R22, R22;       \
	LOW4(0);                  \
	LOW4(1);                  \
	LOW4(2);                  \
	LOW4(3);                  \
	SUBS $16, R26, R26;       \
	BNE  fourlow

// BOTH1 has the sums of low bytes in V20 to V23.
#define BOTH1(i) \
	CODES;  \
	DOTS(VUDOT_S4_LANE, i, v9, v20, v21, v22, v23); \
	SIGNED; \
	DOTS(VSDOT_S4_LANE, i, v8, v16, v17, v18, v19)

#define INTS1 \
	CONSTANTS;                \
	VEOR V12.B16, V12.B16, V12.B16; \
	ZERO(V16, V17, V18, V19); \
	ZERO(V20, V21, V22, V23); \
	MOVD R14, R26;            \
oneboth:                      \
	VLD2.P 32(R22), [V0.B16, V1.B16]; \
	VTBL V4.B16, [V1.B16], V8.B16; \
	VTBL V4.B16, [V0.B16], V9.B16; \
	VSDOT_S4(v5, v8, v12);    \
	BOTH1(0);                 \
	BOTH1(1);                 \
	BOTH1(2);                 \
	BOTH1(3);                 \
	SUBS $16, R26, R26;       \
	BNE  oneboth;             \
	MOVD R24, R15;            \
	TOTAL(V12);               \
	HIGHER(v12, v16, v17, v18, v19); \
	VADD V20.S4, V16.S4, V16.S4; \
	VADD V21.S4, V17.S4, V17.S4; \
	VADD V22.S4, V18.S4, V18.S4; \
	VADD V23.S4, V19.S4, V19.S4

// func addPanelSDOT(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, groups, step int)
TEXT ·addPanelSDOT(SB), NOSPLIT, $0-104
	PANEL(INTS4, INTS1)
