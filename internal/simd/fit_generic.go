package simd

import "math"

// least is the peak that is worth a scale.
const least = 1e-15

func fitScaleGeneric(f *Fit, x, w []float32, n int, tries []float32, top float32) {
	for g := range len(x) / n {
		f.Min[g], f.Low[g] = 0, 0
		f.Scale[g], f.Inverse[g] = fitScaleOne(x[g*n:g*n+n], w[g*n:g*n+n], tries, top)
	}
}

func fitScaleOne(x, w, tries []float32, top float32) (scale, inverse float32) {
	var peak, high float32
	for _, v := range x {
		if a := abs(v); a > high {
			high, peak = a, v
		}
	}
	if high < least {
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

// abs is v without its sign.
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

func fitMinGeneric(f *Fit, x, w []float32, n int, tries []float32, top float32, absolute bool) {
	for g := range len(x) / n {
		fitMinOne(f, g, x[g*n:g*n+n], w[g*n:g*n+n], tries, top, absolute)
	}
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

// minCode is the integer of a value that is at least low.
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
