package simd

//go:noescape
func dotRowsF32NEON(dst, w, x []float32)

//go:noescape
func dotRowsF16NEON(dst []float32, w []uint16, x []float32)

//go:noescape
func dotRowsBF16NEON(dst []float32, w []uint16, x []float32)

// whole reports whether the kernels take rows of n elements, whole blocks; the
// generic twins take the others.
func whole(n int) bool { return tier > generic && n%lanes == 0 }

func dotRowsF32(dst, w, x []float32) {
	x = x[:len(dst)*len(w)]
	if whole(len(w)) {
		dotRowsF32NEON(dst, w, x)
		return
	}
	dotRowsF32Generic(dst, w, x)
}

func dotRowsF16(dst []float32, w []uint16, x []float32) {
	x = x[:len(dst)*len(w)]
	if whole(len(w)) {
		dotRowsF16NEON(dst, w, x)
		return
	}
	dotRows16Generic(dst, w, x, false)
}

func dotRowsBF16(dst []float32, w []uint16, x []float32) {
	x = x[:len(dst)*len(w)]
	if whole(len(w)) {
		dotRowsBF16NEON(dst, w, x)
		return
	}
	dotRows16Generic(dst, w, x, true)
}
