package simd

//go:noescape
func dotKeysF16AVX2(dst, w []float32, x []uint16)

//go:noescape
func dotKeysF16AVX512(dst, w []float32, x []uint16)

//go:noescape
func weighF32AVX2(acc, v, p []float32, stride int)

//go:noescape
func weighF16AVX2(acc []float32, v []uint16, p []float32, stride int)

//go:noescape
func weighF32AVX512(acc, v, p []float32, stride int)

//go:noescape
func weighF16AVX512(acc []float32, v []uint16, p []float32, stride int)

// dotKeysF16 has whole keys of all sizes on AVX-512 only, which masks words.
func dotKeysF16(dst, q []float32, keys []uint16) {
	d := len(q)
	switch {
	case tier >= avx512:
		dotKeysF16AVX512(dst, q, keys)
	case tier == generic:
		dotKeysF16Generic(dst, q, keys)
	case d%lanes == 0:
		dotKeysF16AVX2(dst, q, keys)
	default:
		for j := range dst {
			dotRowsF16AVX2(dst[j:j+1], keys[j*d:(j+1)*d], q)
		}
	}
}

func weighF32(acc, v, p []float32) {
	n := wide(len(acc))
	switch {
	case tier >= avx512:
		weighF32AVX512(acc[:n], v, p, len(acc))
	case tier >= avx2:
		weighF32AVX2(acc[:n], v, p, len(acc))
	}
	weighF32Generic(acc, v, p, n)
}

func weighF16(acc []float32, v []uint16, p []float32) {
	n := wide(len(acc))
	switch {
	case tier >= avx512:
		weighF16AVX512(acc[:n], v, p, len(acc))
	case tier >= avx2:
		weighF16AVX2(acc[:n], v, p, len(acc))
	}
	weighF16Generic(acc, v, p, n)
}
