package simd

// ActGroup is the number of activations that share a scale. One scale for a
// whole row would save a multiplication a group, but rows with outliers, as
// Gemma 4's wide norms make them, would lose too much: a mean KL of 1.0e-6 on
// tiny-gemma4.Q4_K_M instead of 6.3e-7.
const ActGroup = 32

// Quantize rounds x, whole groups of ActGroup, to integers q of 16 bits, in the
// order of Acts.Q, so that column k is about its integer times dx[k/ActGroup].
// For each group
//
//	top = max |x[k]|, inv = 32767/top, integer = round(x[k]*inv), dx = top/32767
//
// where the product is rounded to float32 first, and round is to nearest even.
// A top below 1e-30 gives dx = 0 and q = 0; a NaN or an infinity in the group
// gives dx = NaN and q = 0, and so a dot product that is NaN.
func Quantize(q []int16, dx, x []float32) { quantize(q, dx, x) }

// GroupSums sets sums[g] to float32(S)*dx, S being the sum of the g-th run of
// group values of q, exact, and dx the scale of that run. group is 16 or 32.
func GroupSums(sums []float32, q []int16, dx []float32, group int) {
	groupSums(sums, q, dx, group)
}

// GroupInit sets init[g] to -offset*S, S being the sum of the g-th run of group
// values of q: what Acts.Init is for codes that have an offset. group is 16 or
// 32, and offset at most 128, so that it is exact.
func GroupInit(init []int32, q []int16, group int, offset int32) {
	groupInit(init, q, group, offset)
}
