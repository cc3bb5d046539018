package simd

// HasChunks reports whether AddChunks is faster for so many rows than AddPanel, which
// a caller calls for each chunk. It is for codes that need no unpacking; where HasRows
// holds, AddRows is faster.
func (s *Stored) HasChunks(rows int) bool {
	return s.chunked() && tier >= avx512 && (rows == 4 || rows == 8)
}

// chunked reports whether kernels of AddChunks read this layout.
func (s *Stored) chunked() bool {
	return s != nil && s.Codes == Codes8 && s.Group == ActGroup && !s.Bytes && !s.Min
}

// AddChunks is AddRow for several rows and for panels that begin so many bytes apart.
// acc is [panel][rows][PanelRows], and x has chunk after chunk: Q is
// [chunk][rows][StoredColumns], and the rest likewise.
func AddChunks(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	if rows <= 0 {
		return
	}
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

func addChunksGeneric(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	for i := range len(acc) / PanelRows {
		for c := range len(x.Q) / rows / StoredColumns {
			a := x.chunk(c*rows+i%rows, s.Group)
			addRowGeneric(acc[i*PanelRows:], data[i/rows*panel+c*s.Chunk:][:s.Chunk], s, &a)
		}
	}
}

// chunk is piece i of StoredColumns columns.
func (x *Acts) chunk(i, group int) Acts {
	const n = StoredColumns
	a := Acts{Q: x.Q[i*n:][:n], DX: x.DX[i*n/ActGroup:]}
	if x.Init != nil {
		a.Init = x.Init[i*n/group:]
	}
	if x.Sums != nil {
		a.Sums = x.Sums[i*n/group:]
	}
	return a
}
