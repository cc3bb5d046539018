package simd

import (
	"fmt"
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
			got := dotF32(w, x)
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
			equal(t, "dot of wild numbers", []float32{dotF32(w, x)}, []float32{dotByHand(w, x)})
			w, x = anything(r, n, true), values(r, n)
			equal(t, "dot of specials", []float32{dotF32(w, x)}, []float32{dotByHand(w, x)})
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

// TestDots compares the products of several rows with those of each two, and
// the 16-bit ones with conversion first.
func TestDots(t *testing.T) { eachTier(t, testDots) }

func testDots(t *testing.T) {
	for _, k := range sizes[1:] {
		for i, n := range []int{0, 1, 3, 4, 5, 8, 31, 36, 37} {
			for _, rows := range []int{0, 1, 2, 5, 6, 7, 13} {
				if k < 100 && !testing.Short() || i%4 == rows%4 {
					dotsCase(t, k, n, rows)
				}
			}
		}
	}
	dotsCase(t, 2*dotPart+7, dotBatch+dotRows+1, dotCols+1)
}

func dotsCase(t *testing.T, k, n, rows int) {
	t.Helper()
	for _, wild := range []bool{false, true} {
		r, w := rng(4), halves(n*k, uint64(k), wild)
		x := values(r, rows*k)
		if wild {
			x = anything(r, rows*k, false)
		}
		f, b := make([]float32, n*k), make([]float32, n*k)
		for i, v := range w {
			f[i], b[i] = float16.F16(v), float16.BF16(v)
		}
		stride := n + 3
		want, got := make([]float32, rows*stride+3), make([]float32, rows*stride+3)
		check := func(what string, w []float32) {
			t.Helper()
			for r := range rows {
				for i := range n {
					want[r*stride+i] = dotF32(w[i*k:(i+1)*k], x[r*k:])
				}
			}
			equal(t, fmt.Sprintf("%s, k %d, %d times %d", what, k, n, rows), got, want)
		}
		DotsF32(got, stride, f, x, k)
		check("f32", f)
		DotsF16(got, stride, w, x, k)
		check("f16", f)
		DotsBF16(got, stride, w, x, k)
		check("bf16", b)
	}
}

// TestDotsE4M3 compares products of 8-bit floats with products of their values, of every byte and scales at the ends of
// float32, for scales of all widths.
func TestDotsE4M3(t *testing.T) { eachTier(t, testDotsE4M3) }

func testDotsE4M3(t *testing.T) {
	r := rng(5)
	for _, k := range []int{1, 15, 16, 33, 48, 128, 300, 1040} {
		for _, group := range []int{16, 32, 48, 128, 2048} {
			for _, n := range []int{1, 4, 7, 23} {
				w := Eights{Codes: make([]byte, n*k), K: k, Group: group}
				for i := range w.Codes {
					w.Codes[i] = byte(r.Uint32())
				}
				if k == 300 {
					w.Codes[290] = 0x7f
				} else if k > 16 {
					for i := range w.Codes {
						if w.Codes[i]&127 == 127 {
							w.Codes[i] = 1 // no NaN hides others
						}
					}
				}
				scales := []float32{1, -0.3, 1.7e-3, 0x1p-149, 3e-41, 0x1.8p100, 0, 1}
				for i := range n {
					if i%3 == 0 {
						w.At = append(w.At, len(w.Scales))
						for range (k-1)/group + 1 {
							w.Scales = append(w.Scales, 256*scales[r.IntN(len(scales))])
						}
					} else {
						w.At = append(w.At, w.At[i-1])
					}
				}
				for _, rows := range []int{1, 2} {
					x, stride := values(r, rows*k), n+1
					got := make([]float32, rows*stride)
					from := n / 5
					DotsE4M3(got, stride, &w, from, n, x)
					for at := range got {
						want, i := float32(0), from+at%stride
						if i < n {
							row := make([]float32, k)
							for j := range row {
								row[j] = float16.E4M3(w.Codes[i*k+j]) * (w.Scales[w.At[i]+j/group] / 256)
							}
							want = dotByHand(row, x[at/stride*k:][:k])
						}
						if !same(got[at], want) {
							t.Fatalf("%d elements, groups of %d, row %d of %d: %v, want %v", k, group, i, n, got[at], want)
						}
					}
				}
			}
		}
	}
}

func TestSerialF32(t *testing.T) { eachTier(t, testSerialF32) }

// testSerialF32 compares products with the contract, for few and many rows of both.
func testSerialF32(t *testing.T) {
	r := rng(23)
	for _, k := range []int{1, 3, 16, 63, 64, 65, 130} {
		for _, n := range []int{1, 2, 4, 7} {
			for _, rows := range []int{1, 2, 8, 9} {
				w, x, stride := anything(r, n*k, k == 3), anything(r, rows*k, false), n+r.IntN(3)
				got := make([]float32, rows*stride)
				SerialF32(got, stride, w, x, k)
				for at := range got {
					want, i := float32(0), at%stride
					for j := 0; i < n && j < k; j++ {
						want += float32(w[i*k+j] * x[at/stride*k+j])
					}
					if !same(got[at], want) {
						t.Fatalf("%d elements, %d rows, row %d of %d: %v, want %v", k, rows, i, n, got[at], want)
					}
				}
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
