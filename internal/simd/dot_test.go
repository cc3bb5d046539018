package simd

import (
	"math"
	"testing"

	"github.com/karat-run/karat/internal/float16"
)

// dotByHand states the contract once more, one element at a time.
func dotByHand(w, x []float32) float32 {
	var p [16]float32
	for k := range w {
		p[k%16] = bigFMA(w[k], x[k], p[k%16])
	}
	var q [8]float32
	for i := range q {
		q[i] = p[i] + p[i+8]
	}
	a, b, c, d := q[0]+q[4], q[1]+q[5], q[2]+q[6], q[3]+q[7]
	a, b = a+c, b+d
	return a + b
}

func TestDotF32(t *testing.T) { eachTier(t, testDotF32) }

func testDotF32(t *testing.T) {
	r := rng(3)
	for _, n := range sizes {
		for range 20 {
			w, x := values(r, n), values(r, n)
			got := DotF32(w, x)
			equal(t, "dot", []float32{got}, []float32{dotByHand(w, x)})
			var sum, size float64
			for i := range w {
				sum += float64(w[i]) * float64(x[i])
				size += math.Abs(float64(w[i]) * float64(x[i]))
			}
			if d := math.Abs(float64(got) - sum); d > size*float64(n/16+5)*0x1p-24 {
				t.Errorf("%d elements: %v, want %v", n, got, sum)
			}
			w, x = anything(r, n, false), anything(r, n, false)
			equal(t, "dot of wild numbers", []float32{DotF32(w, x)}, []float32{dotByHand(w, x)})
			w, x = anything(r, n, true), values(r, n)
			equal(t, "dot of specials", []float32{DotF32(w, x)}, []float32{dotByHand(w, x)})
		}
	}
}

// halves returns n patterns, of moderate size unless wild.
func halves(n int, seed uint64, wild bool) []uint16 {
	r := rng(seed)
	h := make([]uint16, n)
	for i := range h {
		h[i] = uint16(r.Uint32())
		if !wild {
			h[i] = h[i]&0x83ff | 0x3800 // 0.5 to 1
		}
	}
	return h
}

// TestDot16 compares the 16-bit products with conversion first, and all forms
// of several rows with their rows one by one.
func TestDot16(t *testing.T) { eachTier(t, testDot16) }

func testDot16(t *testing.T) {
	r := rng(4)
	for _, n := range sizes {
		for _, wild := range []bool{false, true} {
			w := halves(n, uint64(n), wild)
			f, b := make([]float32, n), make([]float32, n)
			for i, v := range w {
				f[i], b[i] = float16.F16(v), float16.BF16(v)
			}
			for _, rows := range []int{0, 1, 2, 7, 8, 9, 17} {
				x := values(r, n*rows)
				if wild {
					x = anything(r, n*rows, false)
				}
				wantF, wantB := make([]float32, rows), make([]float32, rows)
				for i := range rows {
					row := x[i*n : (i+1)*n]
					wantF[i], wantB[i] = DotF32(f, row), DotF32(b, row)
					equal(t, "one row", []float32{DotF16(w, row), DotBF16(w, row)}, []float32{wantF[i], wantB[i]})
				}
				got := make([]float32, rows)
				DotRowsF32(got, f, x)
				equal(t, "f32 rows", got, wantF)
				DotRowsF16(got, w, x)
				equal(t, "f16 rows", got, wantF)
				DotRowsBF16(got, w, x)
				equal(t, "bf16 rows", got, wantB)
			}
		}
	}
}

func TestStoreF16(t *testing.T) { eachTier(t, testStoreF16) }

func testStoreF16(t *testing.T) {
	x := []float32{0, 1, -1, 65504, 65519, 65520, 0x1p-24, 0x1p-25, 0x1.8p-25, -inf, nan, 0x1.ffcp0, 0x1.ffep0}
	want := []float32{0, 1, -1, 65504, 65504, inf, 0x1p-24, 0, 0x1p-24, -inf, nan, 0x1.ffcp0, 2}
	h, got := make([]uint16, len(x)), make([]float32, len(x))
	StoreF16(h, x)
	LoadF16(got, h)
	equal(t, "binary16", got, want)
	LoadBF16(got[:2], []uint16{0x3fc0, 0xff80})
	equal(t, "bfloat16", got[:2], []float32{1.5, -inf})
}
