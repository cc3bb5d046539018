package simd

import "math"

// Mix sets y [m, d] to sums of the vectors of x [n, d]: from 0, for j in order, y[i] = fma(x[j], weights[i*n+j] + plus,
// y[i]), the sum of weights rounded.
func Mix(y, x, weights []float32, d int, plus float32) {
	clear(y)
	n := len(x) / d
	for i := range len(y) / d {
		for j := range n {
			AddScaled(y[i*d:(i+1)*d], x[j*d:(j+1)*d], weights[i*n+j]+plus)
		}
	}
}

// Match sets dst to (x*√(DotF32(z, z)/n))*(1/√max(DotF32(x, x)/n, eps)), each step rounded.
func Match(dst, x, z []float32, eps float32) {
	n := float32(len(x))
	Scale(dst, x, float32(math.Sqrt(float64(dotF32(z, z)/n))))
	Scale(dst, dst, 1/float32(math.Sqrt(float64(max(dotF32(x, x)/n, eps)))))
}

// Above sets dst to max(0, c[i] - by*√(DotF32(c, c)/n)), c being x less its mean as in LayerNorm, each step rounded.
// ones is as long as x.
func Above(dst, x, ones []float32, by float32) {
	n := float32(len(x))
	mean := dotF32(x, ones) / n
	for i, v := range x {
		dst[i] = v - mean
	}
	least := float32(by * float32(math.Sqrt(float64(dotF32(dst, dst)/n))))
	for i, v := range dst[:len(x)] {
		dst[i] = max(0, v-least)
	}
}
