package simd

import (
	"encoding/binary"
	"math"
)

// joinRowGeneric splits a row's bytes. dst begins at its row of the first tile.
func joinRowGeneric(dst []byte, q []int16, rows int) {
	step, tile := joinedStep(rows), 2*rows*joinColumns
	for ; len(q) > 0; dst, q = dst[min(step, len(dst)):], q[joinColumns:] {
		for g := range 2 {
			high, low := dst[g*tile/2:][:joinColumns], dst[tile+g*tile/2:][:joinColumns]
			clear(high)
			clear(low)
			for c := g * ActGroup; c < (g+1)*ActGroup; c++ {
				v := q[c&^3+order[c%4]]
				high[c], low[c] = byte(v>>8), byte(v)
			}
		}
	}
}

func addRowsGeneric(acc []float32, data []byte, panel int, s *Stored, joined []byte, rows int) {
	columns := len(joined) / joinedStep(rows) * joinColumns
	x := make([]Acts, rows)
	for t := range x {
		x[t] = unjoin(joined, columns, rows, t)
	}
	for i := range len(acc) / PanelRows {
		addRowGeneric(acc[i*PanelRows:], data[i/rows*panel:][:columns/StoredColumns*s.Chunk], s, &x[i%rows])
	}
}

// unjoin is row t of what Join made.
func unjoin(joined []byte, columns, rows, t int) Acts {
	groups := columns / ActGroup
	x := Acts{Q: make([]int16, columns), DX: make([]float32, groups), Init: make([]int32, groups), Sums: make([]float32, groups)}
	for g := range groups {
		at := joined[g/2*joinedStep(rows):]
		four := func(i int) uint32 { return binary.LittleEndian.Uint32(at[4*((2*i+g%2)*FewRows+t):]) }
		x.DX[g], x.Init[g], x.Sums[g] = math.Float32frombits(four(0)), int32(four(1)), math.Float32frombits(four(2))
		high, low := at[joinHeader+(g%2*rows+t)*joinColumns:], at[joinHeader+(2*rows+g%2*rows+t)*joinColumns:]
		for c := range ActGroup {
			i := g%2*ActGroup + c
			x.Q[g*ActGroup+c&^3+order[c%4]] = int16(high[i])<<8 | int16(low[i])
		}
	}
	return x
}
