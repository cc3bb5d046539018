package simd

// addBlockRowAVX2 is for blockRows rows.
//
//go:noescape
func addBlockRowAVX2(acc *[blockRows]float32, rows *byte, stride, blocks int, q *int16, dx *float32)

// blockRows are the rows that a kernel takes together.
const blockRows = 8

func hasBlockRow() bool { return tier >= avx2 }

func addBlockRow(acc []float32, rows []byte, stride int, q []int16, dx []float32) {
	if tier == generic {
		addBlockRowGeneric(acc, rows, stride, q, dx)
		return
	}
	gap, step := 1, blockRows
	if rowsApart() {
		gap, step = len(acc)/blockRows, 1
	}
	for i := range len(acc) / blockRows {
		var part [blockRows]float32
		at := acc[i*step:]
		for j := range part {
			part[j] = at[j*gap]
		}
		addBlockRowAVX2(&part, &rows[i*step*stride], gap*stride, len(dx), &q[0], &dx[0])
		for j, v := range part {
			at[j*gap] = v
		}
	}
}
