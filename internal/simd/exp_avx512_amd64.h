// Exp of AVX-512, 16 numbers at a time, for a pointer to expConst in R8.

#define CONSTANTS \
	VBROADCASTSS LOW(R8), Z16;   \
	VBROADCASTSS HIGH(R8), Z17;  \
	VBROADCASTSS LOG2E(R8), Z18; \
	VBROADCASTSS MAGIC(R8), Z19; \
	VBROADCASTSS LN2HI(R8), Z20; \
	VBROADCASTSS LN2LO(R8), Z21; \
	VBROADCASTSS C6(R8), Z22;    \
	VBROADCASTSS C5(R8), Z23;    \
	VBROADCASTSS C4(R8), Z24;    \
	VBROADCASTSS C3(R8), Z25;    \
	VBROADCASTSS C2(R8), Z26;    \
	VBROADCASTSS ONE(R8), Z27;   \
	VBROADCASTSS SIGN(R8), Z28

// EXP sets Z0 to Exp(Z0). VMAXPS and VMINPS return their first operand, as
// written here, if there is a NaN; VSCALEFPS rounds p*2^n once. It overwrites
// Z1 and Z2.
#define EXP \
	VMAXPS      Z0, Z16, Z0;  \
	VMINPS      Z0, Z17, Z0;  \
	VMULPS      Z18, Z0, Z1;  \
	VADDPS      Z19, Z1, Z1;  \
	VSUBPS      Z19, Z1, Z1;  \
	VFMADD231PS Z20, Z1, Z0;  \
	VFMADD231PS Z21, Z1, Z0;  \
	VMOVAPS     Z22, Z2;      \
	VFMADD213PS Z23, Z0, Z2;  \
	VFMADD213PS Z24, Z0, Z2;  \
	VFMADD213PS Z25, Z0, Z2;  \
	VFMADD213PS Z26, Z0, Z2;  \
	VFMADD213PS Z27, Z0, Z2;  \
	VFMADD213PS Z27, Z0, Z2;  \
	VSCALEFPS   Z1, Z2, Z0

// LEASTEXPONENT prepares WEIGHT, which sets Z0 to weight(Z0).
#define LEASTEXPONENT \
	MOVL         $0xc2800000, AX; \
	VPBROADCASTD AX, Z16

#define WEIGHT \
	VCMPPS    $5, Z16, Z0, K1; \
	EXP;                       \
	VMOVAPS.Z Z0, K1, Z0
