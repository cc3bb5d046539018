package simd

// addPanelAVX512 takes the bytes between rows of init and sums, between rows of
// dx, and in the groups of a row of init. So does addPanelAVX2.
//
//go:noescape
func addPanelAVX512(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, stride, dxstride, end int, next *byte)

//go:noescape
func addPanelAVX2(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, stride, dxstride, end int, next *byte)

// addWideAVX2 is addPanelAVX2 for a multiple of four rows, and codes as widenCodesAVX2
// leaves them: 16 bits each, in the order of Panel.Wide.
//
//go:noescape
func addWideAVX2(acc []float32, codes *uint16, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, stride, dxstride, end int)

//go:noescape
func widenCodesAVX2(dst *uint16, codes *byte, vectors int)

// wideRows are so many rows that codes are widened for all of them, which takes about
// as long as three rows do.
const wideRows = 16

// addPanelVec adds the products of whole groups.
func addPanelVec(acc []float32, w *Panel, x *Acts, min, sums *float32, init *int32) {
	groups := len(w.Scale) / PanelRows
	k := groups * w.Group
	switch {
	case tier >= avx512:
		addPanelAVX512(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums,
			w.Group, 4*groups, k/ActGroup*4, 4*groups, w.Next)
	case len(acc) >= wideRows*PanelRows && k <= StoredColumns:
		addWide(acc, w, x, min, init, sums)
	default:
		addPanelAVX2(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums,
			w.Group, 4*groups, k/ActGroup*4, 4*groups, w.Next)
	}
}

// addWide is addPanelVec with codes widened, except for the last rows.
func addWide(acc []float32, w *Panel, x *Acts, min *float32, init *int32, sums *float32) {
	var codes [StoredColumns * PanelRows]uint16
	groups, n := len(w.Scale)/PanelRows, len(acc)/PanelRows&^3
	k := groups * w.Group
	widenCodesAVX2(&codes[0], &w.Codes[0], k/4)
	addWideAVX2(acc[:n*PanelRows], &codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums,
		w.Group, 4*groups, k/ActGroup*4, 4*groups)
	rest := Acts{Q: x.Q[n*k:], DX: x.DX[n*k/ActGroup:]}
	if init != nil {
		rest.Init = x.Init[n*groups:]
	}
	if min != nil {
		rest.Sums = x.Sums[n*groups:]
	}
	AddPanel(acc[n*PanelRows:], w, &rest)
}
