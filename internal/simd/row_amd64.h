// How one row goes by panels at several places, a unit of each: of one place alone a
// core reads less than memory gives.
//
//	BX       the chunk at the first place, R11 left
//	SI       codes of the unit there, CX left of the chunk
//	R10      its scales, R15 bytes of a group's: 16 where scales are bytes, and of groups that share
//	         scales 48 with zero points, 64 with minima
//	R9       what is fetched meanwhile: as many lines for each unit as hold all of a chunk
//	DX       the place, in bytes from the first one
//	DI       sums of its panel
//	R8       activations, R12 their scales
//	R13      Init, or 0
//	R14      Sums, or 0

#define HEAD \
	MOVQ data+8(FP), BX;     \
	MOVQ q+16(FP), R8;       \
	MOVQ dx+24(FP), R12;     \
	MOVQ init+32(FP), R13;   \
	MOVQ sums+40(FP), R14;   \
	MOVQ chunks+48(FP), R11; \
	MOVQ group+72(FP), R15

// CHUNK begins one.
#define CHUNK \
	MOVQ BX, R10;            \
	MOVQ BX, SI;             \
	ADDQ scales+56(FP), SI;  \
	LEAQ NEAR(BX), R9;       \
	MOVQ $8, CX;             \
	CMPQ R15, $16;           \
	JNE  unit;               \
	ADDQ $32, R10;           \
	TESTQ R14, R14;          \
	JZ   unit;               \
	ADDQ $32, R10

// UNIT begins one.
#define UNIT \
	MOVQ acc+0(FP), DI; \
	XORL DX, DX

// NEXT goes to the next place, unit or chunk. A unit has so many bytes of codes, lines
// of all, and groups. Scales stay where a mask has bits of the units left.
#define NEXT(codes, lines, groups) \
	ADDQ sumgap+96(FP), DI; \
	ADDQ gap+88(FP), DX;    \
	CMPQ DX, end+104(FP);   \
	JNE  place;             \
	ADDQ $codes, SI;        \
	ADDQ $(64*lines), R9;   \
	ADDQ $64, R8;           \
	ADDQ $4, R12;           \
	TESTQ R13, R13;         \
	JZ   sums;              \
	ADDQ $(4*groups), R13;  \
sums:                           \
	TESTQ R14, R14;         \
	JZ   next;              \
	ADDQ $(4*groups), R14;  \
next:                           \
	DECQ CX;                \
	JZ   last;              \
	TESTQ CX, mask+120(FP); \
	JNZ  unit;              \
	LEAQ (R10)(R15*groups), R10; \
	JMP  unit;              \
last:                           \
	ADDQ stride+64(FP), BX; \
	DECQ R11;               \
	JNZ  chunk;             \
	VZEROUPPER;             \
	RET

// BY_CODES goes on with the kernel of the argument codes: Codes4, CodesTable, Codes41, Codes42, Codes21, Codes2,
// Codes1, rowBrain, rowSmall or Codes8.
#define BY_CODES(four, table, four1, four2, two1, two, one, brain, small, eight) \
	MOVQ codes+112(FP), AX; \
	CMPQ AX, $0;            \
	JNE  2(PC);             \
	JMP  four(SB);          \
	CMPQ AX, $1;            \
	JNE  2(PC);             \
	JMP  table(SB);         \
	CMPQ AX, $2;            \
	JNE  2(PC);             \
	JMP  four1(SB);         \
	CMPQ AX, $3;            \
	JNE  2(PC);             \
	JMP  four2(SB);         \
	CMPQ AX, $6;            \
	JNE  2(PC);             \
	JMP  two1(SB);          \
	CMPQ AX, $5;            \
	JNE  2(PC);             \
	JMP  two(SB);           \
	CMPQ AX, $7;            \
	JNE  2(PC);             \
	JMP  one(SB);           \
	CMPQ AX, $8;            \
	JNE  2(PC);             \
	JMP  brain(SB);         \
	CMPQ AX, $9;            \
	JNE  2(PC);             \
	JMP  small(SB);         \
	JMP  eight(SB)
