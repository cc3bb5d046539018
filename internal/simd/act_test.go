package simd

import (
	"math"
	"testing"
)

// ulps is the distance of got from want in units of want's last place.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// every calls f for finite numbers of all exponents and both signs.
func every(f func(x float32)) {
	step := uint64(2003)
	if testing.Short() { // under an emulator
		step = 24029
	}
	for b := uint64(0); b < 1<<32; b += step {
		if x := math.Float32frombits(uint32(b)); x-x == 0 {
			f(x)
		}
	}
}

// TestExp bounds the error at all exponents: over every 61st of the float32
// numbers the worst was 0.873 ulp.
func TestExp(t *testing.T) {
	every(func(x float32) {
		got, want := Exp(x), math.Exp(float64(x))
		if want >= 0x1.ffffffp127 { // rounds beyond the largest float32
			if got != inf {
				t.Fatalf("Exp(%v) = %v, want +Inf", x, got)
			}
			return
		}
		if u := ulps(got, want); !(u <= 0.9) {
			t.Fatalf("Exp(%v) = %v, want %v: %.3f ulp", x, got, want, u)
		}
	})
}

func TestExpEdges(t *testing.T) {
	for _, c := range [][2]float32{
		{0, 1}, {float32(math.Copysign(0, -1)), 1}, {1e-30, 1}, {-1e-45, 1}, {inf, inf}, {-inf, 0}, {nan, nan}, {1e30, inf}, {-1e30, 0},
		{88.72283, 0x1.ffff08p127}, {88.72284, inf}, {-103.27893, 0x1p-149}, {-103.97207, 0x1p-149}, {-103.97209, 0},
	} {
		if got := Exp(c[0]); !same(got, c[1]) {
			t.Errorf("Exp(%v) = %x, want %x (%x)", c[0], got, c[1], math.Exp(float64(c[0])))
		}
	}
}

// TestTanh: over every 61st of the float32 numbers the worst was 1.348 ulp.
func TestTanh(t *testing.T) {
	every(func(x float32) {
		got, want := tanh(x), math.Tanh(float64(x))
		if u := ulps(got, want); !(u <= 1.4) || got != -tanh(-x) {
			t.Fatalf("tanh(%v) = %v, want %v: %.3f ulp", x, got, want, u)
		}
	})
	minus := float32(math.Copysign(0, -1))
	for _, c := range [][2]float32{{0, 0}, {minus, minus}, {inf, 1}, {-inf, -1}, {nan, nan}, {20, 1}, {1e-45, 1e-45}, {-3e38, -1}} {
		if got := tanh(c[0]); !same(got, c[1]) {
			t.Errorf("tanh(%v) = %v, want %v", c[0], got, c[1])
		}
	}
}

// TestActivations: over every 61st of the float32 numbers, the largest error
// was 1.2e-7 (silu) and 1.4e-7 (gelu), relative where the value exceeds 1.
func TestActivations(t *testing.T) {
	exactSilu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	exactGelu := func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	for name, c := range map[string]struct {
		activation
		want func(float64) float64
	}{"silu": {activation{silu, SwiGLU}, exactSilu}, "gelu": {activation{gelu, GeGLU}, exactGelu}} {
		x, want := exactly(c.want)
		eachTier(t, func(t *testing.T) { testActivation(t, name, c.activation, x, want) })
	}
}

// activation is a function, alone and as a gate.
type activation struct {
	act func(dst, x []float32)
	glu func(dst, gate, up []float32)
}

func testActivation(t *testing.T, name string, c activation, all []float32, wants []float64) {
	var y, g [1]float32
	for i, x := range all {
		c.act(y[:], all[i:i+1])
		want := wants[i]
		if d := math.Abs(float64(y[0])-want) / max(1, math.Abs(want)); !(d <= 1.5e-7) {
			t.Fatalf("%s(%v) = %v, want %v", name, x, y[0], want)
		}
		c.glu(g[:], all[i:i+1], []float32{-3})
		if !same(g[0], float32(y[0]*-3)) {
			t.Fatalf("gated %s(%v) = %v, want %v", name, x, g[0], y[0]*-3)
		}
	}
	in := []float32{0, inf, -inf, nan, 1e-40, 100, -80}
	out := make([]float32, len(in))
	c.act(out, in)
	equal(t, name, out[:6], []float32{0, inf, nan, nan, 5e-41, 100})
	if !(out[6] <= 0 && out[6] > -1e-30) {
		t.Errorf("%s(-80) = %v", name, out[6])
	}
}

func TestSoftcap(t *testing.T) { eachTier(t, testSoftcap) }

func testSoftcap(t *testing.T) {
	x := values(rng(8), 100)
	for i := range x {
		x[i] *= 50
	}
	y := make([]float32, len(x))
	Softcap(y, x, 30)
	for i, v := range x {
		if want := 30 * math.Tanh(float64(v)/30); math.Abs(float64(y[i])-want) > 6e-6 {
			t.Errorf("%v becomes %v, want %v", v, y[i], want)
		}
	}
	Softcap(x, x, 30)
	equal(t, "in place", x, y)
	Softcap(y[:3], []float32{inf, -inf, nan}, 30)
	equal(t, "specials", y[:3], []float32{30, -30, nan})
}
