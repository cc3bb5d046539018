// READING readies a loop that reads 128 bytes each at SI and the three places behind
// it, and fetches what lies further on to the first (R10) and to the second cache (R11).
#define READING(done) \
	MOVQ  b_base+0(FP), SI; \
	MOVQ  b_len+8(FP), CX;  \
	MOVQ  f+24(FP), AX;     \
	MOVQ  8(AX), R10;       \
	MOVQ  16(AX), R11;      \
	MOVQ  24(AX), R8;       \
	MOVQ  32(AX), DX;       \
	LEAQ  (R8*2), R9;       \
	LEAQ  (R8)(R8*2), R13;  \
	XORQ  R12, R12;         \
	ADDQ  SI, R10;          \
	ADDQ  SI, R11;          \
	SHRQ  $9, CX;           \
	JZ    done

#define FETCH(place) \
	PREFETCHT0 (R10)(place*1);   \
	PREFETCHT0 64(R10)(place*1); \
	PREFETCHT1 (R11)(place*1);   \
	PREFETCHT1 64(R11)(place*1)

// READ reads at the four places.
#define READ(PLACE) \
	PLACE(R12); \
	PLACE(R8);  \
	PLACE(R9);  \
	PLACE(R13)

#define READ_ON(loop) \
	ADDQ DX, SI;  \
	ADDQ DX, R10; \
	ADDQ DX, R11; \
	DECQ CX;      \
	JNZ  loop;    \
	VZEROUPPER
