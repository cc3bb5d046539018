package rope

import (
	"math"
	"testing"
)

// TestExp: Exp and Ln lie as near to package math's as they say, and hostile numbers have a value.
func TestExp(t *testing.T) {
	for x := -90.; x < 90; x += 0.37 {
		if got, want := Exp(x), math.Exp(x); math.Abs(got/want-1) > 0x1p-42 {
			t.Errorf("e^%v is %v, want %v", x, got, want)
		}
		if got := Ln(math.Exp(x)); math.Abs(got-x) > 1e-13 {
			t.Errorf("the logarithm of e^%v is %v", x, got)
		}
	}
	for x, want := range map[float64]float64{0: 1, math.Inf(-1): 0, -1e300: 0, 1e300: math.Inf(1), math.Inf(1): math.Inf(1)} {
		if got := Exp(x); got != want {
			t.Errorf("e^%v is %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got := Ln(x); got == got {
			t.Errorf("the logarithm of %v is %v", x, got)
		}
	}
	if got := Exp(math.NaN()); got == got {
		t.Errorf("e^NaN is %v", got)
	}
}
