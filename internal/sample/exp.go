package sample

import "math"

// exp and log replace math's, whose results differ between architectures. Every product is converted explicitly, to
// keep the compiler from fusing a multiplication with the next addition.

const (
	ln2High = 0x1.62e42feep-01      // ln 2 in 32 bits: its products with exponents are exact
	ln2Low  = 0x1.a39ef35793c76p-33 // the rest of ln 2
	minExp  = -708.0                // e^x is subnormal a little below
	maxExp  = 709.0                 // e^x is infinite a little above
	taylor  = 13                    // terms after 1: |r| <= ln 2 / 2 leaves 5e-18
)

// inverseFactorial[i] is 1/i!.
var inverseFactorial = [taylor + 1]float64{
	1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880,
	1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800,
}

// exp returns e^x within 2 ulp, 0 below -708, infinity above 709, and NaN for NaN.
func exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x < minExp:
		return 0
	case x > maxExp:
		return math.Inf(1)
	}
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(k*ln2High) - float64(k*ln2Low)
	p := inverseFactorial[taylor]
	for i := taylor - 1; i >= 0; i-- {
		p = float64(p*r) + inverseFactorial[i]
	}
	return float64(p * math.Float64frombits(uint64(int64(k)+1023)<<52))
}

// log returns the natural logarithm of a normal x > 0, to 2 ulp or 1e-16, by Halley's iteration on e^y = x: each step
// triples the correct digits.
func log(x float64) float64 {
	b := math.Float64bits(x)
	k := float64(int64(b>>52) - 1023)
	m := math.Float64frombits(b&(1<<52-1) | 1023<<52) // x = m * 2^k, 1 <= m < 2
	y := (m - 1) * math.Ln2
	for range 4 {
		e := exp(y)
		y += float64(2 * ((m - e) / (m + e)))
	}
	return float64(k*ln2High) + (float64(k*ln2Low) + y)
}
