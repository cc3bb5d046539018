//go:build !amd64

package simd

func hasChunks(int) bool { return false }

func addChunks(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	addChunksGeneric(acc, data, panel, s, x, rows)
}
