//go:build !amd64

package simd

func hasRow() bool { return false }

func addRow(acc []float32, data []byte, panel int, s *Stored, x *Acts) {
	addPanelsGeneric(acc, data, panel, s, x)
}
