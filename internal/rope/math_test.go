package rope

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const prec = 200

func bigf(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

// bigTaylor is the Taylor series of the sine of r if shift is 1, of the cosine
// if it is 0.
func bigTaylor(r *big.Float, shift int) *big.Float {
	z := new(big.Float).Mul(r, r)
	term, sum := bigf(1), bigf(0)
	if shift == 1 {
		term.Set(r)
	}
	for i := shift + 1; i < 60; i += 2 {
		sum.Add(sum, term)
		term.Mul(term, z)
		term.Quo(term, bigf(-float64(i*(i+1))))
	}
	return sum
}

func bigSincos(x float64) (sin, cos float64) {
	halfPi, _, _ := big.ParseFloat("1.5707963267948966192313216916397514420985846996875529104874722961539082", 10, prec, big.ToNearestEven)
	k := math.Round(x / (math.Pi / 2))
	r := bigf(x)
	r.Sub(r, new(big.Float).Mul(bigf(k), halfPi))
	s, _ := bigTaylor(r, 1).Float64()
	c, _ := bigTaylor(r, 0).Float64()
	switch int64(k) & 3 {
	case 1:
		return c, -s
	case 2:
		return -s, -c
	case 3:
		return -c, s
	}
	return s, c
}

func relErr(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }

// TestSincosExact compares with 200-bit arithmetic, near multiples of pi/2 too.
func TestSincosExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var worst float64
	for i := range 40000 {
		x := math.Ldexp(r.Float64(), i%50-20) // to 2^30
		if i%2 == 0 {
			x = math.Round(x) * (math.Pi / 2)
		}
		x = float64(float32(x))
		if x == 0 {
			continue
		}
		s, c := sincos(x)
		ws, wc := bigSincos(x)
		worst = max(worst, relErr(s, ws), relErr(c, wc))
		if float32(s) != float32(ws) || float32(c) != float32(wc) {
			t.Errorf("sincos(%v) = %v, %v, want %v, %v", x, s, c, ws, wc)
		}
	}
	if worst > 0x1p-51 {
		t.Errorf("relative error %v", worst)
	}
	t.Logf("largest relative error %.3g", worst)
}

// TestSincosMany compares with math.Sincos after rounding to float32, at the
// angles of real tables and at others up to 2^20; where they differ, 200-bit
// arithmetic decides.
func TestSincosMany(t *testing.T) {
	check := func(x float64) {
		s, c := sincos(x)
		ws, wc := math.Sincos(x)
		if float32(s) != float32(ws) || float32(c) != float32(wc) {
			if bs, bc := bigSincos(x); float32(s) != float32(bs) || float32(c) != float32(bc) {
				t.Errorf("sincos(%v) = %v, %v, want %v, %v", x, s, c, bs, bc)
			}
		}
	}
	for _, base := range []float64{1e4, 5e5, 1e6, 1e7} {
		for _, f := range New(base, 128) {
			for pos := 0; pos < 1<<20; pos = pos*129/128 + 1 {
				check(round(float64(pos) * f))
			}
		}
	}
	r := rand.New(rand.NewPCG(2, 2))
	for range 1000000 {
		check(round(r.Float64() * (1 << 20)))
	}
}

// TestPow compares with the definition in 200-bit arithmetic: e^(y ln x).
func TestPow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var worst float64
	for i := range 3000 {
		x := []float64{1e4, 5e5, 1e6, 1e7, 1e30, 1 + r.Float64(), 1 + 1e6*r.Float64()}[i%7]
		y := round(r.Float64())
		want, _ := bigExp(new(big.Float).Mul(bigLog(x), bigf(y))).Float64()
		got := pow(x, y)
		worst = max(worst, relErr(got, want))
		if float32(got) != float32(want) {
			t.Errorf("pow(%v, %v) = %v, want %v", x, y, got, want)
		}
	}
	if worst > 0x1p-51 {
		t.Errorf("relative error %v", worst)
	}
	t.Logf("largest relative error %.3g", worst)
}

// bigExp is (e^(x/2^20))^(2^20) by its series.
func bigExp(x *big.Float) *big.Float {
	x = new(big.Float).SetMantExp(x, -20)
	term, sum := bigf(1), bigf(1)
	for i := 1; i < 20; i++ {
		term.Mul(term, x)
		term.Quo(term, bigf(float64(i)))
		sum.Add(sum, term)
	}
	for range 20 {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog is the root of e^y = x by Newton's method.
func bigLog(x float64) *big.Float {
	y := bigf(math.Log(x))
	for range 3 {
		e := bigExp(new(big.Float).Neg(y))
		y.Add(y, e.Mul(e, bigf(x)).Sub(e, bigf(1)))
	}
	return y
}

func BenchmarkRow(b *testing.B) {
	f := New(1e6, 128)
	for b.Loop() {
		NewTable(f, 0).Row(1023)
	}
}
