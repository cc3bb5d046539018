package simd

//go:noescape
func addChunks4AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)

//go:noescape
func addChunks8AVX512(acc *float32, data *byte, q *int16, dx *float32, init *int32, chunks, scales, stride int)

func hasChunks(rows int) bool { return tier >= avx512 && (rows == 4 || rows == 8) }

func addChunks(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	panels, chunks := len(acc)/PanelRows/rows, len(x.Q)/rows/StoredColumns
	if !s.HasChunks(rows) || x.Init == nil || panels == 0 || chunks == 0 {
		addChunksGeneric(acc, data, panel, s, x, rows)
		return
	}
	groups := rows * chunks * StoredColumns / ActGroup
	q, dx, init := &x.Q[0], &x.DX[:groups][0], &x.Init[:groups][0]
	for i := range panels {
		sums, codes := &acc[i*rows*PanelRows:][:rows*PanelRows][0], &data[i*panel:][:chunks*s.Chunk][0]
		if rows == 8 {
			addChunks8AVX512(sums, codes, q, dx, init, chunks, s.Scales, s.Chunk)
		} else {
			addChunks4AVX512(sums, codes, q, dx, init, chunks, s.Scales, s.Chunk)
		}
	}
}
