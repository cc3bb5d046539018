package simd

//go:noescape
func addNEON(dst, a, b []float32)

//go:noescape
func mulNEON(dst, a, b []float32)

//go:noescape
func scaleNEON(dst, x []float32, s float32)

//go:noescape
func divideNEON(dst, x []float32, s float32)

//go:noescape
func addScaledNEON(dst, x []float32, s float32)

//go:noescape
func normNEON(dst, x, w []float32, r, offset float32)

//go:noescape
func turnNEON(lo, hi, cos, sin []float32)

//go:noescape
func maxNEON(x []float32) float32

//go:noescape
func loadF16NEON(dst []float32, src []uint16)

//go:noescape
func loadBF16NEON(dst []float32, src []uint16)

//go:noescape
func storeF16NEON(dst []uint16, src []float32)

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
		addNEON(dst[:n], a[:n], b[:n])
	}
	addGeneric(dst[n:], a[n:], b[n:])
}

func mul(dst, a, b []float32) {
	n := wide(len(a))
	if n > 0 {
		mulNEON(dst[:n], a[:n], b[:n])
	}
	mulGeneric(dst[n:], a[n:], b[n:])
}

func scale(dst, x []float32, s float32) {
	n := wide(len(x))
	if n > 0 {
		scaleNEON(dst[:n], x[:n], s)
	}
	scaleGeneric(dst[n:], x[n:], s)
}

func divide(dst, x []float32, s float32) {
	n := wide(len(x))
	if n > 0 {
		divideNEON(dst[:n], x[:n], s)
	}
	divideGeneric(dst[n:], x[n:], s)
}

func addScaled(dst, x []float32, s float32) {
	n := wide(len(x))
	if n > 0 {
		addScaledNEON(dst[:n], x[:n], s)
	}
	addScaledGeneric(dst[n:], x[n:], s)
}

func loadF16(dst []float32, src []uint16) {
	n := wide(len(src))
	if n > 0 {
		loadF16NEON(dst[:n], src[:n])
	}
	loadF16Generic(dst[n:], src[n:])
}

func loadBF16(dst []float32, src []uint16) {
	n := wide(len(src))
	if n > 0 {
		loadBF16NEON(dst[:n], src[:n])
	}
	loadBF16Generic(dst[n:], src[n:])
}

func storeF16(dst []uint16, src []float32) {
	n := wide(len(src))
	if n > 0 {
		storeF16NEON(dst[:n], src[:n])
	}
	storeF16Generic(dst[n:], src[n:])
}

func norm(dst, x, w []float32, r, offset float32) {
	n := wide(len(x))
	if n > 0 {
		normNEON(dst[:n], x[:n], w[:n], r, offset)
	}
	normGeneric(dst[n:], x[n:], w[n:], r, offset)
}

func turn(lo, hi, cos, sin []float32) {
	n := wide(len(cos))
	if n > 0 {
		turnNEON(lo[:n], hi[:n], cos[:n], sin[:n])
	}
	turnGeneric(lo[n:], hi[n:], cos[n:], sin[n:])
}

func maximum(x []float32) float32 {
	n := wide(len(x))
	if n == 0 {
		return maxGeneric(x)
	}
	return max(maxNEON(x[:n]), maxGeneric(x[n:])) + 0 // -0 becomes +0
}
