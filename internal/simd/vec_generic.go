package simd

import "math"

func rmsNormGeneric(dst, x, w []float32, offset, eps float32) {
	dst = dst[:len(x)]
	mean := dotF32Generic(x, x) / float32(len(x))
	// A float64 root rounded to float32 is the float32 root: 53 ≥ 2*24+2 bits.
	r := 1 / float32(math.Sqrt(float64(mean+eps)))
	if w == nil {
		scaleGeneric(dst, x, r)
		return
	}
	for i, v := range x {
		dst[i] = float32(float32(v*r) * (offset + w[i]))
	}
}

func rotateGeneric(x, cos, sin []float32) {
	lo, hi := x[:len(x)/2], x[len(x)/2:]
	for i, c := range cos {
		a, b, s := lo[i], hi[i], sin[i]
		lo[i] = fma32(a, c, -float32(b*s))
		hi[i] = fma32(b, c, float32(a*s))
	}
}

func addGeneric(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v + b[i]
	}
}

func mulGeneric(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = float32(v * b[i])
	}
}

func scaleGeneric(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = float32(v * s)
	}
}

func addScaledGeneric(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		// as in accumulate
		sum := float64(float64(v)*float64(s)) + float64(dst[i])
		if rare(sum) {
			dst[i] = fma32(v, s, dst[i])
		} else {
			dst[i] = float32(sum)
		}
	}
}

func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v) // NaN if either is
	}
	return m + 0 // -0 becomes +0
}

func softmaxGeneric(dst, x []float32) {
	m := maxGeneric(x)
	var p [lanes]float32
	for i, v := range x {
		e := Exp(v - m)
		dst[i] = e
		p[i%lanes] += e
	}
	sum := sumLanes(&p)
	for i, v := range dst[:len(x)] {
		dst[i] = v / sum
	}
}
