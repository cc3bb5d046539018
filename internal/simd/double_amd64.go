package simd

//go:noescape
func dotDoublesAVX2(w []float64, stride int, x []float64) (a, b float64)

func dotDoubles(w []float64, stride int, x []float64) (a, b float64) {
	if tier < avx2 {
		return dotDoublesGeneric(w, stride, x)
	}
	return dotDoublesAVX2(w[:stride+len(x)], stride, x)
}

//go:noescape
func dotColumnsAVX2(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64)

func dotColumns(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64) {
	if tier < avx2 {
		dotColumnsGeneric(sums, w, stride, x)
		return
	}
	dotColumnsAVX2(sums, w[:stride+len(x)/lanes], stride, x)
}
