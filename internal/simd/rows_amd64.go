package simd

//go:noescape
func addRows4AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min int, table *[16]byte, config *tileConfig)

//go:noescape
func addRowsTableAMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min int, table *[16]byte, config *tileConfig)

//go:noescape
func addRows41AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min int, table *[16]byte, config *tileConfig)

//go:noescape
func addRows8AMX(acc *float32, data, acts *byte, size, rows, panels, chunks, panel,
	scales, stride, bytes, min int, table *[16]byte, config *tileConfig)

//go:noescape
func joinRowAVX512(dst *byte, q *int16, steps, step, tile int)

// addRowsAMX is AddRows for some panels and chunks, none of them of Codes42.
func addRowsAMX(acc []float32, data []byte, panel int, s *Stored, joined []byte, rows, panels, chunks int) {
	h := uint8(2 * rows)
	config := tileConfig{palette: 1, // products, activations, codes
		bytes: [16]uint16{64, 64, 64, 64, 64, 64, 64},
		rows:  [16]uint8{h, h, h, h, h, h, 16},
	}
	p, size, bytes, min := &acc[0], len(joined), 0, 0
	if s.Bytes {
		bytes = 1
	}
	if s.Min {
		min = 1
	}
	switch s.Codes {
	case Codes4:
		addRows4AMX(p, &data[0], &joined[0], size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, nil, &config)
	case CodesTable:
		addRowsTableAMX(p, &data[0], &joined[0], size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, s.Table, &config)
	case Codes41:
		addRows41AMX(p, &data[0], &joined[0], size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, nil, &config)
	case Codes8:
		addRows8AMX(p, &data[0], &joined[0], size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, nil, &config)
	}
}
