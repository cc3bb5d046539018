//go:build !amd64

package simd

func hasBlockRow() bool { return false }

func addBlockRow(acc []float32, rows []byte, stride int, q []int16, dx []float32) {
	addBlockRowGeneric(acc, rows, stride, q, dx)
}
