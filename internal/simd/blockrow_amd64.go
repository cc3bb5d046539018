package simd

// addBlockRowAVX2 is for half of the rows.
//
//go:noescape
func addBlockRowAVX2(acc *float32, rows *byte, stride, blocks int, q *int16, dx *float32)

func hasBlockRow() bool { return tier >= avx2 }

func addBlockRow(acc []float32, rows []byte, stride int, q []int16, dx []float32) {
	if tier == generic {
		addBlockRowGeneric(acc, rows, stride, q, dx)
		return
	}
	const half = PanelRows / 2
	addBlockRowAVX2(&acc[0], &rows[0], stride, len(dx), &q[0], &dx[0])
	addBlockRowAVX2(&acc[half], &rows[half*stride], stride, len(dx), &q[0], &dx[0])
}
