//go:build !amd64

package simd

func addDoubles(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64) {
	addDoublesGeneric(sums, w, stride, x)
}

func dotColumns(sums *[doubleRows][lanes]float64, w []float64, stride int, x []float64) {
	dotColumnsGeneric(sums, w, stride, x)
}
