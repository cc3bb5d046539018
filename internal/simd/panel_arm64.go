package simd

//go:noescape
func addPanelNEON(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, groups, step int)

//go:noescape
func addPanelSDOT(acc []float32, codes *byte, scale, min *float32, q *int16, dx *float32, init *int32, sums *float32,
	group, groups, step int)

// addPanelVec adds the products of whole groups.
func addPanelVec(acc []float32, w *Panel, x *Acts, min, sums *float32, init *int32) {
	groups, step := len(w.Scale)/PanelRows, 4
	if init == nil {
		init, step = new(int32), 0
	}
	if tier >= sdot {
		addPanelSDOT(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, groups, step)
	} else {
		addPanelNEON(acc, &w.Codes[0], &w.Scale[0], min, &x.Q[0], &x.DX[0], init, sums, w.Group, groups, step)
	}
}
