package simd

import (
	"fmt"
	"slices"
	"testing"
)

// TestAddChunks compares every tier with AddRow's generic twin, row by row, over panels
// and activations that end where memory ends.
func TestAddChunks(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(12)
		for i := range 640 {
			s, chunks, rows, panels := stored(i), 1+i%3, 1+i/5%9, 1+i/3%3
			columns := chunks * StoredColumns
			_, flat := panelCase(r, columns, s.Group, rows, s.Min, i%7 != 0)
			if i%4 == 3 {
				flat.DX = anything(r, len(flat.DX), i%8 == 7)
			}
			x := &Acts{Q: as[int16](guard, len(flat.Q)), DX: guard(len(flat.DX))}
			copy(x.Q, flat.Q)
			copy(x.DX, flat.DX)
			x.Init, x.Sums = flat.Init, flat.Sums
			panel := chunks*s.Chunk + i%2*s.Chunk/2
			data := as[byte](guard, (panels-1)*panel+chunks*s.Chunk)
			for j := range data {
				data[j] = byte(r.Uint32()) // exponents of all kinds, NaN and infinity too
			}
			acc := anything(r, panels*rows*PanelRows, false)
			want := slices.Clone(acc)
			for p := range panels {
				for t := range rows {
					a := rowOf(x, t, rows, chunks, s.Group)
					addRowGeneric(want[(p*rows+t)*PanelRows:][:PanelRows], data[p*panel:][:chunks*s.Chunk], s, &a)
				}
			}
			AddChunks(acc, data, panel, s, x, rows)
			equal(t, fmt.Sprintf("case %d: rows %d panels %d chunks %d %+v", i, rows, panels, chunks, *s), acc, want)
		}
	})
}

// rowOf is row t of what lies chunk after chunk.
func rowOf(x *Acts, t, rows, chunks, group int) (a Acts) {
	for c := range chunks {
		const n = StoredColumns
		i := c*rows + t
		a.Q, a.DX = append(a.Q, x.Q[i*n:][:n]...), append(a.DX, x.DX[i*n/ActGroup:][:n/ActGroup]...)
		if x.Init != nil {
			a.Init = append(a.Init, x.Init[i*n/group:][:n/group]...)
		}
		if x.Sums != nil {
			a.Sums = append(a.Sums, x.Sums[i*n/group:][:n/group]...)
		}
	}
	return a
}
