package simd

// tileConfig is what LDTILECFG reads: bytes in a row, and rows, of each tile.
type tileConfig struct {
	palette uint8
	_       [15]uint8 // the row to start from, 0, and what is reserved
	bytes   [16]uint16
	rows    [16]uint8
}

// tiles16AMX and tiles32AMX are for groups of 16 and 32. They take blocks of 16
// rows, or one of height 4, 8 or 12.
//
//go:noescape
func tiles16AMX(acc *float32, blocks int, acts, codes *uint16, scale, min, dx, sums *float32, k, groups int, config *tileConfig, height int)

//go:noescape
func tiles32AMX(acc *float32, blocks int, acts, codes *uint16, scale, min, dx, sums *float32, k, groups int, config *tileConfig, height int)

//go:noescape
func splitAVX512(dst []uint16, q []int16)

//go:noescape
func widenAVX512(dst []uint16, codes []byte, offset byte)

// addTilesAMX takes four rows or more. The last ones are the end of a block whose
// height is a multiple of four, and whose first rows, done before, it puts back.
func addTilesAMX(acc []float32, w *Panel, x *Acts, split []uint16) {
	rows := len(acc) / PanelRows
	blocks, height := rows/16, 16
	if blocks == 0 {
		blocks, height = 1, rows&^3
	}
	tilesFrom(0, blocks, height, acc, w, x, split)
	done := blocks * height
	if rows == done {
		return
	}
	height = (rows - done + 3) &^ 3
	var sums [3 * PanelRows]float32
	again := acc[(rows-height)*PanelRows : done*PanelRows]
	copy(sums[:], again)
	tilesFrom(rows-height, 1, height, acc, w, x, split)
	copy(again, sums[:])
}

// tilesFrom takes the given blocks of rows of a height, from a row on.
func tilesFrom(row, blocks, height int, acc []float32, w *Panel, x *Acts, split []uint16) {
	groups, end := len(w.Scale)/PanelRows, row+blocks*height
	k := groups * w.Group
	_, _ = w.Wide[:k*PanelRows], w.Scale[:groups*PanelRows]
	acc, split, dx := acc[row*PanelRows:end*PanelRows], split[2*row*k:2*end*k], x.DX[row*k/ActGroup:end*k/ActGroup]
	var min, sums *float32
	if w.Min != nil {
		min, sums = &w.Min[:groups*PanelRows][0], &x.Sums[row*groups : end*groups][0]
	}
	h, g := uint8(height), uint16(w.Group)
	config := tileConfig{palette: 1, // sums, activations, codes
		bytes: [16]uint16{64, 64, 64, 64, 2 * g, 2 * g, 64},
		rows:  [16]uint8{h, h, h, h, h, h, uint8(g / 2)},
	}
	if g == 16 {
		tiles16AMX(&acc[0], blocks, &split[0], &w.Wide[0], &w.Scale[0], min, &dx[0], sums, k, groups, &config, height)
		return
	}
	tiles32AMX(&acc[0], blocks, &split[0], &w.Wide[0], &w.Scale[0], min, &dx[0], sums, k, groups, &config, height)
}
