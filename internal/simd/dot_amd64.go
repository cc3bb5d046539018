package simd

//go:noescape
func dotRowsF32AVX2(dst, w, x []float32)

//go:noescape
func dotRowsF16AVX2(dst []float32, w []uint16, x []float32)

//go:noescape
func dotRowsBF16AVX2(dst []float32, w []uint16, x []float32)

//go:noescape
func dotRowsF32AVX512(dst, w, x []float32)

//go:noescape
func dotRowsF16AVX512(dst []float32, w []uint16, x []float32)

//go:noescape
func dotRowsBF16AVX512(dst []float32, w []uint16, x []float32)

func dotRowsF32(dst, w, x []float32) {
	x = x[:len(dst)*len(w)]
	switch {
	case tier >= avx512:
		dotRowsF32AVX512(dst, w, x)
	case tier >= avx2:
		dotRowsF32AVX2(dst, w, x)
	default:
		dotRowsF32Generic(dst, w, x)
	}
}

func dotRowsF16(dst []float32, w []uint16, x []float32) {
	x = x[:len(dst)*len(w)]
	switch {
	case tier >= avx512:
		dotRowsF16AVX512(dst, w, x)
	case tier >= avx2:
		dotRowsF16AVX2(dst, w, x)
	default:
		dotRows16Generic(dst, w, x, false)
	}
}

func dotRowsBF16(dst []float32, w []uint16, x []float32) {
	x = x[:len(dst)*len(w)]
	switch {
	case tier >= avx512:
		dotRowsBF16AVX512(dst, w, x)
	case tier >= avx2:
		dotRowsBF16AVX2(dst, w, x)
	default:
		dotRows16Generic(dst, w, x, true)
	}
}
