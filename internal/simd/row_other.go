//go:build !amd64

package simd

func hasRow() bool { return false }

func addRow(acc []float32, data []byte, s *Stored, x *Acts) { addRowGeneric(acc, data, s, x) }
