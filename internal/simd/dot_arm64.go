package simd

//go:noescape
func addDotsF32NEON(sums *dotSums, w []float32, stride int, x []float32)

//go:noescape
func addDotsF16NEON(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func addDotsBF16NEON(sums *dotSums, w []uint16, stride int, x []float32)

//go:noescape
func sumDotsNEON(dst *[dotRows]float32, sums *dotSums)

func rowsApart() bool { return false }

func addDots(sums *dotSums, w weights, stride int, x []float32) {
	end := (dotRows-1)*stride + len(x)
	switch {
	case tier == generic:
		addDotsGeneric(sums, w, stride, x)
	case w.u16 == nil:
		addDotsF32NEON(sums, w.f32[:end], stride, x)
	case w.bf16:
		addDotsBF16NEON(sums, w.u16[:end], stride, x)
	default:
		addDotsF16NEON(sums, w.u16[:end], stride, x)
	}
}

// addBlock has no kernel of its own: with a row of x, 16 registers are sums.
func addBlock(sums *[dotCols]dotSums, w, x []float32, stride, k int) {
	for r := range sums {
		addDots(&sums[r], weights{f32: w}, stride, x[r*stride:][:k])
	}
}

func sumDots(dst *[dotRows]float32, sums *dotSums) {
	if tier > generic {
		sumDotsNEON(dst, sums)
		return
	}
	sumDotsGeneric(dst, sums)
}
