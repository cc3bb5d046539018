package simd

//go:noescape
func addRow4AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRowTableAVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow41AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow42AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow8AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow4AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRowTableAVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow41AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow42AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

//go:noescape
func addRow8AVX2(acc *float32, data *byte, q *int16, dx *float32, init *int32, sums *float32, chunks, scales, stride, bytes int, table *[16]byte)

func hasRow() bool { return tier >= avx2 }

func addRow(acc []float32, data []byte, s *Stored, x *Acts) {
	chunks, groups := len(data)/s.Chunk, len(data)/s.Chunk*StoredColumns/s.Group
	if tier == generic || chunks == 0 {
		addRowGeneric(acc, data, s, x)
		return
	}
	p, q, dx := &acc[:PanelRows][0], &x.Q[:chunks*StoredColumns][0], &x.DX[:chunks*StoredColumns/ActGroup][0]
	var init *int32
	if x.Init != nil {
		init = &x.Init[:groups][0]
	}
	var sums *float32
	if s.Min {
		sums = &x.Sums[:groups][0]
	}
	bytes := 0
	if s.Bytes {
		bytes = 1
	}
	at, table := &data[0], s.Table
	switch {
	case s.Codes == Codes4 && tier >= avx512:
		addRow4AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes4:
		addRow4AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == CodesTable && tier >= avx512:
		addRowTableAVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == CodesTable:
		addRowTableAVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes41 && tier >= avx512:
		addRow41AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes41:
		addRow41AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes42 && tier >= avx512:
		addRow42AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes42:
		addRow42AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes8 && tier >= avx512:
		addRow8AVX512(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	case s.Codes == Codes8:
		addRow8AVX2(p, at, q, dx, init, sums, chunks, s.Scales, s.Chunk, bytes, table)
	}
}
