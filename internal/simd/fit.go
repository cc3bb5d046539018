package simd

// FitLanes is how many groups FitScale and FitMin search side by side.
const FitLanes = 8

// Fit is what a search found for each of FitLanes groups: x is about
// Scale*q + Min, q being the integer nearest to (x-Low)*Inverse, within limits.
type Fit struct {
	Scale, Min, Low, Inverse [FitLanes]float32

	lanes fitLanes
}

// FitScale searches the scales with which the groups of n values in x, at most
// FitLanes groups of at most 32, lose least, by the weights w, as integers q from
// -top to top-1. For each group, sums in order of i, products from left to right,
// each step rounded:
//
//	peak: the first x[i] of the largest magnitude
//	for inverse = -top/peak, then t/peak for each t of tries:
//		q[i] = nearest(inverse*x[i]), at least -top, at most top-1
//		xq = Σ w[i]*x[i]*q[i], qq = Σ w[i]*q[i]*q[i]
//		the first, and where qq > 0 and xq*xq > best*qq: Scale = xq/qq, or 0 for
//		qq = 0, best = Scale*xq, Inverse = inverse
//
// where nearest(v) = (v + 1.5*2^23) - 1.5*2^23, and the limits take a NaN to
// -top. Min and Low are 0. A peak below 1e-15 gives Scale = Inverse = 0.
// (make_qx_quants of ggml-quants.c in llama.cpp)
func FitScale(f *Fit, x, w []float32, n int, tries []float32, top float32) {
	fitScale(f, x, w, n, tries, top)
}

// FitMin searches the scales and minima, at most 0, with which the groups of n
// values in x, at most FitLanes groups of at most 32, lose least, by the weights
// w, as integers q from 0 to top. For each group, sums in order of i, products
// from left to right, each step rounded:
//
//	low = min(x, 0), high = max x, both as comparisons in order have them
//	sw = Σ w[i], sx = Σ w[i]*x[i], both beginning with the first
//	inverse = top/(high-low), scale = 1/inverse, min = low, q[i] as below
//	best = Σ w[i]*loss(scale*q[i] + min - x[i])
//	for inverse = t/(high-low) for each t of tries:
//		q[i] = nearest(inverse*(x[i]-low)), at least 0, at most top
//		sq = Σ w[i]*q[i], qq = Σ w[i]*q[i]*q[i], xq = Σ w[i]*q[i]*x[i]
//		det = sw*qq - sq*sq, unless det > 0 the next
//		scale = (sw*xq - sx*sq)/det, min = (qq*sx - sq*xq)/det
//		if min > 0: min = 0, scale = xq/qq
//		error = Σ w[i]*loss(scale*q[i] + min - x[i])
//		if error < best: keep scale, min, low and inverse, best = error, low = min
//
// where nearest is FitScale's, and the limits take a NaN to 0; loss(v) is |v| if
// absolute, else v*v. A group with high = low has Scale = Inverse = 0 and
// Min = Low = low. (make_qkx2_quants and make_qkx3_quants of ggml-quants.c in llama.cpp)
func FitMin(f *Fit, x, w []float32, n int, tries []float32, top float32, absolute bool) {
	fitMin(f, x, w, n, tries, top, absolute)
}

// Nearest is the integer nearest to v, ties to even, for |v| <= 2^22.
func Nearest(v float32) float32 { return float32(v+magic) - magic }

// magic is where float32 numbers are the integers: adding it leaves no bits below 1.
const magic = 3 << 22
