package simd

//go:noescape
func dotKeysF16NEON(dst, w []float32, x []uint16)

//go:noescape
func weighF32NEON(acc, v, p []float32, stride int)

//go:noescape
func weighF16NEON(acc []float32, v []uint16, p []float32, stride int)

func dotKeysF16(dst, q []float32, keys []uint16) {
	if wide(len(q)) == len(q) {
		dotKeysF16NEON(dst, q, keys[:len(dst)*len(q)])
		return
	}
	dotKeysF16Generic(dst, q, keys)
}

func weighF32(acc, v, p []float32) {
	n := wide(len(acc))
	if n > 0 {
		weighF32NEON(acc[:n], v, p, len(acc))
	}
	weighF32Generic(acc, v, p, n)
}

func weighF16(acc []float32, v []uint16, p []float32) {
	n := wide(len(acc))
	if n > 0 {
		weighF16NEON(acc[:n], v, p, len(acc))
	}
	weighF16Generic(acc, v, p, n)
}
