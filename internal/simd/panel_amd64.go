package simd

// addPanelAVX512 takes the bytes between rows of init and sums, between rows of
// dx, and in the groups of a row of init. So does addPanelAVX2.
//
//go:noescape
func addPanelAVX512(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, stride, dxstride, end int, next *byte)

//go:noescape
func addPanelAVX2(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, stride, dxstride, end int, next *byte)

// addWideAVX2 is addPanelAVX2 for a multiple of four rows, and codes as widenCodesAVX2
// leaves them: 16 bits each, in the order of Panel.Wide.
//
//go:noescape
func addWideAVX2(acc []float32, codes *uint16, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, stride, dxstride, end int)

//go:noescape
func widenCodesAVX2(dst *uint16, codes *byte, vectors int)

// wideRows are so many rows that codes are widened for all of them, which takes about
// as long as three rows do.
const wideRows = 16

func addPanel(acc []float32, w *Panel, x *Acts) {
	rows, groups := len(acc)/PanelRows, len(w.Scale)/PanelRows
	k := groups * w.Group
	if tier == generic || rows == 0 || groups == 0 || k%ActGroup != 0 || w.Group != 16 && w.Group != 32 {
		addPanelGeneric(acc, w, x)
		return
	}
	_, _, _ = w.Codes[:k*PanelRows], x.Q[:rows*k], x.DX[:rows*k/ActGroup]
	var min, sums *float32
	if w.Min != nil {
		min, sums = &w.Min[:groups*PanelRows][0], &x.Sums[:rows*groups][0]
	}
	var init *int32
	if x.Init != nil {
		init = &x.Init[:rows*groups][0]
	}
	acc = acc[:rows*PanelRows]
	switch {
	case tier < avx512 && rows >= wideRows && k <= StoredColumns:
		addWide(acc, w, x, min, init, sums)
	case tier < avx512:
		addPanelAVX2(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, 4*groups, k/ActGroup*4, 4*groups, w.Next)
	default:
		addPanelAVX512(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, 4*groups, k/ActGroup*4, 4*groups, w.Next)
	}
}

// addWide is addPanel with codes widened, but for the last rows.
func addWide(acc []float32, w *Panel, x *Acts, min *float32, init *int32, sums *float32) {
	var codes [StoredColumns * PanelRows]uint16
	groups, n := len(w.Scale)/PanelRows, len(acc)/PanelRows&^3
	k := groups * w.Group
	widenCodesAVX2(&codes[0], &w.Codes[0], k/4)
	addWideAVX2(acc[:n*PanelRows], &codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, 4*groups, k/ActGroup*4, 4*groups)
	rest := Acts{Q: x.Q[n*k:], DX: x.DX[n*k/ActGroup:]}
	if init != nil {
		rest.Init = x.Init[n*groups:]
	}
	if min != nil {
		rest.Sums = x.Sums[n*groups:]
	}
	addPanel(acc[n*PanelRows:], w, &rest)
}

func addTiles(acc []float32, w []*Panel, x *Acts, split []uint16) {
	if len(w) == 0 {
		return
	}
	k, group, rows := len(w[0].Scale)/PanelRows*w[0].Group, w[0].Group, len(acc)/PanelRows/len(w)
	if tier < amx || rows < 4 || k == 0 || k%ActGroup != 0 || group != 16 && group != 32 {
		addTilesGeneric(acc, w, x, split)
		return
	}
	stride := len(w) * PanelRows
	for ; len(w) > TilePanels; w = w[TilePanels:] {
		addTilesAMX(acc, stride, rows, w[:TilePanels], x, split)
		acc = acc[TilePanels*PanelRows:]
	}
	addTilesAMX(acc, stride, rows, w, x, split)
}

func hasTiles(rows int) bool { return tier >= amx && rows >= 12 }

func split(dst []uint16, q []int16) {
	if tier < amx || len(q)%ActGroup != 0 {
		splitGeneric(dst, q)
		return
	}
	splitAVX512(dst[:2*len(q)], q)
}

func widen(dst []uint16, codes []byte, offset byte) {
	if tier < amx {
		widenGeneric(dst, codes, offset)
		return
	}
	widenAVX512(dst[:len(codes)], codes, offset)
}
