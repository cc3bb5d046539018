package simd

// ActGroup is the number of activations that share a scale. One scale for a
// whole row would save a multiplication a group, but rows with outliers, as
// Gemma 4's wide norms make them, would lose too much: a mean KL of 1.0e-6 on
// tiny-gemma4.Q4_K_M instead of 6.3e-7.
const ActGroup = 32

// QuantRow is one row of a quantized weight, unpacked: element k is
// Scale[k/Group]*Q[k] + Min[k/Group].
type QuantRow struct {
	Q     []int8    // a multiple of Group
	Scale []float32 // one per group
	Min   []float32 // likewise, or nil where the format has none
	Group int       // 16 or 32
}

// Quantize rounds x to integers q of 16 bits, so that x[k] is about
// q[k]*dx[k/ActGroup]. For each group (the last one may be shorter)
//
//	top = max |x[k]|, inv = 32767/top, q[k] = round(x[k]*inv), dx = top/32767
//
// where the product is rounded to float32 first, and round is to nearest even.
// A top below 1e-30 gives dx = 0 and q = 0; a NaN or an infinity in the group
// gives dx = NaN and q = 0, and so a dot product that is NaN.
func Quantize(q []int16, dx, x []float32) {
	for g := range dx {
		at, end := g*ActGroup, min((g+1)*ActGroup, len(x))
		dx[g] = quantizeGeneric(q[at:end], x[at:end])
	}
}

// QuantizePairs is Quantize for whole groups, q being in the order of Acts.Q.
func QuantizePairs(q []int16, dx, x []float32) { quantizePairs(q, dx, x) }

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

// DotQ returns the product of a quantized weight row and a quantized activation
// row x of scales dx, whose GroupSums in groups of w.Group are sums (unread
// where w.Min is nil). For each group g in order, from acc = +0,
//
//	acc = fma(float32(I)*dx, w.Scale[g], acc)    // I = sum of Q[k]*x[k] over the group
//	acc = fma(sums[g], w.Min[g], acc)            // where w.Min is not nil
//
// I is exact: its magnitude is at most 32*128*32768 = 2^27. Its conversion
// rounds to nearest even, and so does its product with dx.
func DotQ(w *QuantRow, x []int16, dx, sums []float32) float32 {
	return dotQ(w, x, dx, sums)
}

// DotRowsQ sets each dst[r] to DotQ of w and the r-th row of activations, x
// being rows of len(w.Q), dx of len(w.Q)/ActGroup, and sums of len(w.Q)/w.Group.
func DotRowsQ(dst []float32, w *QuantRow, x []int16, dx, sums []float32) {
	dotRowsQ(dst, w, x, dx, sums)
}
