package simd

import "math"

func normGeneric(dst, x, w []float32, r, offset float32) {
	for i, v := range x {
		dst[i] = float32(float32(v*r) * (offset + w[i]))
	}
}

func turnGeneric(lo, hi, cos, sin []float32) {
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

func divideGeneric(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = v / s
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

// leastExponent is that of the smallest weight: those below e^-64 are 0. Next
// to the largest, 1, they are nothing, but subnormal numbers would make
// processors more than a hundred times slower.
const leastExponent = -64

// weight is Exp(x), or 0 for x < leastExponent.
func weight(x float32) float32 {
	if x < leastExponent {
		return 0
	}
	return Exp(x)
}

// expSumGeneric sets dst[i] to weight(x[i]-top) and adds it to p[i mod 16].
func expSumGeneric(p *[lanes]float32, dst, x []float32, top float32) {
	for i, v := range x {
		e := weight(v - top)
		dst[i] = e
		p[i%lanes] += e
	}
}
