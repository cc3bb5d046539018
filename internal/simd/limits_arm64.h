// SIXTEEN are independent instructions, which add products of zeros to V16 to V31:
// four pipes that take four cycles each are kept busy.
#define SIXTEEN(OP) \
	OP(v0, v1, v16); \
	OP(v0, v1, v17); \
	OP(v0, v1, v18); \
	OP(v0, v1, v19); \
	OP(v0, v1, v20); \
	OP(v0, v1, v21); \
	OP(v0, v1, v22); \
	OP(v0, v1, v23); \
	OP(v0, v1, v24); \
	OP(v0, v1, v25); \
	OP(v0, v1, v26); \
	OP(v0, v1, v27); \
	OP(v0, v1, v28); \
	OP(v0, v1, v29); \
	OP(v0, v1, v30); \
	OP(v0, v1, v31)

#define ZERO \
	VEOR V0.B16, V0.B16, V0.B16; \
	VEOR V1.B16, V1.B16, V1.B16; \
	VEOR V16.B16, V16.B16, V16.B16; \
	VEOR V17.B16, V17.B16, V17.B16; \
	VEOR V18.B16, V18.B16, V18.B16; \
	VEOR V19.B16, V19.B16, V19.B16; \
	VEOR V20.B16, V20.B16, V20.B16; \
	VEOR V21.B16, V21.B16, V21.B16; \
	VEOR V22.B16, V22.B16, V22.B16; \
	VEOR V23.B16, V23.B16, V23.B16; \
	VEOR V24.B16, V24.B16, V24.B16; \
	VEOR V25.B16, V25.B16, V25.B16; \
	VEOR V26.B16, V26.B16, V26.B16; \
	VEOR V27.B16, V27.B16, V27.B16; \
	VEOR V28.B16, V28.B16, V28.B16; \
	VEOR V29.B16, V29.B16, V29.B16; \
	VEOR V30.B16, V30.B16, V30.B16; \
	VEOR V31.B16, V31.B16, V31.B16
