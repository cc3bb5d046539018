//go:build !amd64

package simd

func addTiles(acc []float32, w []*Panel, x *Acts, split []uint16) { addTilesGeneric(acc, w, x, split) }

// HasFour reports whether AddFour is faster than unpacking for AddPanel.
func HasFour() bool { return false }

func addFour(acc []float32, w *Panel, x *Acts) { addFourGeneric(acc, w, x) }

// HasTiles reports whether AddTiles is faster than AddPanel for that many rows.
func HasTiles(rows int) bool { return false }

func split(dst []uint16, q []int16) { splitGeneric(dst, q) }

func widen(dst []uint16, codes []byte, offset byte) { widenGeneric(dst, codes, offset) }
