package simd

import (
	"math"
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
