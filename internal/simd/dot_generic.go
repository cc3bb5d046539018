package simd

import (
	"math"

	"github.com/karat-run/karat/internal/float16"
)

// lanes is the number of partial sums of a float dot product.
const lanes = 16

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

func dotF32Generic(w, x []float32) float32 {
	var p [lanes]float32
	accumulate(&p, w, x)
	return sumLanes(&p)
}

func dotRowsF32Generic(dst, w, x []float32) {
	for r := range dst {
		dst[r] = dotF32Generic(w, x[r*len(w):])
	}
}

// dotRows16Generic converts w once for up to eight rows of x.
func dotRows16Generic(dst []float32, w []uint16, x []float32, bf16 bool) {
	k := len(w)
	for len(dst) > 0 {
		var p [8][lanes]float32
		n := min(len(dst), len(p))
		var buf [256]float32
		for at := 0; at < k; at += len(buf) {
			part := buf[:min(len(buf), k-at)]
			if bf16 {
				loadBF16Generic(part, w[at:at+len(part)])
			} else {
				loadF16Generic(part, w[at:at+len(part)])
			}
			for r := range n {
				accumulate(&p[r], part, x[r*k+at:])
			}
		}
		for r := range n {
			dst[r] = sumLanes(&p[r])
		}
		dst, x = dst[n:], x[n*k:]
	}
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
