package simd

import (
	"encoding/binary"
	"math"
)

// FewRows is the maximum number of rows for AddRows.
const FewRows = 8

// HasRows reports whether AddRows is faster for a number of rows than AddPanel and AddChunks: only where groups are of
// 32.
func (s *Stored) HasRows(rows int) bool {
	return s != nil && s.Group == ActGroup && s.Shared == 0 && !s.Brain && rows > 1 && rows <= FewRows && tier >= amx
}

const (
	joinColumns = 2 * ActGroup        // of a step
	joinHeader  = 3 * 2 * FewRows * 4 // the bytes before its tiles: DX, Init and Sums, [2][FewRows] of each
)

// Joined returns the bytes written by Join for whole chunks of rows of activations.
func Joined(rows, columns int) int { return columns / joinColumns * joinedStep(rows) }

func joinedStep(rows int) int { return joinHeader + 2*2*rows*joinColumns }

// Join prepares rows of activations, whole chunks for groups of 32, for AddRows. A step is two groups: DX, Init and
// Sums, of the first group and then of the second, and two tiles [2*rows][64], of high bytes and of low bytes. The
// first rows of a tile have the columns of the first group, in order, and zeros for the second group; the last rows
// have the columns of the second group.
func Join(dst []byte, x *Acts, rows int) {
	k := len(x.Q) / rows
	groups := k / ActGroup
	for g := range groups {
		at := dst[g/2*joinedStep(rows)+g%2*4*FewRows:][:joinHeader-4*FewRows]
		for t := range rows {
			init, sum := int32(0), float32(0)
			if x.Init != nil {
				init = x.Init[t*groups+g]
			}
			if x.Sums != nil {
				sum = x.Sums[t*groups+g]
			}
			binary.LittleEndian.PutUint32(at[4*t:], math.Float32bits(x.DX[t*groups+g]))
			binary.LittleEndian.PutUint32(at[8*FewRows+4*t:], uint32(init))
			binary.LittleEndian.PutUint32(at[16*FewRows+4*t:], math.Float32bits(sum))
		}
	}
	for t := range rows {
		joinRow(dst[joinHeader+t*joinColumns:], x.Q[t*k:(t+1)*k], rows)
	}
}

// AddRows does AddRow's work for 2 to FewRows rows and for panels, panel bytes apart, with activations made by Join.
// acc is [panel][rows][PanelRows]. Init must be what GroupInit makes for s.Offset: it is left out where codes less the
// offset are multiplied.
func AddRows(acc []float32, data []byte, panel int, s *Stored, joined []byte, rows int) {
	panels, chunks := len(acc)/PanelRows/rows, len(joined)/joinedStep(rows)*joinColumns/StoredColumns
	if tier < amx || s.Codes == Codes42 || s.Shared > 0 || s.Brain || rows < 2 || rows > FewRows || panels == 0 ||
		chunks == 0 {
		addRowsGeneric(acc, data, panel, s, joined, rows)
		return
	}
	addRowsAMX(acc, data[:(panels-1)*panel+chunks*s.Chunk], panel, s, joined, rows, panels, chunks)
}

// joinRow splits a row's bytes. dst begins at its row of the first tile.
func joinRow(dst []byte, q []int16, rows int) {
	steps, step, tile := len(q)/joinColumns, joinedStep(rows), 2*rows*joinColumns
	if tier < amx || steps == 0 {
		joinRowGeneric(dst, q, rows)
		return
	}
	_ = dst[(steps-1)*step+tile+tile/2+joinColumns-1]
	joinRowAVX512(&dst[0], &q[0], steps, step, tile)
}

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

// unjoin returns row t of activations made by Join.
func unjoin(joined []byte, columns, rows, t int) Acts {
	groups := columns / ActGroup
	x := Acts{Q: make([]int16, columns), DX: make([]float32, groups), Init: make([]int32, groups),
		Sums: make([]float32, groups)}
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

// addRowsAMX does AddRows's work for some panels and chunks, none of Codes42.
func addRowsAMX(acc []float32, data []byte, panel int, s *Stored, joined []byte, rows, panels, chunks int) {
	h := uint8(2 * rows)
	config := tileConfig{palette: 1, // products, activations, codes
		bytes: [16]uint16{64, 64, 64, 64, 64, 64, 64},
		rows:  [16]uint8{h, h, h, h, h, h, 16},
	}
	p, d, a, size := &acc[0], &data[0], &joined[0], len(joined)
	bytes, min, init := number(s.Bytes), number(s.Min), number(s.Offset > 0)
	switch {
	case s.Codes == Codes4 && s.Offset == 8:
		addRowsLess8AMX(p, d, a, size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, 0, nil, &config)
	case s.Codes == Codes4:
		addRows4AMX(p, d, a, size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, init, nil, &config)
	case s.Codes == CodesTable:
		table := *s.Table
		for i := range table {
			table[i] -= s.Offset
		}
		addRowsTableAMX(p, d, a, size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, 0, &table, &config)
	case s.Codes == Codes41:
		addRows41AMX(p, d, a, size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, init, nil, &config)
	case s.Codes == Codes8:
		addRows8AMX(p, d, a, size, rows, panels, chunks, panel, s.Scales, s.Chunk, bytes, min, init, nil, &config)
	}
}

// number returns 1 for true.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
