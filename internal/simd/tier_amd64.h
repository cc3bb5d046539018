// UPGRADE begins a kernel that has a twin for AVX-512, with the same arguments: on tiers that have it (avx512, which
// is level 2, and those above) the twin runs in its place. The kernel has no frame yet.
#define UPGRADE(twin) \
	CMPB ·tier(SB), $2; \
	JCS  2(PC);         \
	JMP  twin(SB)
