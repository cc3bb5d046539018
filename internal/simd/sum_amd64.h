// The last steps of a sum in 16 partial sums, of which sums 8 to 15 have been
// added to sums 0 to 7: i takes i+4, then i+2, then 0 takes 1. AVX2.

// SUM4 leaves the totals of the rows a, b, c and d in x, the lower half of a.
// It overwrites all of them, and Y8.
#define SUM4(a, b, c, d, x) \
	VPERM2F128   $0x20, b, a, Y8; \
	VPERM2F128   $0x31, b, a, a;  \
	VADDPS       a, Y8, a;        \
	VPERM2F128   $0x20, d, c, Y8; \
	VPERM2F128   $0x31, d, c, c;  \
	VADDPS       c, Y8, c;        \
	VUNPCKLPD    c, a, Y8;        \
	VUNPCKHPD    c, a, a;         \
	VADDPS       a, Y8, a;        \
	VHADDPS      a, a, a;         \
	VEXTRACTF128 $1, a, X8;       \
	VUNPCKLPS    X8, x, x

// In SUM4, a is at first 4 sums of row a and 4 of b, and c those of c and d;
// then a is a0 a1 c0 c1 and b0 b1 d0 d1; and then a c a c and b d b d.
