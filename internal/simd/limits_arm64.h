// TWELVE are independent instructions, which add products of zeros to V0 to V11.
#define TWELVE(OP) \
	OP(v12, v13, v0); \
	OP(v12, v13, v1); \
	OP(v12, v13, v2); \
	OP(v12, v13, v3); \
	OP(v12, v13, v4); \
	OP(v12, v13, v5); \
	OP(v12, v13, v6); \
	OP(v12, v13, v7); \
	OP(v12, v13, v8); \
	OP(v12, v13, v9); \
	OP(v12, v13, v10); \
	OP(v12, v13, v11)

#define ZERO \
	VEOR V0.B16, V0.B16, V0.B16; \
	VEOR V1.B16, V1.B16, V1.B16; \
	VEOR V2.B16, V2.B16, V2.B16; \
	VEOR V3.B16, V3.B16, V3.B16; \
	VEOR V4.B16, V4.B16, V4.B16; \
	VEOR V5.B16, V5.B16, V5.B16; \
	VEOR V6.B16, V6.B16, V6.B16; \
	VEOR V7.B16, V7.B16, V7.B16; \
	VEOR V8.B16, V8.B16, V8.B16; \
	VEOR V9.B16, V9.B16, V9.B16; \
	VEOR V10.B16, V10.B16, V10.B16; \
	VEOR V11.B16, V11.B16, V11.B16; \
	VEOR V12.B16, V12.B16, V12.B16; \
	VEOR V13.B16, V13.B16, V13.B16
