//go:build !amd64

package simd

func dotRowsF32(dst, w, x []float32) { dotRowsF32Generic(dst, w, x) }

func dotRowsF16(dst []float32, w []uint16, x []float32) { dotRows16Generic(dst, w, x, false) }

func dotRowsBF16(dst []float32, w []uint16, x []float32) { dotRows16Generic(dst, w, x, true) }

func dotQ(w *QuantRow, x []int16, dx, sums []float32) float32 { return dotQGeneric(w, x, dx, sums) }

func dotRowsQ(dst []float32, w *QuantRow, x []int16, dx, sums []float32) {
	dotRowsQGeneric(dst, w, x, dx, sums)
}
