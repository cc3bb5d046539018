package simd

import (
	"math"
	"testing"
)

// TestSoftplus wants all of float32's range near the exact value, and no NaN but for NaN.
func TestSoftplus(t *testing.T) {
	worst := 0.0
	for x := -110.0; x < 110; x += 0.00317 {
		x := float32(x)
		want := max(float64(x), 0) + math.Log1p(math.Exp(-math.Abs(float64(x))))
		got := float64(softplus(x))
		if want < 1e-37 { // subnormal
			if math.Abs(got-want) > 1e-43 {
				t.Errorf("softplus(%v) = %v, want %v", x, got, want)
			}
			continue
		}
		worst = max(worst, math.Abs(got-want)/want)
	}
	if !(worst <= 4*0x1p-24) {
		t.Errorf("relative error %.3g", worst)
	}
	inf := float32(math.Inf(1))
	if y := softplus(float32(math.NaN())); y == y || softplus(inf) != inf || softplus(-inf) != 0 {
		t.Error("NaN or an infinity")
	}
	t.Logf("relative error at most %.3g", worst)
}
