#include "textflag.h"
#include "quant_amd64.h"

#define MADD32(off, mem, sum) \
	VPMADDWD off+0 mem, Y12, sum;  \
	VPDPWSSD off+32 mem, Y13, sum

// func dotQ32AVX512(q []int8, scale, min []float32, x []int16, dx, sums []float32) float32
TEXT ·dotQ32AVX512(SB), NOSPLIT, $0-148
	DOTQ(32, 0, LOAD32, MADD32, SCALES32)

// func dotRowsQ32AVX512(dst []float32, q []int8, scale, min []float32, x []int16, dx, sums []float32)
TEXT ·dotRowsQ32AVX512(SB), 0, $808-168
	DOTROWSQ32(MADD32)
