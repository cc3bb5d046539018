package simd

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// TestAddRows compares every tier with the generic twin, and that with AddRow's, over
// panels and activations that end where memory ends.
func TestAddRows(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(11)
		for i := range 320 {
			s, chunks, rows, panels := stored(i), 1+i%3, 2+i%7, 1+i/3%3
			if s.Group != ActGroup {
				continue
			}
			for j := range s.Table {
				s.Table[j] = byte(r.Uint32())
			}
			columns := chunks * StoredColumns
			_, x := panelCase(r, columns, s.Group, rows, s.Min, i/20&1 == 1 || s.Codes == CodesTable)
			if i%4 == 3 {
				x.DX = anything(r, len(x.DX), i%8 == 7)
			}
			if x.Init != nil {
				s.Offset = []byte{8, 128, 16, 32, 128}[s.Codes%5]
				for t := range rows {
					GroupInit(x.Init[t*columns/s.Group:][:columns/s.Group], x.Q[t*columns:][:columns], s.Group, int32(s.Offset))
				}
			}
			joined, twin := as[byte](guard, Joined(rows, columns)), make([]byte, Joined(rows, columns))
			Join(joined, x, rows)
			each := func(acc []float32, data []byte, panel int) {
				for p := range panels {
					for t := range rows {
						a := Acts{Q: x.Q[t*columns:][:columns], DX: x.DX[t*columns/ActGroup:]}
						if x.Init != nil {
							a.Init = x.Init[t*columns/s.Group:]
						}
						if x.Sums != nil {
							a.Sums = x.Sums[t*columns/s.Group:]
						}
						addRowGeneric(acc[(p*rows+t)*PanelRows:][:PanelRows], data[p*panel:][:chunks*s.Chunk], s, &a)
					}
				}
			}
			panel := chunks*s.Chunk + i%2*s.Chunk/2
			data := as[byte](guard, (panels-1)*panel+chunks*s.Chunk)
			for j := range data {
				data[j] = byte(r.Uint32()) // exponents of all kinds, NaN and infinity too
			}
			acc := anything(r, panels*rows*PanelRows, false)
			want, generic := slices.Clone(acc), slices.Clone(acc)
			each(want, data, panel)
			addRowsGeneric(generic, data, panel, s, joined, rows)
			AddRows(acc, data, panel, s, joined, rows)
			what := fmt.Sprintf("case %d: rows %d panels %d chunks %d %+v", i, rows, panels, chunks, *s)
			equal(t, "generic "+what, generic, want)
			equal(t, what, acc, want)
			for j := range twin {
				if twin[j] = 7; j%joinedStep(rows) < joinHeader {
					twin[j] = joined[j]
				}
			}
			for t := range rows {
				joinRowGeneric(twin[joinHeader+t*joinColumns:], x.Q[t*columns:][:columns], rows)
			}
			if !bytes.Equal(joined, twin) {
				t.Fatalf("%s: Join differs", what)
			}
		}
	})
}
