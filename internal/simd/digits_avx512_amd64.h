// How one row goes by blocks of digits and by codes of points, whose SPLIT prepares a group of activations.
//
//	BX   the block at the first place, R11 left
//	R8   activations of a block, R12 their scales
//	R10  the split activations, in lines of 64 bytes
//	DX   the place, in bytes from the first one; DI sums of its panel

#define BYTES(n, z) \
	MOVL         $(n*0x01010101), AX; \
	VPBROADCASTD AX, z

// BEGIN takes the arguments; sums is the register of Init.
#define BEGIN(size, sums) \
	LEAQ split-size(SP), R10; \
	ADDQ $63, R10;            \
	ANDQ $~63, R10;           \
	MOVQ data+8(FP), BX;      \
	MOVQ q+16(FP), R8;        \
	MOVQ dx+24(FP), R12;      \
	MOVQ init+32(FP), sums;   \
	MOVQ chunks+40(FP), R11;  \
	MOVQ step+48(FP), R9

// SPLITS begins a block.
#define SPLITS \
	SPLIT(0);           \
	SPLIT(1);           \
	SPLIT(2);           \
	SPLIT(3);           \
	SPLIT(4);           \
	SPLIT(5);           \
	SPLIT(6);           \
	SPLIT(7);           \
	MOVQ acc+0(FP), DI; \
	XORL DX, DX

// NEXT ends a place, and behind the last place a block of so many bytes.
#define NEXT(bytes, sums) \
	VMOVUPS Z0, (DI);       \
	ADDQ sumgap+64(FP), DI; \
	ADDQ gap+56(FP), DX;    \
	CMPQ DX, end+72(FP);    \
	JNE  place;             \
	ADDQ $bytes, BX;        \
	ADDQ $512, R8;          \
	ADDQ $32, R12;          \
	ADDQ R9, sums;          \
	DECQ R11;               \
	JNZ  chunk;             \
	VZEROUPPER;             \
	RET
