package simd

import (
	"math"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got []float32, want []float64, rel, abs float64) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= rel*math.Abs(w)+abs) {
			t.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], w)
		}
	}
}

func TestRMSNorm(t *testing.T) { eachTier(t, testRMSNorm) }

func testRMSNorm(t *testing.T) {
	r := rng(9)
	for _, n := range sizes[1:] {
		for _, offset := range []float32{0, 1} {
			x, w, eps := values(r, n), values(r, n), float32(1e-6)
			var ss float64
			for _, v := range x {
				ss += float64(v) * float64(v)
			}
			rms := math.Sqrt(ss/float64(n) + float64(eps))
			plain, weighted := make([]float64, n), make([]float64, n)
			for i, v := range x {
				plain[i] = float64(v) / rms
				weighted[i] = plain[i] * float64(offset+w[i])
			}
			got := make([]float32, n)
			RMSNorm(got, x, w, offset, eps)
			near(t, "weighted", got, weighted, 1e-6, 0)
			RMSNorm(got, x, nil, offset, eps)
			near(t, "plain", got, plain, 1e-6, 0)
			y := slices.Clone(x)
			RMSNorm(y, y, nil, offset, eps)
			equal(t, "in place", y, got)
		}
	}
	got := make([]float32, 3)
	RMSNorm(got, []float32{1, nan, 2}, nil, 0, 1e-6)
	equal(t, "NaN", got, []float32{nan, nan, nan})
	RMSNorm(got, []float32{0, 0, 0}, nil, 0, 1e-6)
	equal(t, "zeros", got, []float32{0, 0, 0})
	RMSNorm(got, []float32{3, 3, -3}, []float32{2, 1, 0.5}, 0, 0)
	equal(t, "exact", got, []float32{2, 1, -0.5})
}

func TestRotate(t *testing.T) { eachTier(t, testRotate) }

func testRotate(t *testing.T) {
	r := rng(10)
	for _, dim := range []int{2, 32, 64, 96, 256} {
		for _, pairs := range []int{0, dim / 4, dim / 2} {
			x, want := values(r, dim), make([]float64, dim)
			cos, sin := make([]float32, pairs), make([]float32, pairs)
			for i, v := range x {
				want[i] = float64(v)
			}
			y := slices.Clone(x)
			for i := range pairs {
				s, c := math.Sincos(float64(i) * 0.7)
				cos[i], sin[i] = float32(c), float32(s)
				a, b := float64(x[i]), float64(x[i+dim/2])
				want[i], want[i+dim/2] = a*c-b*s, b*c+a*s
				y[i] = bigFMA(x[i], cos[i], -float32(x[i+dim/2]*sin[i]))
				y[i+dim/2] = bigFMA(x[i+dim/2], cos[i], float32(x[i]*sin[i]))
			}
			Rotate(x, cos, sin)
			near(t, "turned", x, want, 0, 6e-7)
			equal(t, "turned", x, y)
		}
	}
}

func TestRotatePairs(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		r := rng(11)
		for _, pairs := range []int{0, 1, 16, 63, 64, 65, 200} {
			x, cos, sin := values(r, 2*pairs+3), values(r, pairs), values(r, pairs)
			halves := make([]float32, 2*pairs)
			for i := range pairs {
				halves[i], halves[pairs+i] = x[2*i], x[2*i+1]
			}
			Rotate(halves, cos, sin)
			want := slices.Clone(x)
			for i := range pairs {
				want[2*i], want[2*i+1] = halves[i], halves[pairs+i]
			}
			RotatePairs(x, cos, sin)
			equal(t, "neighbours", x, want)
		}
	})
}

// TestRotateMore: more angles than pairs do not turn what lies behind the head.
func TestRotateMore(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		var angles [2 * lanes]float32
		heads := slices.Repeat([]float32{1}, 4*lanes)
		panics(t, func() { Rotate(heads[:2*lanes], angles[:], angles[:]) })
		equal(t, "the next head", heads[2*lanes:], slices.Repeat([]float32{1}, 2*lanes))
	})
}

func TestElementwise(t *testing.T) { eachTier(t, testElementwise) }

func testElementwise(t *testing.T) {
	r := rng(11)
	for _, n := range sizes {
		a, b, s := anything(r, n, true), anything(r, n, true), float32(-1.7)
		got, want := make([]float32, n), make([]float32, n)
		for name, c := range map[string]struct {
			kernel func(dst []float32)
			one    func(a, b float32) float32
		}{
			"add":        {func(dst []float32) { Add(dst, a, b) }, func(a, b float32) float32 { return a + b }},
			"mul":        {func(dst []float32) { Mul(dst, a, b) }, func(a, b float32) float32 { return float32(a * b) }},
			"scale":      {func(dst []float32) { Scale(dst, a, s) }, func(a, b float32) float32 { return float32(a * s) }},
			"add scaled": {func(dst []float32) { copy(dst, b); AddScaled(dst, a, s) }, func(a, b float32) float32 { return bigFMA(a, s, b) }},
		} {
			c.kernel(got)
			for i := range want {
				want[i] = c.one(a[i], b[i])
			}
			equal(t, name, got, want)
		}
		copy(got, a)
		Add(got, got, b)
		for i := range want {
			want[i] = a[i] + b[i]
		}
		equal(t, "in place", got, want)
	}
}

func TestMax(t *testing.T) { eachTier(t, testMax) }

func testMax(t *testing.T) {
	minus := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		x    []float32
		want float32
	}{
		{nil, -inf}, {[]float32{-3, -1, -2}, -1}, {[]float32{1, inf, 2}, inf}, {[]float32{-inf, -inf}, -inf},
		{[]float32{minus, minus}, 0}, {[]float32{minus, 0, -1}, 0}, {[]float32{0, minus}, 0},
		{[]float32{nan, 1}, nan}, {[]float32{1, nan, inf}, nan}, {[]float32{-1e-45, -2}, -1e-45},
	} {
		if got := Maximum(c.x); !same(got, c.want) {
			t.Errorf("Maximum(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	r := rng(12)
	for _, n := range sizes[1:] {
		if x := anything(r, n, false); Maximum(x) != slices.Max(x) {
			t.Errorf("Maximum(%v) = %v", x, Maximum(x))
		}
	}
}

func TestSoftmax(t *testing.T) { eachTier(t, testSoftmax) }

func testSoftmax(t *testing.T) {
	r := rng(13)
	for _, n := range sizes[1:] {
		x := values(r, n)
		Scale(x, x, 10)
		want, sum := make([]float64, n), 0.0
		for i, v := range x {
			want[i] = math.Exp(float64(v))
			sum += want[i]
		}
		for i := range want {
			want[i] /= sum
		}
		got := make([]float32, n)
		Softmax(got, x)
		near(t, "softmax", got, want, 3e-6, 1e-40)
		Softmax(x, x)
		equal(t, "in place", x, got)
	}
	got := make([]float32, 3)
	Softmax(got, []float32{1e30, 1e30, -inf})
	equal(t, "large", got, []float32{0.5, 0.5, 0})
	Softmax(got, []float32{0, nan, 1})
	equal(t, "NaN", got, []float32{nan, nan, nan})
}

// TestSmallSums makes sums that rounding twice gets wrong among subnormal numbers: half a unit, and a speck that float64
// loses.
func TestSmallSums(t *testing.T) {
	const a, b = 0x1.000002p-75, 0x1.fffffcp-76
	eachTier(t, func(t *testing.T) {
		r := rng(3)
		for i := range 200 {
			var x, sums, want [2 * PanelRows]float32
			for j := range sums {
				sums[j] = float32(1+2*r.IntN(1<<22>>(i%16))) * 0x1p-149
				x[j] = a
				if r.IntN(2) == 0 {
					x[j], sums[j] = -a, -sums[j]
				}
				want[j] = fma32(x[j], b, sums[j])
			}
			w := Panel{Codes: make([]byte, UnitSize), Scale: make([]float32, PanelRows), Group: 32}
			acts := Acts{Q: make([]int16, 2*32), DX: []float32{a, a}}
			acts.Q[0], acts.Q[32] = 1, 1
			acc := sums
			for j := range w.Scale {
				w.Codes[4*j], w.Scale[j] = 1, b
				acc[j+PanelRows] = sums[j]
				if x[j] < 0 {
					w.Scale[j] = -b
				}
			}
			AddPanel(acc[:], &w, &acts)
			AddScaled(sums[:], x[:], b)
			equal(t, "scaled", sums[:], want[:])
			equal(t, "panel", acc[:], append(want[:PanelRows:PanelRows], want[:PanelRows]...))
		}
	})
}
