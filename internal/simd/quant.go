package simd

// QuantRow is one row of a quantized weight, unpacked: element k is
// Scale[k/Group]*Q[k] + Min[k/Group].
type QuantRow struct {
	Q     []int8    // a multiple of Group
	Scale []float32 // one per group
	Min   []float32 // likewise, or nil where the format has none
	Group int       // 16 or 32
}

// Quantize rounds x to integers q of 16 bits, so that x is about q*dx:
//
//	top = max |x[k]|, inv = 32767/top, q[k] = round(x[k]*inv), dx = top/32767
//
// where the product is rounded to float32 first, and round is to nearest even.
// A top below 1e-30 gives dx = 0 and q = 0; a NaN or an infinity in x gives
// dx = NaN and q = 0, and so a dot product that is NaN.
func Quantize(q []int16, x []float32) (dx float32) { return quantizeGeneric(q, x) }

// GroupSums sets sums[g] to the sum of the g-th run of group values of q. Exact
// for group ≤ 65536.
func GroupSums(sums []int32, q []int16, group int) { groupSumsGeneric(sums, q, group) }

// DotQ returns the product of a quantized weight row and a quantized activation
// row x of scale dx, whose GroupSums in groups of w.Group are sums (unread where
// w.Min is nil). For each group g in order, from acc = +0,
//
//	acc = fma(float32(I), w.Scale[g], acc)        // I = sum of Q[k]*x[k] over the group
//	acc = fma(float32(sums[g]), w.Min[g], acc)    // where w.Min is not nil
//
// and the result is acc*dx. I is exact: its magnitude is at most
// 32*128*32768 = 2^27. Its conversion rounds to nearest even.
func DotQ(w *QuantRow, x []int16, sums []int32, dx float32) float32 {
	return dotQGeneric(w, x, sums, dx)
}

// DotRowsQ sets each dst[r] to DotQ of w and the r-th row of activations, x
// being rows of len(w.Q), sums of len(w.Q)/w.Group, and dx of one.
func DotRowsQ(dst []float32, w *QuantRow, x []int16, sums []int32, dx []float32) {
	dotRowsQGeneric(dst, w, x, sums, dx)
}
