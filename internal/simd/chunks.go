package simd

// HasChunks reports whether AddChunks is faster for so many rows than AddPanel, which
// a caller calls for each chunk. It is for codes that need no unpacking; where HasRows
// holds, AddRows is faster.
func (s *Stored) HasChunks(rows int) bool { return s.chunked() && hasChunks(rows) }

// chunked reports whether kernels of AddChunks read this layout.
func (s *Stored) chunked() bool {
	return s != nil && s.Codes == Codes8 && s.Group == ActGroup && !s.Bytes && !s.Min
}

// AddChunks is AddRow for several rows and for panels that begin so many bytes apart.
// acc is [panel][rows][PanelRows], and x has chunk after chunk: Q is
// [chunk][rows][StoredColumns], and the rest likewise.
func AddChunks(acc []float32, data []byte, panel int, s *Stored, x *Acts, rows int) {
	if rows > 0 {
		addChunks(acc, data, panel, s, x, rows)
	}
}
