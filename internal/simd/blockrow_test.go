package simd

import (
	"fmt"
	"slices"
	"testing"
)

// TestAddBlockRow compares every tier with the generic twin, and that with AddPanel
// over what Weave makes of the blocks, which end where memory ends.
func TestAddBlockRow(t *testing.T) {
	guard := guarded(t)
	eachTier(t, func(t *testing.T) {
		r := rng(12)
		for i := range 100 {
			blocks := i % 11
			stride := blocks*bytesQ8_0 + i/11%3
			n := (1 + i%3) * PanelRows
			rows := as[byte](guard, max(0, (n-1)*stride+blocks*bytesQ8_0))
			for j := range rows {
				rows[j] = byte(r.Uint32()) // scales of all kinds, NaN and infinity too
			}
			x := &Acts{Q: as[int16](guard, blocks*BlockWeights), DX: values(r, blocks)}
			for j := range x.Q {
				x.Q[j] = int16(r.Uint32())
				if r.IntN(8) == 0 {
					x.Q[j] = -32768
				}
			}
			if i%4 == 3 {
				x.DX = anything(r, blocks, i%8 == 7)
			}
			acc := anything(r, n, false)
			want, twin := slices.Clone(acc), slices.Clone(acc)
			for at := 0; at < n && blocks > 0; at += PanelRows {
				addWovenRow(want[at:at+PanelRows], rows[at*stride:], stride, x)
			}
			addBlockRowGeneric(twin, rows, stride, x.Q, x.DX)
			AddBlockRow(acc, rows, stride, x)
			what := fmt.Sprintf("case %d: %d rows, %d blocks, %d bytes a row", i, n, blocks, stride)
			equal(t, "generic "+what, twin, want)
			equal(t, what, acc, want)
		}
	})
}

// addWovenRow is AddBlockRow for a panel, by way of AddPanel.
func addWovenRow(acc []float32, rows []byte, stride int, x *Acts) {
	blocks := len(x.DX)
	w := &Panel{Codes: make([]byte, blocks*UnitSize), Scale: make([]float32, blocks*PanelRows), Group: BlockWeights}
	for half := range 2 {
		weaveGeneric(w.Codes[half*UnitSize/2:], rows[2+16*half:], stride, blocks, bytesQ8_0, UnitSize, 128)
	}
	for j := range w.Scale {
		at := rows[j%PanelRows*stride+j/PanelRows*bytesQ8_0:]
		loadF16Generic(w.Scale[j:j+1], []uint16{uint16(at[0]) | uint16(at[1])<<8})
	}
	init := make([]int32, blocks)
	groupInitGeneric(init, x.Q, BlockWeights, 128)
	addPanelGeneric(acc, w, &Acts{Q: x.Q, DX: x.DX, Init: init})
}
