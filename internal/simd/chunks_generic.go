package simd

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
