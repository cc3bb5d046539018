package simd

// tileConfig is what LDTILECFG reads: bytes in a row, and rows, of each tile.
type tileConfig struct {
	palette, start uint8
	_              [14]uint8
	bytes          [16]uint16
	rows           [16]uint8
}

// tileConfigs are for groups of 16 and of 32: four tiles of products, two of
// activations, and one of codes.
var tileConfigs = [2]tileConfig{
	{palette: 1, bytes: [16]uint16{64, 64, 64, 64, 16, 16, 64}, rows: [16]uint8{16, 16, 16, 16, 16, 16, 4}},
	{palette: 1, bytes: [16]uint16{64, 64, 64, 64, 32, 32, 64}, rows: [16]uint8{16, 16, 16, 16, 16, 16, 8}},
}

// tilesAMX takes blocks of 16 rows.
//
//go:noescape
func tilesAMX(acc *float32, blocks int, bytes, codes *byte, scale, min, dx, sums *float32, k, groups int, config *tileConfig)

//go:noescape
func splitAVX512(dst []byte, q []int16)

// addTilesAMX has the last rows, fewer than 16, be the end of a block that
// begins among those before them, whose sums it puts back.
func addTilesAMX(acc []float32, w *Panel, x *Acts, split []byte) {
	rows := len(acc) / PanelRows
	whole := rows &^ 15
	tilesFrom(0, whole/16, acc, w, x, split)
	if rows == whole {
		return
	}
	var done [15 * PanelRows]float32
	first, again := rows-16, acc[(rows-16)*PanelRows:whole*PanelRows]
	copy(done[:], again)
	tilesFrom(first, 1, acc, w, x, split)
	copy(again, done[:])
}

// tilesFrom takes the given blocks of 16 rows, from a row on.
func tilesFrom(row, blocks int, acc []float32, w *Panel, x *Acts, split []byte) {
	groups, end := len(w.Scale)/PanelRows, row+16*blocks
	k := groups * w.Group
	_, _ = w.Codes[:k*PanelRows], w.Scale[:groups*PanelRows]
	acc, split, dx := acc[row*PanelRows:end*PanelRows], split[2*row*k:2*end*k], x.DX[row*k/ActGroup:end*k/ActGroup]
	var min, sums *float32
	if w.Min != nil {
		min, sums = &w.Min[:groups*PanelRows][0], &x.Sums[row*groups : end*groups][0]
	}
	tilesAMX(&acc[0], blocks, &split[0], &w.Codes[0], &w.Scale[0], min, &dx[0], sums, k, groups, &tileConfigs[w.Group/32])
}
