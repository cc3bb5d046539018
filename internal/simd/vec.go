package simd

import "math"

// RMSNorm sets dst to x divided by its root mean square and multiplied by the
// weight w plus offset. (Zhang and Sennrich 2019, arXiv:1910.07467)
//
//	r = 1/√(DotF32(x, x)/n + eps), n being len(x) and each step rounded
//	dst[i] = (x[i]*r)*(offset + w[i]), or x[i]*r where w is nil
//
// dst may be x.
func RMSNorm(dst, x, w []float32, offset, eps float32) {
	dst = dst[:len(x)]
	mean := DotF32(x, x) / float32(len(x))
	// A float64 root rounded to float32 is the float32 root: 53 ≥ 2*24+2 bits.
	r := 1 / float32(math.Sqrt(float64(mean+eps)))
	if w == nil {
		scale(dst, x, r)
		return
	}
	norm(dst, x, w, r, offset)
}

// Rotate turns the pairs (i, i+len(x)/2) of a head x for i < len(cos), in
// place; the other pairs stay. (The half style of GPT-NeoX; package rope has
// the tables.) With a and b the pair:
//
//	a' = fma(a, cos[i], -(b*sin[i])), b' = fma(b, cos[i], a*sin[i])
func Rotate(x, cos, sin []float32) {
	half := len(x) / 2
	turn(x[:half:half], x[half:len(x):len(x)], cos, sin)
}

// RotatePairs is Rotate of the pairs (2i, 2i+1), with the same arithmetic. (The style of
// GPT-J.)
func RotatePairs(x, cos, sin []float32) {
	const most = 64
	var lo, hi [most]float32
	for len(cos) > 0 {
		n := min(most, len(cos))
		for i := range n {
			lo[i], hi[i] = x[2*i], x[2*i+1]
		}
		turn(lo[:n], hi[:n], cos[:n], sin[:n])
		for i := range n {
			x[2*i], x[2*i+1] = lo[i], hi[i]
		}
		x, cos, sin = x[2*n:], cos[n:], sin[n:]
	}
}

// Add sets dst[i] to a[i]+b[i]. dst may be a or b.
func Add(dst, a, b []float32) { add(dst, a, b) }

// Mul sets dst[i] to a[i]*b[i]. dst may be a or b.
func Mul(dst, a, b []float32) { mul(dst, a, b) }

// Scale sets dst[i] to x[i]*s. dst may be x.
func Scale(dst, x []float32, s float32) { scale(dst, x, s) }

// AddScaled sets dst[i] to fma(x[i], s, dst[i]).
func AddScaled(dst, x []float32, s float32) { addScaled(dst, x, s) }

// Max returns the largest value of x, NaN if there is a NaN, +0 for a zero of
// either sign, and -Inf if x is empty.
func Max(x []float32) float32 { return maximum(x) }

// Softmax sets dst[i] to e[i]/sum, where e[i] = Exp(x[i]-Max(x)), or 0 where
// x[i]-Max(x) < -64, and sum adds them in 16 partial sums. dst may be x.
func Softmax(dst, x []float32) {
	sums := expSum(dst, x, maximum(x))
	divide(dst, dst[:len(x)], sumLanes(&sums))
}
