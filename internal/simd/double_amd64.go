package simd

//go:noescape
func addDoublesAVX2(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64)

func addDoubles(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64) {
	if tier < avx2 {
		addDoublesGeneric(sums, w, stride, x)
		return
	}
	addDoublesAVX2(sums, w[:stride+len(x)], stride, x)
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
