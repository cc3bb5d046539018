//go:build !amd64

package simd

func dotQ(w *QuantRow, x []int16, dx, sums []float32) float32 { return dotQGeneric(w, x, dx, sums) }

func dotRowsQ(dst []float32, w *QuantRow, x []int16, dx, sums []float32) {
	dotRowsQGeneric(dst, w, x, dx, sums)
}
