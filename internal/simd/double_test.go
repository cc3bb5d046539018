package simd

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestDotsF64(t *testing.T) { eachTier(t, testDotsF64) }

// testDotsF64 compares products with the contract, one element at a time, for one to nine rows.
func testDotsF64(t *testing.T) {
	r := rng(17)
	for _, k := range sizes {
		if k == 0 {
			continue
		}
		for n := 1; n <= 9; n++ {
			rows := 1 + r.IntN(4)
			w, x := doubles(values(r, n*k)), doubles(values(r, rows*k))
			if n == 3 || n == 6 {
				w[r.IntN(len(w))], x[r.IntN(len(x))] = math.Inf(1), math.NaN()
			}
			stride := n + r.IntN(3)
			got := make([]float64, rows*stride)
			DotsF64(got, stride, w, x, k)
			for i := range got {
				want := 0.
				if i%stride < n {
					want = doublesByHand(w[i%stride*k:][:k], x[i/stride*k:][:k])
				}
				if math.Float64bits(got[i]) != math.Float64bits(want) && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
					t.Fatalf("%d elements, %d rows: %v at %d, want %v", k, n, got[i], i, want)
				}
			}
		}
	}
}

// doubles are float64 whose products are not exact.
func doubles(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) * (1 + 0x1p-40*float64(i))
	}
	return y
}

func doublesByHand(w, x []float64) float64 {
	var p [16]float64
	for k := range w {
		p[k%16] += float64(w[k] * x[k])
	}
	var q [8]float64
	for i := range q {
		q[i] = p[i] + p[i+8]
	}
	a, b, c, d := q[0]+q[4], q[1]+q[5], q[2]+q[6], q[3]+q[7]
	a, b = a+c, b+d
	return a + b
}

func TestExpsF64(t *testing.T) { eachTier(t, testExpsF64) }

// testExpsF64 compares with math.Exp, and each element with ExpF64: in the range, at its ends, and beyond.
func testExpsF64(t *testing.T) {
	r := rng(19)
	x := []float64{0, math.Copysign(0, -1), 1, -1, minExp64, math.Nextafter(minExp64, -1000), maxExp64,
		math.Nextafter(maxExp64, 1000), math.Inf(1), math.Inf(-1), math.NaN(), 0x1p-1074, -0x1p-60, 1e300, -1e300}
	for range 4096 {
		x = append(x, (r.Float64()*2-1)*720, -r.ExpFloat64()*9)
	}
	for _, n := range []int{0, 1, 3, 4, 7, 8, 9, 15, len(x)} {
		got := append([]float64(nil), x[len(x)-n:]...)
		ExpsF64(got)
		for i, v := range x[len(x)-n:] {
			want := ExpF64(v)
			if math.Float64bits(got[i]) != math.Float64bits(want) {
				t.Fatalf("%d of %d: e^%v is %v, want %v", i, n, v, got[i], want)
			}
			if e := math.Exp(v); v >= minExp64 && v <= maxExp64 && math.Abs(want-e) > 0x1p-51*e {
				t.Fatalf("e^%v is %v, want %v", v, want, e)
			}
		}
	}
}

// TestExpF64RoundsEachStep does ExpF64's arithmetic in big.Float with 53 bits, where nothing can
// be fused: a compiler that fused a product with an addition would give other bits.
func TestExpF64RoundsEachStep(t *testing.T) {
	num := func(x float64) *big.Float { return new(big.Float).SetPrec(53).SetFloat64(x) }
	mul := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(53).Mul(a, b) }
	add := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(53).Add(a, b) }
	r := rand.New(rand.NewPCG(8, 9))
	for range 5000 {
		x := -60 * r.Float64()
		whole, _ := add(mul(num(x), num(math.Log2E)), num(0.5)).Float64()
		k := num(math.Floor(whole))
		rest := add(num(x), mul(k, num(-ln2High64)))
		rest = add(rest, mul(k, num(-ln2Low64)))
		p := num(expDoubles[9])
		for _, c := range expDoubles[10:] {
			p = add(mul(p, rest), num(c))
		}
		want, _ := p.Float64()
		if got := ExpF64(x); got != math.Ldexp(want, int(math.Floor(whole))) {
			t.Fatalf("ExpF64(%v) = %x, step by step %x", x, got, want)
		}
	}
}
