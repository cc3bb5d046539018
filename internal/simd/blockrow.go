package simd

// HasBlockRow reports whether Q8_0 may well stay as a file has it at first: AddBlockRow
// has vectors.
func HasBlockRow() bool { return hasBlockRow() }

// AddBlockRow is AddPanel for one row of activations and the rows of some panels of Q8_0
// as a file has them, stride bytes apart: blocks of a scale of binary16 and BlockWeights
// signed codes. acc is [panel][PanelRows]. Of x, Q and DX are read.
func AddBlockRow(acc []float32, rows []byte, stride int, x *Acts) {
	if blocks, n := len(x.DX), len(acc)/PanelRows*PanelRows; blocks > 0 && n > 0 {
		rows = rows[:(n-1)*stride+blocks*bytesQ8_0]
		addBlockRow(acc[:n], rows, stride, x.Q[:blocks*BlockWeights], x.DX)
	}
}
