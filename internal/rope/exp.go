package rope

import "math"

// Exp is e^x, within 2^-42 of the exact value; 0 and +Inf beyond float32, and NaN for NaN.
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

// Ln is the natural logarithm of x, for normal x > 0; NaN for others.
func Ln(x float64) float64 {
	if !(x > 0 && x <= math.MaxFloat64) {
		return math.NaN()
	}
	return ln(x)
}
