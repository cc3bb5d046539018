package simd

//go:noescape
func dotQ32AVX2(q []int8, scale, min []float32, x []int16, dx, sums []float32) float32

//go:noescape
func dotQ16AVX2(q []int8, scale, min []float32, x []int16, dx, sums []float32) float32

//go:noescape
func dotQ32AVX512(q []int8, scale, min []float32, x []int16, dx, sums []float32) float32

//go:noescape
func dotRowsQ32AVX2(dst []float32, q []int8, scale, min []float32, x []int16, dx, sums []float32)

//go:noescape
func dotRowsQ16AVX2(dst []float32, q []int8, scale, min []float32, x []int16, dx, sums []float32)

//go:noescape
func dotRowsQ32AVX512(dst []float32, q []int8, scale, min []float32, x []int16, dx, sums []float32)

func dotQ(w *QuantRow, x []int16, dx, sums []float32) float32 {
	groups := len(w.Scale)
	k := groups * w.Group
	if tier == generic || k%ActGroup != 0 || w.Group != 16 && w.Group != 32 {
		return dotQGeneric(w, x, dx, sums)
	}
	q, x, dx := w.Q[:k], x[:k], dx[:k/ActGroup]
	if w.Min != nil {
		_, _ = w.Min[:groups], sums[:groups]
	}
	switch {
	case w.Group == 16:
		return dotQ16AVX2(q, w.Scale, w.Min, x, dx, sums)
	case tier >= avx512:
		return dotQ32AVX512(q, w.Scale, w.Min, x, dx, sums)
	}
	return dotQ32AVX2(q, w.Scale, w.Min, x, dx, sums)
}

// dotRowsQ takes eight rows at a time, one in each lane, and the rest one by one.
func dotRowsQ(dst []float32, w *QuantRow, x []int16, dx, sums []float32) {
	k, groups := len(w.Q), len(w.Scale)
	whole := tier != generic && k == groups*w.Group && k%ActGroup == 0 && (w.Group == 16 || w.Group == 32)
	for whole && len(dst) >= 8 {
		dotEightQ(dst[:8], w, x[:8*k], dx[:8*k/ActGroup], sums)
		dst, x, dx = dst[8:], x[8*k:], dx[8*k/ActGroup:]
		if w.Min != nil {
			sums = sums[8*groups:]
		}
	}
	for r := range dst {
		var s []float32
		if w.Min != nil {
			s = sums[r*groups:]
		}
		dst[r] = dotQ(w, x[r*k:], dx[r*k/ActGroup:], s)
	}
}

func dotEightQ(dst []float32, w *QuantRow, x []int16, dx, sums []float32) {
	if w.Min != nil {
		_, _ = w.Min[:len(w.Scale)], sums[:8*len(w.Scale)]
	}
	switch {
	case w.Group == 16:
		dotRowsQ16AVX2(dst, w.Q, w.Scale, w.Min, x, dx, sums)
	case tier >= avx512:
		dotRowsQ32AVX512(dst, w.Q, w.Scale, w.Min, x, dx, sums)
	default:
		dotRowsQ32AVX2(dst, w.Q, w.Scale, w.Min, x, dx, sums)
	}
}
