// What the kernels of panels share: the loops over rows of activations and over
// groups, and the float steps. They are the bodies of
//
//	func(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, groups, step int)
//
// where step is that of init, 4, or 0 if there is one zero for all. A lane of a
// vector register belongs to a row of the weight, and V16 to V31 are integer
// sums: four registers for each of four rows of activations, or of one.
//
//	R0   float sums of the current rows, R1 how many are left
//	R5   their activations, R6 bytes in a row
//	R7   scales of those, R8 bytes in a row
//	R9   their Init, R10 bytes in a row
//	R11  their Sums, R12 bytes in a row
//	R13  number of the current group, R14 its columns
//	R19  its codes, R20 scales, R21 minima
//	R22  its activations, R24 Init and R25 Sums in the first of the rows
//	R15, R16, R17, R23, R26 are free, V0 to V15 too

#define ARGUMENTS \
	MOVD acc_base+0(FP), R0; \
	MOVD acc_len+8(FP), R1;  \
	LSR  $4, R1, R1;         \
	MOVD q+48(FP), R5;       \
	MOVD dx+56(FP), R7;      \
	MOVD init+64(FP), R9;    \
	MOVD sums+72(FP), R11;   \
	MOVD group+80(FP), R14;  \
	MOVD groups+88(FP), R12; \
	MUL  R14, R12, R6;       \
	LSR  $5, R6, R8;         \
	LSL  $1, R6, R6;         \
	LSL  $2, R8, R8;         \
	MOVD step+96(FP), R10;   \
	MUL  R12, R10, R10;      \
	LSL  $2, R12, R12

// ROWS is the loop over groups for rows of activations, whose number shift is
// the logarithm of. INTS makes their integer sums and moves R19 and R22 on.
#define ROWS(shift, INTS, SCALES, MINIMA, next, nomin) \
	MOVD codes+24(FP), R19;  \
	MOVD scale+32(FP), R20;  \
	MOVD min+40(FP), R21;    \
	MOVD R5, R22;            \
	MOVD R9, R24;            \
	MOVD R11, R25;           \
	MOVD ZR, R13;            \
next:                        \
	INTS;                    \
	MUL  R14, R13, R16;      \
	LSR  $5, R16, R16;       \
	ADD  R16<<2, R7, R16;    \
	MOVD R0, R15;            \
	VLD1.P 64(R20), [V4.S4, V5.S4, V6.S4, V7.S4]; \
	SCALES;                  \
	CBZ  R21, nomin;         \
	MOVD R25, R16;           \
	MOVD R0, R15;            \
	VLD1.P 64(R21), [V4.S4, V5.S4, V6.S4, V7.S4]; \
	MINIMA;                  \
nomin:                       \
	MOVD step+96(FP), R16;   \
	ADD  R16, R24, R24;      \
	ADD  $4, R25, R25;       \
	ADD  $1, R13, R13;       \
	MOVD groups+88(FP), R16; \
	CMP  R16, R13;           \
	BLT  next;               \
	ADD  $(64<<shift), R0, R0; \
	SUB  $(1<<shift), R1, R1; \
	ADD  R6<<shift, R5, R5;  \
	ADD  R8<<shift, R7, R7;  \
	ADD  R10<<shift, R9, R9; \
	ADD  R12<<shift, R11, R11

// SCALED adds a row's integer sums to its float sums, which R15 is at; R16 is at
// the scale of its activations.
#define SCALED(a, b, c, d) \
	VLD1R.P (R16)(R8), [V8.S4]; \
	VLD1 (R15), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	VSCVTF_S4(a, a);     \
	VSCVTF_S4(b, b);     \
	VSCVTF_S4(c, c);     \
	VSCVTF_S4(d, d);     \
	VFMUL_S4(v8, a, a);  \
	VFMUL_S4(v8, b, b);  \
	VFMUL_S4(v8, c, c);  \
	VFMUL_S4(v8, d, d);  \
	VFMLA_S4(v4, a, v0); \
	VFMLA_S4(v5, b, v1); \
	VFMLA_S4(v6, c, v2); \
	VFMLA_S4(v7, d, v3); \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R15)

#define SCALED4 \
	SCALED(v16, v17, v18, v19); \
	SCALED(v20, v21, v22, v23); \
	SCALED(v24, v25, v26, v27); \
	SCALED(v28, v29, v30, v31)

// MINIMUM adds the minima times the sum of a row's activations, which R16 is at.
#define MINIMUM \
	VLD1R.P (R16)(R12), [V8.S4]; \
	VLD1 (R15), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	VFMLA_S4(v4, v8, v0); \
	VFMLA_S4(v5, v8, v1); \
	VFMLA_S4(v6, v8, v2); \
	VFMLA_S4(v7, v8, v3); \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R15)

#define MINIMUM4 \
	MINIMUM; \
	MINIMUM; \
	MINIMUM; \
	MINIMUM

// PANEL is the whole of a kernel.
#define PANEL(INTS4, INTS1) \
	ARGUMENTS;   \
four:            \
	CMP  $4, R1; \
	BLT  one;    \
	ROWS(2, INTS4, SCALED4, MINIMUM4, fournext, fournomin); \
	JMP  four;   \
one:             \
	CBZ  R1, done; \
	ROWS(0, INTS1, SCALED(v16, v17, v18, v19), MINIMUM, onenext, onenomin); \
	JMP  one;    \
done:            \
	RET
