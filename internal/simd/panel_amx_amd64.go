package simd

import "unsafe"

// tileConfig is what LDTILECFG reads: bytes in a row, and rows, of each tile.
type tileConfig struct {
	palette uint8
	_       [15]uint8 // the row to start from, 0, and what is reserved
	bytes   [16]uint16
	rows    [16]uint8
}

// tilePanel is a panel, min being nil or not, and its sums from the first row of
// the first block on.
type tilePanel struct {
	codes           *uint16
	scale, min, acc *float32
	after           uintptr // what is fetched next, so many lines in each block
	lines           int
}

// tiles16AMX and tiles32AMX are for groups of 16 and 32. They take blocks of 16
// rows, or one of height 4, 8 or 12.
//
//go:noescape
func tiles16AMX(panels *tilePanel, count, blocks int, acts *uint16, dx, sums *float32, k, groups int, config *tileConfig, height int)

//go:noescape
func tiles32AMX(panels *tilePanel, count, blocks int, acts *uint16, dx, sums *float32, k, groups int, config *tileConfig, height int)

//go:noescape
func splitAVX512(dst []uint16, q []int16)

//go:noescape
func widenAVX512(dst []uint16, codes []byte, offset byte)

//go:noescape
func widen4AVX512(dst []uint16, src []byte, table *[64]uint16)

//go:noescape
func widen41AVX512(dst []uint16, src []byte, table *[64]uint16)

//go:noescape
func widen42AVX512(dst []uint16, src []byte, table *[64]uint16)

func widenPlanes(dst []uint16, src []byte, c Codes, table *[64]uint16) {
	switch {
	case tier < amx:
		widenPlanesGeneric(dst, src, c, table)
	case c == Codes41:
		widen41AVX512(dst, src, table)
	case c == Codes42:
		widen42AVX512(dst, src, table)
	default:
		widen4AVX512(dst, src, table)
	}
}

// addTilesAMX takes four rows or more. The last ones are the end of a block whose
// height is a multiple of four, and whose first rows, done before, it puts back.
func addTilesAMX(acc []float32, rows int, w []*Panel, x *Acts, split []uint16) {
	blocks, height := rows/16, 16
	if blocks == 0 {
		blocks, height = 1, rows&^3
	}
	tilesFrom(0, blocks, height, acc, rows, w, x, split)
	done := blocks * height
	if rows == done {
		return
	}
	height = (rows - done + 3) &^ 3
	var sums [TilePanels][3 * PanelRows]float32
	for i := range w {
		copy(sums[i][:], acc[(i*rows+rows-height)*PanelRows:(i*rows+done)*PanelRows])
	}
	tilesFrom(rows-height, 1, height, acc, rows, w, x, split)
	for i := range w {
		copy(acc[(i*rows+rows-height)*PanelRows:(i*rows+done)*PanelRows], sums[i][:])
	}
}

// tilesFrom takes the given blocks of rows of a height, from a row on.
func tilesFrom(row, blocks, height int, acc []float32, rows int, w []*Panel, x *Acts, split []uint16) {
	group, groups, end := w[0].Group, len(w[0].Scale)/PanelRows, row+blocks*height
	k := groups * group
	split, dx := split[2*row*k:2*end*k], x.DX[row*k/ActGroup:end*k/ActGroup]
	var sums *float32
	if w[0].Min != nil {
		sums = &x.Sums[row*groups : end*groups][0]
	}
	var panels [TilePanels]tilePanel
	for i, p := range w {
		panels[i] = tilePanel{codes: &p.Wide[:k*PanelRows][0], scale: &p.Scale[:groups*PanelRows][0], acc: &acc[(i*rows+row)*PanelRows : (i*rows+end)*PanelRows][0]}
		if sums != nil {
			panels[i].min = &p.Min[:groups*PanelRows][0]
		}
		panels[i].after, panels[i].lines = uintptr(unsafe.Pointer(unsafe.SliceData(p.After))), (len(p.After)/64+blocks-1)/blocks
	}
	h, g := uint8(height), uint16(group)
	config := tileConfig{palette: 1, // sums, activations, codes
		bytes: [16]uint16{64, 64, 64, 64, 2 * g, 2 * g, 64},
		rows:  [16]uint8{h, h, h, h, h, h, uint8(g / 2)},
	}
	if group == 16 {
		tiles16AMX(&panels[0], len(w), blocks, &split[0], &dx[0], sums, k, groups, &config, height)
		return
	}
	tiles32AMX(&panels[0], len(w), blocks, &split[0], &dx[0], sums, k, groups, &config, height)
}
