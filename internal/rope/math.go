package rope

import "math"

// pow returns x^y for x ≥ 1 and y in [0, 1], within 2^-51 of the exact value:
// e^(y·ln x) with the logarithm and its product held as sums of two float64.
//
// Like sincos, it uses only operations that IEEE 754 defines to the bit. The functions of package math differ between
// architectures, and a compiler may fuse x*y+z unless the product is converted; hence the spelling.
func pow(x, y float64) float64 {
	hi, lo := log2(x)
	p := float64(y * hi)
	q := math.FMA(y, hi, -p) + float64(y*lo) // y·log2(x) is p+q
	n := math.RoundToEven(p)
	// e^r is a power series; |r| ≤ ln(2)/2, where 15 terms reach 2^-61.
	r := float64((float64(p-n) + q) * math.Ln2)
	s := 1.0
	for k := 15; k >= 1; k-- {
		s = 1 + float64(float64(s*r)/float64(k))
	}
	return math.Ldexp(s, int(n))
}

// log2 returns the base-2 logarithm of x as hi+lo, for normal x > 0.
func log2(x float64) (hi, lo float64) {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	// ln(m) = 2(s + s³/3 + s⁵/5 + ...), s = (m-1)/(m+1), |s| < 0.172
	num, den := m-1, m+1
	denLo := m - (den - 1) // den+denLo is m+1
	s := num / den
	sLo := float64(math.FMA(-s, den, num)-float64(s*denLo)) / den
	z := float64(s * s)
	t := 0.0
	for k := 27; k >= 3; k -= 2 {
		t = float64(t*z) + 1/float64(k)
	}
	tail := float64(float64(float64(s*z)*t) + sLo) // s+tail is ln(m)/2

	// times 2/ln(2), itself a sum of two, plus e
	const c, cLo = 0x1.71547652b82fep+1, 2/math.Ln2 - 0x1.71547652b82fep+1
	p := float64(s * c)
	pLo := math.FMA(s, c, -p) + float64(float64(s*cLo)+float64(tail*c))
	hi = float64(e) + p
	lo = float64(p-(hi-float64(e))) + pLo
	return hi, lo
}

// sinTerms and cosTerms are Taylor's: (-1)^k/(2k+1)! and (-1)^k/(2k)! from
// k = 9 down to 1. For |x| ≤ pi/4 the next terms are below 2^-71.
var (
	sinTerms = [9]float64{-1.0 / 121645100408832000, 1.0 / 355687428096000, -1.0 / 1307674368000,
		1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}
	cosTerms = [9]float64{-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200,
		1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2}
)

// sincos returns the sine and cosine of x, within 2^-51 of the exact values for float32 numbers |x| < 2^30.
func sincos(x float64) (sin, cos float64) {
	// pi/2 in three parts. The first has 33 bits, so that k*part1 is exact and
	// so is the difference from a float32 number.
	const part1, part2, part3 = 0x1.921fb544p+0, 0x1.0b4611a626331p-34, 0x1.1701b839a252p-88
	k := math.RoundToEven(float64(x * (2 / math.Pi)))
	r := math.FMA(-k, part3, math.FMA(-k, part2, math.FMA(-k, part1, x)))

	z := float64(r * r)
	var p, q float64
	for i := range sinTerms {
		p, q = math.FMA(p, z, sinTerms[i]), math.FMA(q, z, cosTerms[i])
	}
	s, c := math.FMA(float64(r*z), p, r), math.FMA(z, q, 1)
	switch int64(k) & 3 {
	case 1:
		return c, -s
	case 2:
		return -s, -c
	case 3:
		return -c, s
	}
	return s, c
}

// Exp returns e^x, within 2^-42 of the exact value; 0 and +Inf beyond float32, and NaN for NaN.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x < -120:
		return 0
	case x > 100:
		return math.Inf(1)
	}
	return pow(math.E, x)
}

// Ln returns the natural logarithm of x, for normal x > 0; NaN for others.
func Ln(x float64) float64 {
	if !(x > 0 && x <= math.MaxFloat64) {
		return math.NaN()
	}
	return ln(x)
}

// ln returns the natural logarithm of x, for normal x > 0.
func ln(x float64) float64 {
	hi, lo := log2(x)
	return float64(float64(hi+lo) * math.Ln2)
}

// Temperature returns 1 + beta·log(1 + floor((pos + shift)/every)), the factor of queries in long contexts, the same on
// every machine. It expects every ≥ 1. (transformers' modeling_llama4.py, with shift 1, and modeling_ministral3.py,
// with 0; Nakanishi 2025, arXiv:2501.19399)
func Temperature(pos int, beta float64, every, shift int) float64 {
	return 1 + float64(beta*ln(float64(1+(pos+shift)/every)))
}
