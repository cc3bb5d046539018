package lab

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

var nan, inf = math.NaN(), math.Inf(1)

// near reports whether got is within a relative 1e-12 of want; NaN is near NaN.
func near(got, want float64) bool {
	return got == want || math.Abs(got-want) <= 1e-12*math.Abs(want) || math.IsNaN(got) && math.IsNaN(want)
}

func TestAbsDiff(t *testing.T) {
	for _, c := range []struct {
		g, r          []float64
		largest, mean float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{1, 2.5, 2, 4}, 1, 0.375},
		{[]float64{1, -inf}, []float64{2, -inf}, 1, 0.5},
		{[]float64{1, -inf}, []float64{1, 0}, inf, inf},
		{[]float64{1, inf}, []float64{1, -inf}, inf, inf},
		{[]float64{nan, 1}, []float64{nan, 5}, nan, nan},
		{[]float64{5, 1}, []float64{0, nan}, nan, nan},
	} {
		if largest, mean := AbsDiff(c.g, c.r); !near(largest, c.largest) || !near(mean, c.mean) {
			t.Errorf("AbsDiff(%v, %v) = %v, %v; want %v, %v", c.g, c.r, largest, mean, c.largest, c.mean)
		}
	}
}

func TestCosineAndRelativeL2(t *testing.T) {
	for _, c := range []struct {
		g, r     []float64
		cos, rel float64
	}{
		{[]float64{3, 4}, []float64{3, 4}, 1, 0},
		{[]float64{3, 4}, []float64{-3, -4}, -1, 2},
		{[]float64{3, 4}, []float64{4, -3}, 0, math.Sqrt2},
		{[]float64{3, 4}, []float64{6, 8}, 1, 1},
		{[]float64{3, 4}, []float64{3, 4.5}, 27 / (5 * math.Sqrt(29.25)), 0.1},
		{[]float64{0, 0}, []float64{0, 0}, 1, 0},
		{[]float64{0, 0}, []float64{3, 4}, 0, inf},
		{[]float64{3, 4}, []float64{0, 0}, 0, 1},
		{[]float64{3, 4}, []float64{3, nan}, nan, nan},
		{[]float64{nan, 4}, []float64{nan, 4}, nan, nan},
		{[]float64{0, 0}, []float64{0, nan}, nan, nan},
		{[]float64{0, nan}, []float64{0, 0}, nan, nan},
	} {
		if got := Cosine(c.g, c.r); !near(got, c.cos) {
			t.Errorf("Cosine(%v, %v) = %v, want %v", c.g, c.r, got, c.cos)
		}
		if got := RelativeL2(c.g, c.r); !near(got, c.rel) {
			t.Errorf("RelativeL2(%v, %v) = %v, want %v", c.g, c.r, got, c.rel)
		}
	}
}

// logs is the logits of given probabilities, shifted: softmax does not see it.
func logs(shift float64, p ...float64) []float64 {
	x := make([]float64, len(p))
	for i := range p {
		x[i] = math.Log(p[i]) + shift
	}
	return x
}

func TestKLAndEntropy(t *testing.T) {
	ln := math.Log
	for _, c := range []struct {
		g, r        []float64
		kl, entropy float64 // of g
	}{
		{logs(0, 0.5, 0.25, 0.25), logs(7, 0.5, 0.25, 0.25), 0, 1.5 * math.Ln2},
		{logs(0, 0.5, 0.25, 0.25), logs(-3, 0.25, 0.5, 0.25), 0.25 * math.Ln2, 1.5 * math.Ln2},
		{logs(0, 0.9, 0.1), logs(0, 0.1, 0.9), 0.8 * ln(9), -0.9*ln(0.9) - 0.1*ln(0.1)},
		{logs(0, 0.5, 0.5, 0), logs(0, 0.25, 0.25, 0.5), math.Ln2, math.Ln2},
		{logs(0, 0.5, 0.5, 0), logs(0, 0.5, 0.5, 0), 0, math.Ln2},
		{logs(0, 0.5, 0.5), logs(0, 1, 0), inf, math.Ln2},
		{[]float64{1000, 0}, []float64{0, 1000}, 1000, 0},
		{[]float64{1, nan}, []float64{1, 2}, nan, nan},
		{[]float64{1, 2}, []float64{1, nan}, nan, -ln(1/(1+math.E))/(1+math.E) - ln(math.E/(1+math.E))*math.E/(1+math.E)},
		{[]float64{-inf, -inf}, []float64{1, 2}, nan, nan},
		{[]float64{inf, 0}, []float64{1, 2}, nan, nan},
	} {
		if got := KL(c.g, c.r); !near(got, c.kl) && math.Abs(got-c.kl) > 1e-15 {
			t.Errorf("KL(%v, %v) = %v, want %v", c.g, c.r, got, c.kl)
		}
		if got := Entropy(c.g); !near(got, c.entropy) && math.Abs(got-c.entropy) > 1e-15 {
			t.Errorf("Entropy(%v) = %v, want %v", c.g, got, c.entropy)
		}
	}
}

// TestSmallKL checks divergences below the rounding of log-probabilities. For
// logits x of n equal tokens and x + e on one, KL is ln(n-1+e^e) - ln n - e/n.
func TestSmallKL(t *testing.T) {
	for _, e := range []float64{1e-3, 1e-6, 1e-8} {
		g, r := make([]float64, 1024), make([]float64, 1024)
		r[5] = e
		// ln(1+y) - e/n with y = (e^e - 1)/n, by their series in big.Float
		f := func(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }
		mul := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(300).Mul(a, b) }
		quo := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(300).Quo(a, b) }
		expm1, term := f(0), f(1)
		for i := 1.0; i < 30; i++ {
			term = quo(mul(term, f(e)), f(i))
			expm1.Add(expm1, term)
		}
		y := quo(expm1, f(1024))
		sum, power := f(0), f(-1)
		for i := 1.0; i < 30; i++ {
			power = mul(power, new(big.Float).Neg(y))
			sum.Add(sum, quo(power, f(i)))
		}
		want, _ := sum.Sub(sum, quo(f(e), f(1024))).Float64()
		if got := KL(g, r); math.Abs(got-want) > 1e-6*want {
			t.Errorf("e = %v: KL = %v, want %v", e, got, want)
		}
	}
}

func TestTopIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		x := make([]float32, 1+r.IntN(50))
		for i := range x {
			x[i] = float32(r.IntN(10)) // with ties
		}
		want := make([]int, len(x))
		for i := range want {
			want[i] = i
		}
		slices.SortStableFunc(want, func(a, b int) int { return int(x[b] - x[a]) })
		for k := 1; k <= 10; k++ {
			if got := TopIDs(x, k); !slices.Equal(got, want[:min(k, len(x))]) {
				t.Fatalf("TopIDs(%v, %d) = %v, want %v", x, k, got, want)
			}
		}
	}
}

func TestOverlap(t *testing.T) {
	g := []float64{9, 8, 7, 6, 5, 4, 3}
	for _, c := range []struct {
		r    []float64
		k    int
		want float64
	}{
		{[]float64{9, 8, 7, 6, 5, 4, 3}, 5, 1},
		{[]float64{8, 9, 7, 6, 5, 4, 3}, 1, 0},
		{[]float64{8, 9, 7, 6, 5, 4, 3}, 5, 1},
		{[]float64{9, 8, 7, 1, 1, 4, 3}, 5, 0.6},
		{[]float64{3, 4, 5, 6, 7, 8, 9}, 10, 1},
		{[]float64{9, nan, 7, 6, 5, 4, 3}, 1, nan},
		{[]float64{9, 8, 7, 6, 5, 4, nan}, 1, nan},
	} {
		if got := Overlap(g, c.r, c.k); !near(got, c.want) {
			t.Errorf("Overlap(%v, %v, %d) = %v, want %v", g, c.r, c.k, got, c.want)
		}
	}
	if got := Overlap([]float64{nan}, []float64{1}, 1); !math.IsNaN(got) {
		t.Errorf("Overlap of NaN = %v", got)
	}
}
