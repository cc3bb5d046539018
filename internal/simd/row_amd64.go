package simd

//go:noescape
func addRow4AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRowTableAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow41AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow42AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow8AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow4AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRowTableAVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow41AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow42AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

//go:noescape
func addRow8AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, group int, table *[16]byte, gap, sumgap, end int)

func hasRow() bool { return tier >= avx2 }

func addRow(acc []float32, data []byte, n, panel, gap int, s *Stored, x *Acts) {
	panels, chunks := len(acc)/PanelRows, len(x.Q)/StoredColumns
	if tier == generic || panels == 0 || chunks == 0 {
		addPanelsGeneric(acc, data, n, panel, gap, s, x)
		return
	}
	for i := range n {
		addRowPlaces(acc[i*PanelRows:], data[i*panel:], 4*n*PanelRows, gap, panels/n, chunks, s, x)
	}
}

// addRowPlaces is addRow for a panel at each of so many places, and their sums, so many
// bytes apart.
func addRowPlaces(acc []float32, data []byte, sumgap, gap, places, chunks int, s *Stored, x *Acts) {
	groups := chunks * StoredColumns / s.Group
	acc, data = acc[:(places-1)*sumgap/4+PanelRows], data[:(places-1)*gap+chunks*s.Chunk]
	p, at, table := &acc[0], &data[0], s.Table
	q, dx := &x.Q[:chunks*StoredColumns][0], &x.DX[:chunks*StoredColumns/ActGroup][0]
	var init *int32
	if x.Init != nil {
		init = &x.Init[:groups][0]
	}
	var sums *float32
	if s.Min {
		sums = &x.Sums[:groups][0]
	}
	group := 2 * PanelRows
	if s.Bytes {
		group = PanelRows
	}
	switch {
	case s.Codes == Codes4 && tier >= avx512:
		addRow4AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes4:
		addRow4AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == CodesTable && tier >= avx512:
		addRowTableAVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == CodesTable:
		addRowTableAVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes41 && tier >= avx512:
		addRow41AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes41:
		addRow41AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes42 && tier >= avx512:
		addRow42AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes42:
		addRow42AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes8 && tier >= avx512:
		addRow8AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	case s.Codes == Codes8:
		addRow8AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, sumgap, places*gap)
	}
}
