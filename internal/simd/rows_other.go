//go:build !amd64

package simd

func hasRows() bool { return false }

func joinRow(dst []byte, q []int16, rows int) { joinRowGeneric(dst, q, rows) }

func addRows(acc []float32, data []byte, panel int, s *Stored, joined []byte, rows int) {
	addRowsGeneric(acc, data, panel, s, joined, rows)
}
