package simd

//go:noescape
func addDotsF32AVX2(sums *dotSums, w []float32, stride int, x []float32)

//go:noescape
func addDotsF16AVX2(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func addDotsBF16AVX2(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func addBlockAVX2(sums *[dotCols]dotSums, w, x []float32, stride, k int)

//go:noescape
func sumDotsAVX2(dst *[dotRows]float32, sums *dotSums)

//go:noescape
func addDotsF32AVX512(sums *dotSums, w []float32, stride int, x []float32)

//go:noescape
func addDotsF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func addDotsBF16AVX512(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func addBlockAVX512(sums *[dotCols]dotSums, w, x []float32, stride, k int)

// rowsApart is whether the rows that a kernel takes together had better lie far apart.
func rowsApart() bool { return tier >= avx2 }

func addDots(sums *dotSums, w weights, stride int, x []float32) {
	end := (dotRows-1)*stride + len(x)
	switch {
	case tier < avx2:
		addDotsGeneric(sums, w, stride, x)
	case w.u16 == nil && tier < avx512:
		addDotsF32AVX2(sums, w.f32[:end], stride, x)
	case w.u16 == nil:
		addDotsF32AVX512(sums, w.f32[:end], stride, x)
	case w.bf16 && tier < avx512:
		addDotsBF16AVX2(sums, w.u16[:end], stride, x)
	case w.bf16:
		addDotsBF16AVX512(sums, w.u16[:end], stride, x)
	case tier < avx512:
		addDotsF16AVX2(sums, w.u16[:end], stride, x)
	default:
		addDotsF16AVX512(sums, w.u16[:end], stride, x)
	}
}

func addBlock(sums *[dotCols]dotSums, w, x []float32, stride, k int) {
	w, x = w[:(dotRows-1)*stride+k], x[:(dotCols-1)*stride+k]
	switch {
	case tier >= avx512:
		addBlockAVX512(sums, w, x, stride, k)
	case tier >= avx2:
		addBlockAVX2(sums, w, x, stride, k)
	default:
		addBlockGeneric(sums, w, x, stride, k)
	}
}

func sumDots(dst *[dotRows]float32, sums *dotSums) {
	if tier >= avx2 {
		sumDotsAVX2(dst, sums)
		return
	}
	sumDotsGeneric(dst, sums)
}
