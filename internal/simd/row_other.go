//go:build !amd64

package simd

func hasRow() bool { return false }

func addRow(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	addPanelsGeneric(acc, data, n, panel, gap, s, x)
}
