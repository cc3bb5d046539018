package simd

import (
	"math"

	"github.com/karat-run/karat/internal/float16"
)

// Kernels over whole vectors. The assembly, where the tier has any, takes the first elements, a multiple of 16
// (wideLength); the generic twin takes the rest.

// wideLength returns how many of n elements kernels in assembly take.
func wideLength(n int) int {
	if tier == generic {
		return 0
	}
	return n &^ (lanes - 1)
}

// RMSNorm sets dst to x divided by its root mean square and multiplied by the
// weight w plus offset. (Zhang and Sennrich 2019, arXiv:1910.07467)
//
//	r = 1/√(DotF32(x, x)/n + eps), n being len(x) and each step rounded
//	dst[i] = (x[i]*r)*(offset + w[i]), or x[i]*r where w is nil
//
// dst may be x.
func RMSNorm(dst, x, w []float32, offset, eps float32) {
	dst = dst[:len(x)]
	mean := dotF32(x, x) / float32(len(x))
	// A float64 root rounded to float32 is the float32 root: 53 ≥ 2*24+2 bits.
	r := 1 / float32(math.Sqrt(float64(mean+eps)))
	if w == nil {
		Scale(dst, x, r)
		return
	}
	n := wideLength(len(x))
	if n > 0 {
		normVec(dst[:n], x[:n], w[:n], r, offset)
	}
	for i, v := range x[n:] {
		dst[n+i] = float32(float32(v*r) * (offset + w[n+i]))
	}
}

// LayerNorm sets dst to x less its mean, divided by its standard deviation, multiplied by the weight w and with the
// bias b added. (Ba et al. 2016, arXiv:1607.06450)
//
//	c[i] = x[i] - DotF32(x, 1)/n, n being len(x) and each step rounded
//	r = 1/√(DotF32(c, c)/n + eps)
//	dst[i] = (c[i]*r)*w[i] + b[i], a factor or a summand of nil left out
//
// dst may be x. ones is as long as x.
func LayerNorm(dst, x, w, b, ones []float32, eps float32) {
	dst = dst[:len(x)]
	mean := dotF32(x, ones) / float32(len(x))
	for i, v := range x {
		dst[i] = v - mean
	}
	variance := dotF32(dst, dst) / float32(len(x))
	Scale(dst, dst, 1/float32(math.Sqrt(float64(variance+eps)))) // as in RMSNorm
	if w != nil {
		Mul(dst, dst, w)
	}
	if b != nil {
		Add(dst, dst, b)
	}
}

// L2Norm sets dst to x*(1/√(DotF32(x, x) + eps)), each step rounded. dst may be x.
func L2Norm(dst, x []float32, eps float32) {
	Scale(dst, x, 1/float32(math.Sqrt(float64(dotF32(x, x)+eps))))
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

// RotatePairs rotates the pairs (2i, 2i+1) with Rotate's arithmetic. (The style of GPT-J.)
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

// turn turns pairs of lo and hi.
func turn(lo, hi, cos, sin []float32) {
	n := wideLength(len(cos))
	if n > 0 {
		turnVec(lo[:n], hi[:n], cos[:n], sin[:n])
	}
	for i := n; i < len(cos); i++ {
		a, b, c, s := lo[i], hi[i], cos[i], sin[i]
		lo[i] = fma32(a, c, -float32(b*s))
		hi[i] = fma32(b, c, float32(a*s))
	}
}

// Add sets dst[i] to a[i]+b[i]. dst may be a or b.
func Add(dst, a, b []float32) {
	n := wideLength(len(a))
	if n > 0 {
		addVec(dst[:n], a[:n], b[:n])
	}
	addGeneric(dst[n:], a[n:], b[n:])
}

func addGeneric(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v + b[i]
	}
}

// Mul sets dst[i] to a[i]*b[i]. dst may be a or b.
func Mul(dst, a, b []float32) {
	n := wideLength(len(a))
	if n > 0 {
		mulVec(dst[:n], a[:n], b[:n])
	}
	for i := n; i < len(a); i++ {
		dst[i] = float32(a[i] * b[i])
	}
}

// Scale sets dst[i] to x[i]*s. dst may be x.
func Scale(dst, x []float32, s float32) {
	n := wideLength(len(x))
	if n > 0 {
		scaleVec(dst[:n], x[:n], s)
	}
	scaleGeneric(dst[n:], x[n:], s)
}

func scaleGeneric(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = float32(v * s)
	}
}

// ScaleE4M3 sets dst[i] to the 8-bit float src[i] times s.
func ScaleE4M3(dst []float32, src []byte, s float32) {
	n := 0
	if tier >= avx2 && s < 0x1p119 && s > -0x1p119 { // with a factor of 256 in between
		n = len(src) &^ 15
		scaleE4M3AVX2(dst[:n], src[:n], s*256)
	}
	scaleE4M3Generic(dst[n:], src[n:], s)
}

func scaleE4M3Generic(dst []float32, src []byte, s float32) {
	dst = dst[:len(src)]
	for i, c := range src {
		dst[i] = float32(e4m3[c] * s)
	}
}

// e4m3 holds the values of 8-bit floats.
var e4m3 = func() *[256]float32 {
	t := new([256]float32)
	for i := range t {
		t[i] = float16.E4M3(byte(i))
	}
	return t
}()

// Divide sets dst[i] to x[i]/s. dst may be x.
func Divide(dst, x []float32, s float32) {
	n := wideLength(len(x))
	if n > 0 {
		divideVec(dst[:n], x[:n], s)
	}
	for i := n; i < len(x); i++ {
		dst[i] = x[i] / s
	}
}

// AddScaled sets dst[i] to fma(x[i], s, dst[i]).
func AddScaled(dst, x []float32, s float32) {
	n := wideLength(len(x))
	if n > 0 {
		addScaledVec(dst[:n], x[:n], s)
	}
	addScaledGeneric(dst[n:], x[n:], s)
}

func addScaledGeneric(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		// as in accumulate
		sum := float64(float64(v)*float64(s)) + float64(dst[i])
		if needsRoundOnce(sum) {
			dst[i] = fma32(v, s, dst[i])
		} else {
			dst[i] = float32(sum)
		}
	}
}

// Maximum returns the largest value of x, NaN if there is a NaN, +0 for a zero of
// either sign, and -Inf if x is empty.
func Maximum(x []float32) float32 {
	n, m := wideLength(len(x)), float32(math.Inf(-1))
	if n > 0 {
		m = maxVec(x[:n])
	}
	for _, v := range x[n:] {
		m = max(m, v) // NaN if either is
	}
	return m + 0 // -0 becomes +0
}

// Softmax sets dst[i] to e[i]/sum, where e[i] = Exp(x[i]-Maximum(x)), or 0 where x[i]-Maximum(x) < -64, and sum is the
// total in 16 partial sums. dst may be x.
func Softmax(dst, x []float32) {
	sums := expSum(dst, x, Maximum(x))
	Divide(dst, dst[:len(x)], sumLanes(&sums))
}

// LoadF16 sets dst to the values of src as binary16. Exact.
func LoadF16(dst []float32, src []uint16) {
	n := wideLength(len(src))
	if n > 0 {
		loadF16Vec(dst[:n], src[:n])
	}
	loadF16Generic(dst[n:], src[n:])
}

func loadF16Generic(dst []float32, src []uint16) {
	for i, v := range src {
		if e := v & 0x7c00; e == 0 || e == 0x7c00 {
			dst[i] = float16.F16(v)
			continue
		}
		b := uint32(v&0x7fff)<<13 + (127-15)<<23 // a normal number
		dst[i] = math.Float32frombits(b | uint32(v>>15)<<31)
	}
}

// StoreF16 sets dst to src rounded to binary16, to nearest even; values of
// 65520 and beyond become infinities.
func StoreF16(dst []uint16, src []float32) {
	n := wideLength(len(src))
	if n > 0 {
		storeF16Vec(dst[:n], src[:n])
	}
	for i := n; i < len(src); i++ {
		dst[i] = float16.ToF16(src[i])
	}
}

// LoadBF16 sets dst to the values of src as bfloat16. Exact.
func LoadBF16(dst []float32, src []uint16) {
	n := wideLength(len(src))
	if n > 0 {
		loadBF16Vec(dst[:n], src[:n])
	}
	loadBF16Generic(dst[n:], src[n:])
}

func loadBF16Generic(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = float16.BF16(v)
	}
}
