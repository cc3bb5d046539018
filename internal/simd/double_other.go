//go:build !amd64

package simd

func dotDoubles(w []float64, stride int, x []float64) (a, b float64) {
	return dotDoublesGeneric(w, stride, x)
}

func dotColumns(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64) {
	dotColumnsGeneric(sums, w, stride, x)
}
