package simd

import (
	"encoding/binary"
	"math"
)

// FewRows is the most rows that AddRows takes.
const FewRows = 8

// HasRows reports whether AddRows is faster for so many rows than AddPanel and AddChunks.
// It is where groups are of 32.
func (s *Stored) HasRows(rows int) bool {
	return s != nil && s.Group == ActGroup && rows > 1 && rows <= FewRows && hasRows()
}

const (
	joinColumns = 2 * ActGroup        // of a step
	joinHeader  = 3 * 2 * FewRows * 4 // the bytes before its tiles: DX, Init and Sums, [2][FewRows] of each
)

// Joined is the bytes that Join makes of whole chunks of rows of activations.
func Joined(rows, columns int) int { return columns / joinColumns * joinedStep(rows) }

func joinedStep(rows int) int { return joinHeader + 2*2*rows*joinColumns }

// Join makes of rows of activations, whole chunks for groups of 32, what AddRows
// reads. A step is two groups: DX, Init and Sums, those of the first group and then of
// the second, and two tiles [2*rows][64], of high bytes and of low ones. The first rows
// of a tile have the columns of the first group, in order, and zeros where those of the
// second are; the others have the second's.
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

// AddRows is AddRow for 2 to FewRows rows and for panels that begin so many bytes
// apart, with activations as Join makes them. acc is [panel][rows][PanelRows].
func AddRows(acc []float32, data []byte, panel int, s *Stored, joined []byte, rows int) {
	addRows(acc, data, panel, s, joined, rows)
}
