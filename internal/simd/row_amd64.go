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

// rowPlaces is at how many places memory is read.
const rowPlaces = 4

func addRow(acc []float32, data []byte, panel int, s *Stored, x *Acts) {
	panels, chunks := len(acc)/PanelRows, len(x.Q)/StoredColumns
	if tier == generic || panels == 0 || chunks == 0 {
		addPanelsGeneric(acc, data, panel, s, x)
		return
	}
	// Each place goes on from one panel to the next: memory is read as so many pieces,
	// an odd number of panels apart, for powers of two share parts of caches.
	for at := 0; at < panels; {
		places := min(rowPlaces, panels-at)
		run := ((panels-at)/places - 1) | 1
		for i := at; i < at+run; i++ {
			addRowPlaces(acc[i*PanelRows:], data[i*panel:], run, panel, places, chunks, s, x)
		}
		at += run * places
	}
}

// addRowPlaces is addRow for panels at so many places, each run panels behind the one
// before.
func addRowPlaces(acc []float32, data []byte, run, panel, places, chunks int, s *Stored, x *Acts) {
	groups, gap := chunks*StoredColumns/s.Group, run*panel
	acc, data = acc[:((places-1)*run+1)*PanelRows], data[:(places-1)*gap+chunks*s.Chunk]
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
		addRow4AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes4:
		addRow4AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == CodesTable && tier >= avx512:
		addRowTableAVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == CodesTable:
		addRowTableAVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes41 && tier >= avx512:
		addRow41AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes41:
		addRow41AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes42 && tier >= avx512:
		addRow42AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes42:
		addRow42AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes8 && tier >= avx512:
		addRow8AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	case s.Codes == Codes8:
		addRow8AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, group, table, gap, 4*run*PanelRows, places*gap)
	}
}
