#include "textflag.h"
#include "words_arm64.h"
#include "panel_arm64.h"

// Panels with products of 16 bits: 8 columns at a time.
//
//	V0 to V3   bytes of a column each, of all rows of the weight
//	V4, V5     those of one column as 16-bit integers
//	V8 to V11  activations of 8 columns, in the order 0, 2, 1, 3, 4, 6, 5, 7

// INIT starts the sums of a row of activations, whose Init R15 is at.
#define INIT(a, b, c, d) \
	VLD1R.P (R15)(R10), [V12.S4]; \
	VMOV_B16(v12, a); \
	VMOV_B16(v12, b); \
	VMOV_B16(v12, c); \
	VMOV_B16(v12, d)

// PRODUCTS adds a column's products with lane i of q.
#define PRODUCTS(i, q, a, b, c, d) \
	VSMLAL_S4_LANE(i, q, v4, a);  \
	VSMLAL2_S4_LANE(i, q, v4, b); \
	VSMLAL_S4_LANE(i, q, v5, c);  \
	VSMLAL2_S4_LANE(i, q, v5, d)

#define COLUMN4(i, column) \
	VUXTL  column.B8, V4.H8;             \
	VUXTL2 column.B16, V5.H8;            \
	PRODUCTS(i, v8, v16, v17, v18, v19);  \
	PRODUCTS(i, v9, v20, v21, v22, v23);  \
	PRODUCTS(i, v10, v24, v25, v26, v27); \
	PRODUCTS(i, v11, v28, v29, v30, v31)

#define COLUMN1(i, column) \
	VUXTL  column.B8, V4.H8;  \
	VUXTL2 column.B16, V5.H8; \
	PRODUCTS(i, v8, v16, v17, v18, v19)

#define EIGHT(COLUMN) \
	VLD4.P 64(R19), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	COLUMN(0, V0); \
	COLUMN(2, V1); \
	COLUMN(1, V2); \
	COLUMN(3, V3); \
	VLD4.P 64(R19), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	COLUMN(4, V0); \
	COLUMN(6, V1); \
	COLUMN(5, V2); \
	COLUMN(7, V3)

#define INTS4 \
	MOVD R24, R15;             \
	INIT(v16, v17, v18, v19);  \
	INIT(v20, v21, v22, v23);  \
	INIT(v24, v25, v26, v27);  \
	INIT(v28, v29, v30, v31);  \
	MOVD R14, R26;             \
foureight:                     \
	MOVD R22, R15;             \
	VLD1.P (R15)(R6), [V8.H8]; \
	VLD1.P (R15)(R6), [V9.H8]; \
	VLD1.P (R15)(R6), [V10.H8]; \
	VLD1 (R15), [V11.H8];      \
	ADD  $16, R22, R22;        \
	EIGHT(COLUMN4);            \
	SUBS $8, R26, R26;         \
	BNE  foureight

#define INTS1 \
	MOVD R24, R15;             \
	INIT(v16, v17, v18, v19);  \
	MOVD R14, R26;             \
oneeight:                      \
	VLD1.P 16(R22), [V8.H8];   \
	EIGHT(COLUMN1);            \
	SUBS $8, R26, R26;         \
	BNE  oneeight

// func addPanelVec(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, groups, step int)
TEXT ·addPanelVec(SB), NOSPLIT, $0-104
	PANEL(INTS4, INTS1)
