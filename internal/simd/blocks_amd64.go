package simd

//go:noescape
func blocksQ8_0AVX2(dst *byte, x []float32)

//go:noescape
func blocksQ4_0AVX2(dst *byte, x []float32)

//go:noescape
func largestAVX2(x []float32) float32

func blocksQ8_0(dst []byte, x []float32) {
	if tier == generic || len(x) == 0 {
		blocksQ8_0Generic(dst, x)
		return
	}
	blocksQ8_0AVX2(&dst[0], x)
}

func blocksQ4_0(dst []byte, x []float32) {
	if tier == generic || len(x) == 0 {
		blocksQ4_0Generic(dst, x)
		return
	}
	blocksQ4_0AVX2(&dst[0], x)
}

func largest(x []float32) float32 {
	n := wide(len(x))
	top := largestGeneric(x[n:])
	if n == 0 {
		return top
	}
	return largestGeneric([]float32{top, largestAVX2(x[:n])})
}
