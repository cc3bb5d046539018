package simd

import "math"

//go:noescape
func addAVX2(dst, a, b []float32)

//go:noescape
func mulAVX2(dst, a, b []float32)

//go:noescape
func scaleAVX2(dst, x []float32, s float32)

//go:noescape
func divideAVX2(dst, x []float32, s float32)

//go:noescape
func addScaledAVX2(dst, x []float32, s float32)

//go:noescape
func normAVX2(dst, x, w []float32, r, offset float32)

//go:noescape
func turnAVX2(lo, hi, cos, sin []float32)

//go:noescape
func maxAVX2(x []float32) (top float32, nans uint32)

//go:noescape
func loadF16AVX2(dst []float32, src []uint16)

//go:noescape
func loadBF16AVX2(dst []float32, src []uint16)

//go:noescape
func storeF16AVX2(dst []uint16, src []float32)

// wide is how many of n elements the kernels below take; the generic twins take
// the rest.
func wide(n int) int {
	if tier == generic {
		return 0
	}
	return n &^ (lanes - 1)
}

func add(dst, a, b []float32) {
	n := wide(len(a))
	if n > 0 {
		addAVX2(dst[:n], a[:n], b[:n])
	}
	addGeneric(dst[n:], a[n:], b[n:])
}

func mul(dst, a, b []float32) {
	n := wide(len(a))
	if n > 0 {
		mulAVX2(dst[:n], a[:n], b[:n])
	}
	mulGeneric(dst[n:], a[n:], b[n:])
}

func scale(dst, x []float32, s float32) {
	n := wide(len(x))
	if n > 0 {
		scaleAVX2(dst[:n], x[:n], s)
	}
	scaleGeneric(dst[n:], x[n:], s)
}

func divide(dst, x []float32, s float32) {
	n := wide(len(x))
	if n > 0 {
		divideAVX2(dst[:n], x[:n], s)
	}
	divideGeneric(dst[n:], x[n:], s)
}

func addScaled(dst, x []float32, s float32) {
	n := wide(len(x))
	if n > 0 {
		addScaledAVX2(dst[:n], x[:n], s)
	}
	addScaledGeneric(dst[n:], x[n:], s)
}

func loadF16(dst []float32, src []uint16) {
	n := wide(len(src))
	if n > 0 {
		loadF16AVX2(dst[:n], src[:n])
	}
	loadF16Generic(dst[n:], src[n:])
}

func loadBF16(dst []float32, src []uint16) {
	n := wide(len(src))
	if n > 0 {
		loadBF16AVX2(dst[:n], src[:n])
	}
	loadBF16Generic(dst[n:], src[n:])
}

func storeF16(dst []uint16, src []float32) {
	n := wide(len(src))
	if n > 0 {
		storeF16AVX2(dst[:n], src[:n])
	}
	storeF16Generic(dst[n:], src[n:])
}

func norm(dst, x, w []float32, r, offset float32) {
	n := wide(len(x))
	if n > 0 {
		normAVX2(dst[:n], x[:n], w[:n], r, offset)
	}
	normGeneric(dst[n:], x[n:], w[n:], r, offset)
}

func turn(lo, hi, cos, sin []float32) {
	n := wide(len(cos))
	if n > 0 {
		turnAVX2(lo[:n], hi[:n], cos[:n], sin[:n])
	}
	turnGeneric(lo[n:], hi[n:], cos[n:], sin[n:])
}

func maximum(x []float32) float32 {
	n := wide(len(x))
	if n == 0 {
		return maxGeneric(x)
	}
	top, nans := maxAVX2(x[:n])
	if nans != 0 {
		return float32(math.NaN())
	}
	return max(top, maxGeneric(x[n:])) + 0 // -0 becomes +0
}
