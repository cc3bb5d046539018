#include "textflag.h"
#include "words_arm64.h"

// Kernels that unpack the planes of a unit of 512 codes, 64 bytes of a plane at
// a time:
//
//	R0          dst
//	R1          src
//	R2          bytes left of dst
//	R3          where the next 64 codes go, R4 bytes from there to those after them
//	R5          where the first codes of the current bytes go
//	V0 to V3    bytes of a plane
//	V4 to V7    codes of them
//	V16         the bits of a code
//	V17         a table

#define AND \
	VAND V16.B16, V4.B16, V4.B16; \
	VAND V16.B16, V5.B16, V5.B16; \
	VAND V16.B16, V6.B16, V6.B16; \
	VAND V16.B16, V7.B16, V7.B16

// LOWEST are the lowest bits of bytes, and UP(n) those from n on.
#define LOWEST \
	VAND V16.B16, V0.B16, V4.B16; \
	VAND V16.B16, V1.B16, V5.B16; \
	VAND V16.B16, V2.B16, V6.B16; \
	VAND V16.B16, V3.B16, V7.B16

#define UP(n) \
	VUSHR $n, V0.B16, V4.B16; \
	VUSHR $n, V1.B16, V5.B16; \
	VUSHR $n, V2.B16, V6.B16; \
	VUSHR $n, V3.B16, V7.B16; \
	AND

// STORE stores codes, ABOVE2 and ABOVE4 put them above 2 or 4 bits that are
// there, and LOOKUP stores their entries in the table.
#define STORE \
	VST1.P [V4.B16, V5.B16, V6.B16, V7.B16], (R3)(R4)

#define ABOVE(n) \
	VLD1   (R3), [V8.B16, V9.B16, V10.B16, V11.B16]; \
	VSLI   $n, V4.B16, V8.B16;  \
	VSLI   $n, V5.B16, V9.B16;  \
	VSLI   $n, V6.B16, V10.B16; \
	VSLI   $n, V7.B16, V11.B16; \
	VST1.P [V8.B16, V9.B16, V10.B16, V11.B16], (R3)(R4)

#define ABOVE2 ABOVE(2)
#define ABOVE4 ABOVE(4)

#define LOOKUP \
	VTBL V4.B16, [V17.B16], V4.B16; \
	VTBL V5.B16, [V17.B16], V5.B16; \
	VTBL V6.B16, [V17.B16], V6.B16; \
	VTBL V7.B16, [V17.B16], V7.B16; \
	STORE

#define BYTES \
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	MOVD   R5, R3;    \
	ADD    $64, R5, R5

#define BYTES4(PUT) \
	BYTES;  \
	LOWEST; \
	PUT;    \
	UP(4);  \
	PUT

#define FOUR(PUT) \
	VMOVI $15, V16.B16; \
	MOVD  $256, R4;     \
	MOVD  R0, R5;       \
	BYTES4(PUT);        \
	BYTES4(PUT);        \
	BYTES4(PUT);        \
	BYTES4(PUT)

#define BYTES2(PUT) \
	BYTES;  \
	LOWEST; \
	PUT;    \
	UP(2);  \
	PUT;    \
	UP(4);  \
	PUT;    \
	UP(6);  \
	PUT

#define TWO(PUT) \
	VMOVI $3, V16.B16; \
	MOVD  $128, R4;    \
	MOVD  R0, R5;      \
	BYTES2(PUT);       \
	BYTES2(PUT)

#define ONE(PUT) \
	VMOVI $1, V16.B16; \
	MOVD  $64, R4;     \
	MOVD  R0, R5;      \
	BYTES;             \
	LOWEST;            \
	PUT;               \
	UP(1);             \
	PUT;               \
	UP(2);             \
	PUT;               \
	UP(3);             \
	PUT;               \
	UP(4);             \
	PUT;               \
	UP(5);             \
	PUT;               \
	UP(6);             \
	PUT;               \
	UP(7);             \
	PUT

#define NOTHING

// UNITS is the body of func(dst, src []byte).
#define UNITS(FIRST, SECOND) \
	MOVD dst_base+0(FP), R0;  \
	MOVD dst_len+8(FP), R2;   \
	MOVD src_base+24(FP), R1; \
	CBZ  R2, done;            \
loop:                         \
	FIRST;                    \
	SECOND;                   \
	ADD  $512, R0, R0;        \
	SUBS $512, R2, R2;        \
	BNE  loop;                \
done:                         \
	RET

// func unpack4Vec(dst, src []byte)
TEXT ·unpack4Vec(SB), NOSPLIT, $0-48
	UNITS(FOUR(STORE), NOTHING)

// func unpack41Vec(dst, src []byte)
TEXT ·unpack41Vec(SB), NOSPLIT, $0-48
	UNITS(FOUR(STORE), ONE(ABOVE4))

// func unpack42Vec(dst, src []byte)
TEXT ·unpack42Vec(SB), NOSPLIT, $0-48
	UNITS(FOUR(STORE), TWO(ABOVE4))

// func unpack2Vec(dst, src []byte)
TEXT ·unpack2Vec(SB), NOSPLIT, $0-48
	UNITS(TWO(STORE), NOTHING)

// func unpack21Vec(dst, src []byte)
TEXT ·unpack21Vec(SB), NOSPLIT, $0-48
	UNITS(TWO(STORE), ONE(ABOVE2))

// func unpackTableVec(dst, src []byte, table *[16]byte)
TEXT ·unpackTableVec(SB), NOSPLIT, $0-56
	MOVD table+48(FP), R3
	VLD1 (R3), [V17.B16]
	UNITS(FOUR(LOOKUP), NOTHING)

// SINGLE makes codes of 0 and 2 of a plane of one bit.
#define SINGLE \
	VMOVI $2, V16.B16;        \
	MOVD  $64, R4;            \
	MOVD  R0, R5;             \
	BYTES;                    \
	VSHL  $1, V0.B16, V4.B16; \
	VSHL  $1, V1.B16, V5.B16; \
	VSHL  $1, V2.B16, V6.B16; \
	VSHL  $1, V3.B16, V7.B16; \
	AND;                      \
	STORE;                    \
	LOWEST;                   \
	STORE;                    \
	UP(1);                    \
	STORE;                    \
	UP(2);                    \
	STORE;                    \
	UP(3);                    \
	STORE;                    \
	UP(4);                    \
	STORE;                    \
	UP(5);                    \
	STORE;                    \
	UP(6);                    \
	STORE

// func unpack1Vec(dst, src []byte)
TEXT ·unpack1Vec(SB), NOSPLIT, $0-48
	UNITS(SINGLE, NOTHING)

// DIGIT makes the next digits of 16 bytes x: of 3*x the high byte, and leaves the low byte.
#define DIGIT(x, vx, digit, vdigit) \
	VCMHI_B16(v16, vx, v18);        \
	VCMHI_B16(v17, vx, vdigit);     \
	VADD V18.B16, digit, digit;     \
	VSUB digit, V19.B16, digit;     \
	VADD x, x, V18.B16;             \
	VADD V18.B16, x, x

#define DIGITS \
	DIGIT(V0.B16, v0, V4.B16, v4); \
	DIGIT(V1.B16, v1, V5.B16, v5); \
	DIGIT(V2.B16, v2, V6.B16, v6); \
	DIGIT(V3.B16, v3, V7.B16, v7); \
	STORE

// func unpackDigitsVec(dst, src *byte)
TEXT ·unpackDigitsVec(SB), NOSPLIT, $0-16
	MOVD  dst+0(FP), R5
	MOVD  src+8(FP), R1
	VMOVI $85, V16.B16
	VMOVI $170, V17.B16
	VMOVI $0, V19.B16
	MOVD  $512, R4
	MOVD  $8, R2
vectors:
	BYTES
	DIGITS
	DIGITS
	DIGITS
	DIGITS
	DIGITS
	SUBS  $1, R2, R2
	BNE   vectors
	ADD   R4<<2, R5, R5
	LSR   $1, R4, R4
	LSR   $6, R4, R2
	CMP   $128, R4
	BNE   vectors
	BYTES
	MOVD  $64, R4
	DIGITS
	DIGITS
	DIGITS
	DIGITS
	RET

// func loadE4M3Vec(dst []float32, src []byte)
TEXT ·loadE4M3Vec(SB), NOSPLIT, $0-48
	MOVD  dst_base+0(FP), R0
	MOVD  src_base+24(FP), R1
	MOVD  src_len+32(FP), R2
	VMOVI $127, V16.B16
	VMOVI $0, V17.B16
	MOVD  $0x43000000, R3 // 128
	VDUP  R3, V18.S4
	CBZ   R2, done

loop:
	VLD1.P  16(R1), [V0.B16]
	VCMEQ   V16.B16, V0.B16, V1.B16
	VAND    V16.B16, V0.B16, V0.B16
	VBIT    V1.B16, V17.B16, V0.B16
	VUSHLL  $7, V0.B8, V1.H8
	VUSHLL2 $7, V0.B16, V2.H8
	VFCVTL_S4(v1, v4)
	VFCVTL2_S4(v1, v5)
	VFCVTL_S4(v2, v6)
	VFCVTL2_S4(v2, v7)
	VFMUL_S4(v18, v4, v4)
	VFMUL_S4(v18, v5, v5)
	VFMUL_S4(v18, v6, v6)
	VFMUL_S4(v18, v7, v7)
	VST1.P  [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS    $16, R2, R2
	BNE     loop

done:
	RET

// func panelScalesVec(dst []float32, d *uint16, scale []int8)
TEXT ·panelScalesVec(SB), NOSPLIT, $0-56
	MOVD dst_base+0(FP), R0
	MOVD d+24(FP), R3
	MOVD scale_base+32(FP), R1
	MOVD scale_len+40(FP), R2
	VLD1 (R3), [V0.H8, V1.H8]
	VFCVTL_S4(v0, v16)
	VFCVTL2_S4(v0, v17)
	VFCVTL_S4(v1, v18)
	VFCVTL2_S4(v1, v19)
	CBZ  R2, done

loop:
	VLD1.P 16(R1), [V0.B16]
	VSSHLL_H8(0, v0, v4)
	VSSHLL2_H8(0, v0, v5)
	VSSHLL_S4(0, v4, v0)
	VSSHLL2_S4(0, v4, v1)
	VSSHLL_S4(0, v5, v2)
	VSSHLL2_S4(0, v5, v3)
	VSCVTF_S4(v0, v0)
	VSCVTF_S4(v1, v1)
	VSCVTF_S4(v2, v2)
	VSCVTF_S4(v3, v3)
	VFMUL_S4(v16, v0, v0)
	VFMUL_S4(v17, v1, v1)
	VFMUL_S4(v18, v2, v2)
	VFMUL_S4(v19, v3, v3)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUBS   $16, R2, R2
	BNE    loop

done:
	RET
