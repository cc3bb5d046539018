#include "textflag.h"
#include "quant_amd64.h"

#define MADD32(off, mem, sum) \
	VPMADDWD off+0 mem, Y12, sum;  \
	VPMADDWD off+32 mem, Y13, Y14; \
	VPADDD   Y14, sum, sum

// func dotQ32AVX2(q []int8, scale, min []float32, x []int16, dx, sums []float32) float32
TEXT ·dotQ32AVX2(SB), NOSPLIT, $0-148
	DOTQ(32, 0, LOAD32, MADD32, SCALES32)

// func dotRowsQ32AVX2(dst []float32, q []int8, scale, min []float32, x []int16, dx, sums []float32)
TEXT ·dotRowsQ32AVX2(SB), 0, $808-168
	DOTROWSQ32(MADD32)

// func dotQ16AVX2(q []int8, scale, min []float32, x []int16, dx, sums []float32) float32
TEXT ·dotQ16AVX2(SB), NOSPLIT, $0-148
	DOTQ(16, 1, LOAD16, MADD16, SCALES16)

// func dotRowsQ16AVX2(dst []float32, q []int8, scale, min []float32, x []int16, dx, sums []float32)
TEXT ·dotRowsQ16AVX2(SB), 0, $808-168
	DOTROWSQ16
