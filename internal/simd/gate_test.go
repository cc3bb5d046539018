package simd

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// curves are the activations in float64.
var curves = map[Curve]func(float64) float64{
	SiluCurve: func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	GeluCurve: func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	},
	GeluErfCurve: func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) },
	SquareCurve:  func(x float64) float64 { return max(x, 0) * max(x, 0) },
	SigmoidCurve: func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	TanhCurve:    math.Tanh,
}

// TestCurves bounds the error at all exponents, relative where the value exceeds 1.
func TestCurves(t *testing.T) {
	for c, f := range curves {
		x, want := exactly(f) // which takes longer than the curve, at each tier
		eachTier(t, func(t *testing.T) { testCurve(t, c, x, want) })
	}
	eachTier(t, testCurveEnds)
}

// exactly is f of every number of its domain that tests look at.
func exactly(f func(float64) float64) (x []float32, want []float64) {
	every(func(v float32) { x, want = append(x, v), append(want, f(float64(v))) })
	return x, want
}

func testCurve(t *testing.T, c Curve, x []float32, want []float64) {
	y := make([]float32, len(x))
	c.Apply(y, x)
	worst := 0.0
	for i, v := range x {
		w := want[i]
		if w > math.MaxFloat32 {
			if y[i] != inf {
				t.Fatalf("curve %d of %v is %v, want +Inf", c, v, y[i])
			}
			continue
		}
		d := math.Abs(float64(y[i])-w) / max(1, math.Abs(w))
		if worst = max(worst, d); !(d <= 3e-7) {
			t.Fatalf("curve %d of %v is %v, want %v", c, v, y[i], w)
		}
	}
	t.Logf("curve %d: at most %.2g", c, worst)
	in := make([]float32, len(x))
	copy(in, x)
	c.Apply(in, in)
	equal(t, fmt.Sprintf("curve %d in place", c), in, y)
}

func testCurveEnds(t *testing.T) {
	tail := []float32{-1, -3, -6, -9}
	got := make([]float32, len(tail))
	geluErf(got, tail)
	for i, v := range tail {
		if w := curves[GeluErfCurve](float64(v)); math.Abs(float64(got[i])/w-1) > 4e-6 {
			t.Errorf("geluErf(%v) = %v, want %v", v, got[i], w)
		}
	}
	for c, want := range map[Curve][]float32{SigmoidCurve: {1, 0, nan}, SquareCurve: {inf, 0, nan}, GeluErfCurve: {inf, nan, nan}, TanhCurve: {1, -1, nan}} {
		c.Apply(got[:3], []float32{inf, -inf, nan})
		equal(t, fmt.Sprintf("curve %d of specials", c), got[:3], want)
	}
}

// TestGate compares a gate with its contract, of lengths around a chunk and in place.
func TestGate(t *testing.T) { eachTier(t, testGate) }

func testGate(t *testing.T) {
	r := rng(21)
	for _, n := range []int{1, 15, 64, 65, 200} {
		gate, up := values(r, n), values(r, n)
		for i := range gate {
			gate[i], up[i] = gate[i]*8, up[i]*8
		}
		gate[0], up[n-1] = 0, nan
		for c, curve := range curves {
			for _, g := range []Gate{{Curve: c}, {Curve: c, Limit: 7}, {Curve: c, Limit: 7, Plus: 1, Alpha: 1.702}} {
				dst := make([]float32, n)
				g.Apply(dst, gate, up)
				for i, v := range dst {
					a, u, alpha := float64(gate[i]), float64(up[i]), 1.0
					if g.Limit > 0 {
						a, u = min(a, 7), max(-7, min(u, 7))
					}
					if g.Alpha > 0 {
						alpha = float64(g.Alpha)
					}
					w := curve(a*alpha) / alpha * (u + float64(g.Plus))
					if i == n-1 {
						w = math.NaN()
					}
					if d := math.Abs(float64(v) - w); !(d <= 3e-6*max(1, math.Abs(w))) && !(w != w && v != v) {
						t.Fatalf("%+v of %v and %v is %v, want %v", g, gate[i], up[i], v, w)
					}
				}
				a, b := slices.Clone(gate), slices.Clone(up)
				g.Apply(a, a, up)
				g.Apply(b, gate, b)
				equal(t, fmt.Sprintf("%+v over the gate", g), a, dst)
				equal(t, fmt.Sprintf("%+v over up", g), b, dst)
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		var x [100]float32
		Gate{Curve: GeluErfCurve, Limit: 7}.Apply(x[:], x[:], x[:])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
