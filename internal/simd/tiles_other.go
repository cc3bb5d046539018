//go:build !amd64

package simd

func addTiles(acc []float32, w []*Panel, x *Acts, split []uint16) { addTilesGeneric(acc, w, x, split) }

func hasTiles(int) bool { return false }

func split(dst []uint16, q []int16) { splitGeneric(dst, q) }

func widen(dst []uint16, codes []byte, offset byte) { widenGeneric(dst, codes, offset) }

func widenPlanes(dst []uint16, src []byte, c Codes, table *[64]uint16) {
	widenPlanesGeneric(dst, src, c, table)
}
