package simd

import "unsafe"

// A tileConfig is the operand of LDTILECFG: bytes in a row, and rows, of each tile.
type tileConfig struct {
	palette uint8
	_       [15]uint8 // the row to start from, 0, and reserved bytes
	bytes   [16]uint16
	rows    [16]uint8
}

// tilePanel is a panel, min being nil or not.
type tilePanel struct {
	codes      *uint16
	scale, min *float32
	after      uintptr // the next address to prefetch, so many bytes in each step
	bytes      int
}

// addTilesAMX takes four rows or more, and at most TilePanels panels, with their sums in a row of acc, stride elements
// long. The last rows are the end of a block of a height divisible by four; the block's first rows, done before, are
// put back.
func addTilesAMX(acc []float32, stride, rows int, w []*Panel, x *Acts, split []uint16) {
	blocks, height := rows/16, 16
	if blocks == 0 {
		blocks, height = 1, rows&^3
	}
	tilesFrom(0, blocks, height, acc, stride, w, x, split)
	done := blocks * height
	if rows == done {
		return
	}
	height = (rows - done + 3) &^ 3
	first, n := rows-height, len(w)*PanelRows
	var sums [3][TilePanels * PanelRows]float32
	for t := first; t < done; t++ {
		copy(sums[t-first][:n], acc[t*stride:])
	}
	tilesFrom(first, 1, height, acc, stride, w, x, split)
	for t := first; t < done; t++ {
		copy(acc[t*stride:], sums[t-first][:n])
	}
}

// tilesFrom takes the given blocks of rows of a height, from a row on.
func tilesFrom(row, blocks, height int, acc []float32, stride int, w []*Panel, x *Acts, split []uint16) {
	group, groups, end := w[0].Group, len(w[0].Scale)/PanelRows, row+blocks*height
	k := groups * group
	split, dx := split[2*row*k:2*end*k], x.DX[row*k/ActGroup:end*k/ActGroup]
	acc = acc[row*stride : (end-1)*stride+len(w)*PanelRows]
	var sums []float32
	if w[0].Min != nil {
		sums = x.Sums[row*groups : end*groups]
	}
	h, g := uint8(height), uint16(group)
	config := tileConfig{palette: 1, // activations, codes, sums
		bytes: [16]uint16{2 * g, 2 * g, 2 * g, 2 * g, 64, 64, 64, 64},
		rows:  [16]uint8{h, h, h, h, uint8(g / 2), uint8(g / 2), h, h},
	}
	pairs, last := groups/2, groups-1
	panels := tilePanels(w, 0, blocks*max(pairs, 1))
	switch {
	case group == 16:
		tiles16AMX(&panels[0], len(w), blocks, pairs, &split[0], &acc[0], &dx[0], unsafe.SliceData(sums),
			k, groups, 4*stride, &config, height)
	case pairs > 0:
		tiles32AMX(&panels[0], len(w), blocks, pairs, &split[0], &acc[0], &dx[0], unsafe.SliceData(sums),
			k, groups, 4*stride, &config, height)
	}
	if groups%2 == 0 {
		return
	}
	if panels = tilePanels(w, last, blocks); sums != nil {
		sums = sums[last:]
	}
	tiles1AMX(&panels[0], len(w), blocks, 1, &split[last*2*ActGroup], &acc[0], &dx[last], unsafe.SliceData(sums), k,
		groups, 4*stride, &config, height)
}

// tilePanels returns the panels from a group on, for a number of steps.
func tilePanels(w []*Panel, g, steps int) (panels [TilePanels]tilePanel) {
	for i, p := range w {
		panels[i].codes = &p.Wide[g*p.Group*PanelRows : len(p.Scale)*p.Group][0]
		panels[i].scale = &p.Scale[g*PanelRows]
		if p.Min != nil {
			panels[i].min = &p.Min[g*PanelRows : len(p.Scale)][0]
		}
		panels[i].after, panels[i].bytes = uintptr(unsafe.Pointer(unsafe.SliceData(p.After))),
			(len(p.After)/64+steps-1)/steps*64
	}
	return panels
}
