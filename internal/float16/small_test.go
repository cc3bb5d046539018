package float16

import (
	"math"
	"testing"
)

// TestSmall checks every code of the small floats against the formats' definitions.
func TestSmall(t *testing.T) {
	float := func(code, exp, mantissa, bias int) float64 {
		e, m := code>>mantissa&(1<<exp-1), float64(code&(1<<mantissa-1))/float64(int(1)<<mantissa)
		v := math.Ldexp(1+m, e-bias)
		if e == 0 {
			v = math.Ldexp(m, 1-bias)
		}
		if code>>(exp+mantissa)&1 == 1 {
			v = -v
		}
		return v
	}
	for b := range 256 {
		e4m3, e5m2, e8m0 := float(b, 4, 3, 7), float(b, 5, 2, 15), math.Ldexp(1, b-127)
		switch {
		case b&0x7f == 0x7f:
			e4m3, e5m2 = math.NaN(), math.NaN()
		case b&0x7f > 0x7c:
			e5m2 = math.NaN()
		case b&0x7f == 0x7c:
			e5m2 = math.Copysign(math.Inf(1), e5m2)
		}
		if b == 255 {
			e8m0 = math.NaN()
		}
		for name, v := range map[string][2]float64{"E4M3": {float64(E4M3(byte(b))), e4m3}, "E5M2": {float64(E5M2(byte(b))), e5m2},
			"E8M0": {float64(E8M0(byte(b))), e8m0}, "E2M1": {float64(E2M1(byte(b & 15))), float(b&15, 2, 1, 1)}} {
			if v[0] != v[1] && v[1] == v[1] || (v[0] == v[0]) != (v[1] == v[1]) || math.Signbit(v[0]) != math.Signbit(v[1]) && v[1] == 0 {
				t.Errorf("%s of %#02x is %v, want %v", name, b, v[0], v[1])
			}
		}
	}
}
