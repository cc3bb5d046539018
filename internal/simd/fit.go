package simd

import "math"

// FitLanes is how many groups FitScale and FitMin search side by side.
const FitLanes = 8

// maxFit is the longest group.
const maxFit = 32

// A Fit is the result of a search for each of FitLanes groups: x is about Scale*q + Min, q being the integer nearest to
// (x-Low)*Inverse, within limits.
type Fit struct {
	Scale, Min, Low, Inverse [FitLanes]float32

	// The values, the weights and the integers of groups side by side, for kernels.
	x, w, q [FitLanes * maxFit]float32
}

// FitScale searches, for the groups of n values in x, at most FitLanes groups of at most 32, the scales of least loss,
// by the weights w, as integers q from -top to top-1. For each group, sums in order of i, products from left to right,
// each step rounded:
//
//	peak: the first x[i] of the largest magnitude
//	for inverse = -top/peak, then t/peak for each t of tries:
//		q[i] = nearest(inverse*x[i]), at least -top, at most top-1
//		xq = Σ w[i]*x[i]*q[i], qq = Σ w[i]*q[i]*q[i]
//		the first, and where qq > 0 and xq*xq > best*qq: Scale = xq/qq, or 0 for
//		qq = 0, best = Scale*xq, Inverse = inverse
//
// where nearest(v) = (v + 1.5*2^23) - 1.5*2^23, and the limits take a NaN to -top. Min and Low are 0. A peak below
// 1e-15 gives Scale = Inverse = 0. (make_qx_quants of ggml-quants.c in llama.cpp)
func FitScale(f *Fit, x, w []float32, n int, tries []float32, top float32) {
	if f.interleave(x, w, n) {
		fitScaleAVX2(f, &f.x[0], &f.w[0], n, tries, top)
		return
	}
	for g := range len(x) / n {
		f.Min[g], f.Low[g] = 0, 0
		f.Scale[g], f.Inverse[g] = fitScaleOne(x[g*n:g*n+n], w[g*n:g*n+n], tries, top)
	}
}

// FitMin searches, for the groups of n values in x, at most FitLanes groups of at most 32, the scales and minima, at
// most 0, of least loss, by the weights w, as integers q from 0 to top. For each group, sums in order of i, products
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
// where nearest is FitScale's, and the limits take a NaN to 0; loss(v) is |v| if absolute, else v*v. A group with high
// = low has Scale = Inverse = 0 and Min = Low = low. (make_qkx2_quants and make_qkx3_quants of ggml-quants.c in
// llama.cpp)
func FitMin(f *Fit, x, w []float32, n int, tries []float32, top float32, absolute bool) {
	if !f.interleave(x, w, n) {
		for g := range len(x) / n {
			fitMinOne(f, g, x[g*n:g*n+n], w[g*n:g*n+n], tries, top, absolute)
		}
		return
	}
	var mask uint32
	if absolute {
		mask--
	}
	fitMinAVX2(f, &f.x[0], &f.w[0], &f.q[0], n, tries, top, mask)
}

// interleave puts groups of n side by side into f for the kernels, and reports whether all are there and have kernels.
func (f *Fit) interleave(x, w []float32, n int) bool {
	if tier < avx2 || n != 16 && n != maxFit || len(x) != FitLanes*n {
		return false
	}
	_ = w[:len(x)]
	interleaveAVX2(&f.x[0], &x[0], n)
	interleaveAVX2(&f.w[0], &w[0], n)
	return true
}

// Nearest returns the integer nearest to v, ties to even, for |v| <= 2^22.
func Nearest(v float32) float32 { return float32(v+magic) - magic }

// magic is in the range where float32 numbers are integers: a sum with magic has no bits below 1.
const magic = 3 << 22

// smallestPeak is the smallest peak worth a scale.
const smallestPeak = 1e-15

func fitScaleOne(x, w, tries []float32, top float32) (scale, inverse float32) {
	var peak, high float32
	for _, v := range x {
		if a := abs(v); a > high {
			high, peak = a, v
		}
	}
	if high < smallestPeak {
		return 0, 0
	}
	inverse = -top / peak
	xq, qq := scaleSums(x, w, inverse, top)
	if qq != 0 {
		scale = xq / qq
	}
	best := float32(scale * xq)
	for _, t := range tries {
		try := t / peak
		xq, qq := scaleSums(x, w, try, top)
		if qq > 0 && float32(xq*xq) > float32(best*qq) {
			scale, inverse = xq/qq, try
			best = float32(scale * xq)
		}
	}
	return scale, inverse
}

// abs returns v without its sign.
func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

func scaleSums(x, w []float32, inverse, top float32) (xq, qq float32) {
	for i := range w {
		q := Nearest(float32(inverse * x[i]))
		if !(q > -top) {
			q = -top
		}
		if q > top-1 {
			q = top - 1
		}
		xq += float32(float32(w[i]*x[i]) * q)
		qq += float32(float32(w[i]*q) * q)
	}
	return xq, qq
}

func fitMinOne(f *Fit, g int, x, w, tries []float32, top float32, absolute bool) {
	low, high, sw := x[0], x[0], w[0]
	sx := float32(w[0] * x[0])
	for i := 1; i < len(w); i++ {
		if x[i] < low {
			low = x[i]
		}
		if x[i] > high {
			high = x[i]
		}
		sw += w[i]
		sx += float32(w[i] * x[i])
	}
	if low > 0 {
		low = 0
	}
	f.Low[g], f.Min[g], f.Scale[g], f.Inverse[g] = low, low, 0, 0
	if high == low {
		return
	}
	inverse := top / (high - low)
	scale, min := 1/inverse, low
	best := minLoss(x, w, low, inverse, top, scale, min, absolute)
	f.Scale[g], f.Inverse[g] = scale, inverse
	for _, t := range tries {
		inverse := t / (high - low)
		sq, qq, xq := minSums(x, w, low, inverse, top)
		det := float32(sw*qq) - float32(sq*sq)
		if !(det > 0) {
			continue
		}
		scale, min = (float32(sw*xq)-float32(sx*sq))/det, (float32(qq*sx)-float32(sq*xq))/det
		if min > 0 {
			scale, min = xq/qq, 0
		}
		if loss := minLoss(x, w, low, inverse, top, scale, min, absolute); loss < best {
			f.Scale[g], f.Min[g], f.Low[g], f.Inverse[g] = scale, min, low, inverse
			best, low = loss, min
		}
	}
}

// minCode returns the integer of a value of at least low.
func minCode(x, low, inverse, top float32) float32 {
	q := Nearest(float32(inverse * (x - low)))
	if !(q > 0) {
		q = 0
	}
	if q > top {
		q = top
	}
	return q
}

func minSums(x, w []float32, low, inverse, top float32) (sq, qq, xq float32) {
	for i := range w {
		q := minCode(x[i], low, inverse, top)
		wq := float32(w[i] * q)
		sq += wq
		qq += float32(wq * q)
		xq += float32(wq * x[i])
	}
	return sq, qq, xq
}

func minLoss(x, w []float32, low, inverse, top, scale, min float32, absolute bool) (sum float32) {
	for i := range w {
		loss := float32(scale*minCode(x[i], low, inverse, top)) + min - x[i]
		if absolute {
			loss = abs(loss)
		} else {
			loss = float32(loss * loss)
		}
		sum += float32(w[i] * loss)
	}
	return sum
}
