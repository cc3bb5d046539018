package sample

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// ulps is the distance of a and b in units of the last place of b.
func ulps(a, b float64) float64 {
	return math.Abs(a-b) / (math.Nextafter(math.Abs(b), math.Inf(1)) - math.Abs(b))
}

func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		x := -708 + 1417*r.Float64()
		if u := ulps(exp(x), math.Exp(x)); u > 2 { // math.Exp is within 1
			t.Fatalf("exp(%v) = %v, math.Exp = %v: %v ulp", x, exp(x), math.Exp(x), u)
		}
	}
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {math.Inf(-1), 0}, {math.Inf(1), math.Inf(1)}, {-1e300, 0}, {1e300, math.Inf(1)},
		{math.Ln2, 2}, {5e-324, 1},
	} {
		if got := exp(c.x); got != c.want {
			t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if !math.IsNaN(exp(math.NaN())) {
		t.Error("exp(NaN) is a number")
	}
}

func TestLog(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 50_000 {
		x := math.Exp(-700 + 1400*r.Float64())
		if want := math.Log(x); ulps(log(x), want) > 3 && math.Abs(log(x)-want) > 2e-16 {
			t.Fatalf("log(%v) = %v, math.Log = %v", x, log(x), want)
		}
	}
	if log(1) != 0 || log(2) != math.Ln2 {
		t.Errorf("log(1) = %v, log(2) = %v", log(1), log(2))
	}
}

// TestExpRoundsEachStep does exp's arithmetic in big.Float with 53 bits, where nothing can
// be fused: a compiler that fused a product with an addition would give other bits.
func TestExpRoundsEachStep(t *testing.T) {
	num := func(x float64) *big.Float { return new(big.Float).SetPrec(53).SetFloat64(x) }
	mul := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(53).Mul(a, b) }
	add := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(53).Add(a, b) }
	r := rand.New(rand.NewPCG(8, 9))
	for range 5000 {
		x := -60 * r.Float64()
		whole, _ := add(mul(num(x), num(math.Log2E)), num(0.5)).Float64()
		k := num(math.Floor(whole))
		rest := add(num(x), mul(k, num(-ln2High)))
		rest = add(rest, mul(k, num(-ln2Low)))
		p := num(inverseFactorial[taylor])
		for i := taylor - 1; i >= 0; i-- {
			p = add(mul(p, rest), num(inverseFactorial[i]))
		}
		want, _ := p.Float64()
		if got := exp(x); got != math.Ldexp(want, int(math.Floor(whole))) {
			t.Fatalf("exp(%v) = %x, step by step %x", x, got, want)
		}
	}
}

func BenchmarkExp(b *testing.B) {
	sum := 0.0
	for i := 0; b.Loop(); i++ {
		sum += exp(-float64(i&63) / 8)
	}
	_ = sum
}
