package simd

import "math"

// Exp returns e^x, within 1 ulp of the exact value; subnormal results and
// infinities included. From x clamped to [-104, 89], where the result has
// become 0 and +Inf:
//
//	n = round(x*log2e), the product rounded first, round to nearest even
//	r = fma(n, -ln2hi, x), then r = fma(n, -ln2lo, r)
//	p = c6, then p = fma(p, r, c) for c = c5, c4, c3, c2, 1, 1
//
// and the result is p*2^n, rounded once.
func Exp(x float32) float32 {
	if x != x {
		return x
	}
	x = min(max(x, -104), 89)
	n := Nearest(float32(x * log2e))
	r := fma32(n, -ln2hi, x)
	r = fma32(n, -ln2lo, r)
	p := fma32(expC6, r, expC5)
	p = fma32(p, r, expC4)
	p = fma32(p, r, expC3)
	p = fma32(p, r, expC2)
	p = fma32(p, r, 1)
	p = fma32(p, r, 1)
	// 2^n may lie outside float32's range; the first product is exact.
	half := int32(n) / 2
	return float32(float32(p*exp2(half)) * exp2(int32(n)-half))
}

// The coefficients c2 to c6 make the largest relative error of the polynomial
// least for |r| ≤ ln(2)/2: 2^-28 (Remez's algorithm, each coefficient rounded
// to float32 before the next was fitted).
const (
	log2e = 0x1.715476p+0
	ln2hi = 0x1.62e43p-1 // ln(2) rounded to float32
	ln2lo = -0x1.05c61p-29
	expC2 = 0x1.fffffcp-2
	expC3 = 0x1.55548cp-3
	expC4 = 0x1.555858p-5
	expC5 = 0x1.123dep-7
	expC6 = 0x1.6ac74ap-10
)

// exp2 returns 2^n for -126 ≤ n ≤ 127.
func exp2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// tanh returns the hyperbolic tangent of x, within 2 ulp of the exact value.
// With a = |x|:
//
//	a < 0.625:  y = a*a; p = t4, then p = fma(p, y, t) for t = t3, t2, t1, t0; fma(a, y*p, a)
//	otherwise:  1 - 2/(Exp(2a) + 1)
//
// and x's sign.
func tanh(x float32) float32 {
	a := abs(x)
	var t float32
	if a < 0.625 {
		y := float32(a * a)
		p := fma32(tanhT4, y, tanhT3)
		p = fma32(p, y, tanhT2)
		p = fma32(p, y, tanhT1)
		p = fma32(p, y, tanhT0)
		t = fma32(a, float32(y*p), a)
	} else {
		t = 1 - 2/(Exp(2*a)+1)
	}
	return math.Float32frombits(math.Float32bits(t) | math.Float32bits(x)&(1<<31))
}

// The polynomial is (tanh(a)/a - 1)/a² in a², fitted as Exp's: 2^-27.
const (
	tanhT0 = -0x1.555532p-2
	tanhT1 = 0x1.1106f6p-3
	tanhT2 = -0x1.b835a4p-5
	tanhT3 = 0x1.51f8cep-6
	tanhT4 = -0x1.750ce4p-8
)
