package simd

import (
	"math"

	"github.com/karat-run/karat/internal/float16"
)

// load sets dst to the first weights.
func (w weights) load(dst []float32) {
	switch {
	case w.u16 == nil:
		copy(dst, w.f32[:len(dst)])
	case w.bf16:
		loadBF16Generic(dst, w.u16[:len(dst)])
	default:
		loadF16Generic(dst, w.u16[:len(dst)])
	}
}

// addDotsGeneric adds the products of x, whole blocks of 16, with the rows that
// begin at multiples of stride.
func addDotsGeneric(sums *dotSums, w weights, stride int, x []float32) {
	for i := range sums {
		var buf [256]float32
		for at := 0; at < len(x); at += len(buf) {
			part := buf[:min(len(buf), len(x)-at)]
			w.from(i*stride + at).load(part)
			accumulate(&sums[i], part, x[at:])
		}
	}
}

// addBlockGeneric adds the products of k elements, whole blocks of 16, of
// dotRows rows of w and dotCols of x, which begin at multiples of stride.
func addBlockGeneric(sums *[dotCols]dotSums, w, x []float32, stride, k int) {
	for r := range sums {
		addDotsGeneric(&sums[r], weights{f32: w}, stride, x[r*stride:][:k])
	}
}

func sumDotsGeneric(dst *[dotRows]float32, sums *dotSums) {
	for i := range dst {
		dst[i] = sumLanes(&sums[i])
	}
}

// accumulate adds w[k]*x[k] to p[k mod 16], fused, for k in order. A dot
// product may be split at any multiple of 16.
func accumulate(p *[lanes]float32, w, x []float32) {
	x = x[:len(w)]
	for len(w) >= lanes {
		a, b := (*[lanes]float32)(w), (*[lanes]float32)(x)
		for i := range p {
			// fma32, whose slow path keeps the compiler from inlining it
			s := float64(float64(a[i])*float64(b[i])) + float64(p[i])
			if rare(s) {
				p[i] = fma32(a[i], b[i], p[i])
			} else {
				p[i] = float32(s)
			}
		}
		w, x = w[lanes:], x[lanes:]
	}
	for i, v := range w {
		p[i] = fma32(v, x[i], p[i])
	}
}

// sumLanes adds p's halves until one number is left: i and i+8, i and i+4, i
// and i+2, 0 and 1.
func sumLanes(p *[lanes]float32) float32 {
	q := *p
	for n := lanes / 2; n >= 1; n /= 2 {
		for i := range n {
			q[i] += q[i+n]
		}
	}
	return q[0]
}

func loadF16Generic(dst []float32, src []uint16) {
	for i, v := range src {
		if e := v & 0x7c00; e == 0 || e == 0x7c00 {
			dst[i] = float16.F16(v)
			continue
		}
		b := uint32(v&0x7fff)<<13 + (127-15)<<23 // a normal number
		dst[i] = math.Float32frombits(b | uint32(v>>15)<<31)
	}
}

func storeF16Generic(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = float16.ToF16(v)
	}
}

func loadBF16Generic(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = float16.BF16(v)
	}
}
