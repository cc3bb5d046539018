//go:build !amd64

package simd

func addTiles(acc []float32, w []*Panel, x *Acts, split []uint16) { addTilesGeneric(acc, w, x, split) }

func hasRow() bool { return false }

func addRow(acc []float32, data []byte, s *Stored, x *Acts) { addRowGeneric(acc, data, s, x) }

// HasTiles reports whether AddTiles is faster than AddPanel for that many rows.
func HasTiles(rows int) bool { return false }

func split(dst []uint16, q []int16) { splitGeneric(dst, q) }

func widen(dst []uint16, codes []byte, offset byte) { widenGeneric(dst, codes, offset) }

func weave(dst, src []byte, stride, n, in, out int, flip byte) {
	weaveGeneric(dst, src, stride, n, in, out, flip)
}

func weaveHalves(dst, src []byte, stride, n, in, out, other int) {
	weaveHalvesGeneric(dst, src, stride, n, in, out, other)
}

func weaveBits(dst, src []byte, stride, out int, two bool) {
	weaveBitsGeneric(dst, src, stride, out, two)
}

func widenPlanes(dst []uint16, src []byte, c Codes, table *[64]uint16) {
	widenPlanesGeneric(dst, src, c, table)
}
