package simd

//go:noescape
func addPanelNEON(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, groups, step int)

//go:noescape
func addPanelSDOT(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32, group, groups, step int)

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
	init, step := new(int32), 0
	if x.Init != nil {
		init, step = &x.Init[:rows*groups][0], 4
	}
	acc = acc[:rows*PanelRows]
	if tier >= sdot {
		addPanelSDOT(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, groups, step)
	} else {
		addPanelNEON(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, groups, step)
	}
}
