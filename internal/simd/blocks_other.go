//go:build !amd64

package simd

func blocksQ8_0(dst []byte, x []float32) { blocksQ8_0Generic(dst, x) }

func blocksQ4_0(dst []byte, x []float32) { blocksQ4_0Generic(dst, x) }

func largest(x []float32) float32 { return largestGeneric(x) }
