package simd

import "math"

const (
	doubleRows = 2 // rows of w in a kernel of float64
	doubleQuad = 4 // rows of w in the kernel for AVX-512
)

// DotsF64 sets dst[r*stride+i] to the dot product of row i of w and row r of x, both of k elements, k > 0. A product is
// rounded and added to partial sum k mod 16, for k in order: nothing is fused. The partial sums are added as in
// DotsF32.
func DotsF64(dst []float64, stride int, w, x []float64, k int) {
	n, i := len(w)/k, 0
	for ; tier >= avx512 && i+doubleQuad <= n; i += doubleQuad {
		for r := range len(x) / k {
			dotDoublesAVX512(dst[r*stride+i:][:doubleQuad], w[i*k:(i+doubleQuad)*k], x[r*k:(r+1)*k])
		}
	}
	for ; i < n; i += doubleRows {
		rows := min(doubleRows, n-i)
		part := w[i*k : (i+rows)*k]
		for r := range len(x) / k {
			a, b := dotDoubles(part, (rows-1)*k, x[r*k:(r+1)*k]) // a single row is taken twice
			if dst[r*stride+i] = a; rows > 1 {
				dst[r*stride+i+1] = b
			}
		}
	}
}

// dotDoubles returns the products of x with two rows, at w[0] and w[stride].
func dotDoubles(w []float64, stride int, x []float64) (a, b float64) {
	if tier >= avx2 {
		return dotDoublesAVX2(w[:stride+len(x)], stride, x)
	}
	return dotDouble(w[:len(x)], x), dotDouble(w[stride:][:len(x)], x)
}

func dotDouble(w, x []float64) float64 {
	var sums [lanes]float64
	for i, v := range w {
		sums[i%lanes] += float64(v * x[i])
	}
	for n := lanes / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return sums[0]
}

// ExpsF64 sets each x of v to ExpF64(x).
func ExpsF64(v []float64) {
	switch {
	case tier >= avx512:
		n := len(v) &^ 7
		expDoublesAVX512(v[:n], &expDoubles)
		v = v[n:]
	case tier >= avx2:
		n := len(v) &^ 3
		expDoublesAVX2(v[:n], &expDoubles)
		v = v[n:]
	case tier == wasm:
		n := len(v) &^ 7
		expDoublesVec(v[:n])
		v = v[n:]
	}
	for i, x := range v {
		v[i] = ExpF64(x)
	}
}

// Numbers of ExpF64.
const (
	ln2High64 = 0x1.62e42feep-01      // ln 2 in 32 bits: its products with exponents are exact
	ln2Low64  = 0x1.a39ef35793c76p-33 // the rest of ln 2
	minExp64  = -708.0                // e^x is subnormal a little below
	maxExp64  = 709.0                 // e^x is infinite a little above
	expTerms  = 14                    // of the Taylor series: |r| <= ln 2 / 2 leaves 5e-18
)

// expDoubles holds the numbers of ExpF64 for kernels: adding 1.5 * 2^52 to an integer leaves its bits in the lowest
// places, and the last ones are 1/13!, 1/12! and so on to 1/0!.
var expDoubles = [9 + expTerms]float64{
	math.Log2E, ln2High64, ln2Low64, minExp64, maxExp64, 0x1.8p52, 1023 * 0x1p-1074, math.Inf(1), 0.5,
	1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720,
	1. / 120, 1. / 24, 1. / 6, 1. / 2, 1, 1,
}

// ExpF64 returns e^x within 2 ulp, 0 below -708, infinity above 709, and NaN for NaN. math.Exp differs between
// architectures. With k = floor(x*log2(e) + 1/2) and r = x - k*ln 2, whose second half is subtracted last, the result
// is 2^k times a polynomial of r. All products are rounded.
func ExpF64(x float64) float64 {
	switch {
	case x != x:
		return x
	case x < minExp64:
		return 0
	case x > maxExp64:
		return math.Inf(1)
	}
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(k*ln2High64) - float64(k*ln2Low64)
	series := expDoubles[len(expDoubles)-expTerms:]
	p := series[0]
	for _, c := range series[1:] {
		p = float64(p*r) + c
	}
	return float64(p * math.Float64frombits(uint64(int64(k)+1023)<<52))
}
