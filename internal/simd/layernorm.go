package simd

import "math"

// LayerNorm sets dst to x less its mean, divided by its standard deviation,
// multiplied by the weight w and with the bias b added. (Ba et al. 2016,
// arXiv:1607.06450)
//
//	c[i] = x[i] - DotF32(x, 1)/n, n being len(x) and each step rounded
//	r = 1/√(DotF32(c, c)/n + eps)
//	dst[i] = (c[i]*r)*w[i] + b[i], without a factor or a summand that is nil
//
// dst may be x. ones are as many as x has.
func LayerNorm(dst, x, w, b, ones []float32, eps float32) {
	dst = dst[:len(x)]
	mean := DotF32(x, ones) / float32(len(x))
	for i, v := range x {
		dst[i] = v - mean
	}
	variance := DotF32(dst, dst) / float32(len(x))
	scale(dst, dst, 1/float32(math.Sqrt(float64(variance+eps)))) // as in RMSNorm
	if w != nil {
		mul(dst, dst, w)
	}
	if b != nil {
		add(dst, dst, b)
	}
}

// L2Norm sets dst to x*(1/√(DotF32(x, x) + eps)), each step rounded. dst may be x.
func L2Norm(dst, x []float32, eps float32) {
	scale(dst, x, 1/float32(math.Sqrt(float64(DotF32(x, x)+eps))))
}
