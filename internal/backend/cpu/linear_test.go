package cpu

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// TestSpans: whatever pieces a loop is cut into, their spans have each panel once for each
// row: of one row at no more places than there are, of many rows in whole tiles.
func TestSpans(t *testing.T) {
	for panels := 1; panels < 70; panels++ {
		for _, c := range []product{{rows: 1, block: 1, gap: panels}, {rows: 1, block: 1, gap: oddGap(panels)}, {rows: 100, block: 48, gap: panels}, {rows: 64, block: 64, gap: panels}} {
			for _, piece := range []int{1, 3, 100} {
				p, visits := c, make([]int, panels*c.rows)
				p.n, p.per = panels, (c.gap+piece-1)/piece*piece
				end := (c.rows + c.block - 1) / c.block * p.per
				for from := 0; from < end; from += piece {
					for at := from; at < from+piece; {
						s, next := p.firstSpan(at, from+piece, 2)
						if next <= at || s.to > s.from+2 || s.places > simd.RowPlaces {
							t.Fatalf("%d panels, %+v: a span %+v from %d, next %d", panels, p, s, at, next)
						}
						for i := range s.panels() {
							for row := range s.rows {
								visits[s.panel(i)*c.rows+s.row+row]++
							}
						}
						at = next
					}
				}
				if slices.Max(visits) != 1 || slices.Min(visits) != 1 {
					t.Fatalf("%d panels, %+v, pieces of %d: %v visits", panels, p, piece, visits)
				}
			}
		}
	}
}

// TestPlaces: a thread reads at one place where several would leave shares uneven.
func TestPlaces(t *testing.T) {
	const k = 32
	place, err := panel.New(tensor.Tensor{DType: tensor.Q4_0, Shape: tensor.Shape{panel.Rows, k}, Data: make([]byte, tensor.Q4_0.RowBytes(panel.Rows*k))})
	if err != nil {
		t.Fatal(err)
	}
	w, err := place.Move(make([]byte, panel.Size(tensor.Q4_0, panel.Rows, k)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ threads, panels, gap int }{{1, 32, 9}, {2, 32, 9}, {2, 24, 24}, {4, 128, 33}, {8, 128, 128}, {8, 512, 129}, {16, 512, 512}, {16, 8016, 2005}} {
		b := New(Options{Threads: c.threads})
		p := product{e: &executable{b: b}, panels: w, row: true, rows: 1}
		if err := p.loop(c.panels, func(_, _, _ int) error { return nil }); err != nil || p.gap != c.gap {
			t.Errorf("%+v: gap %d, %v", c, p.gap, err)
		}
		p.panels = place
		if err := p.loop(c.panels, func(_, _, _ int) error { return nil }); err != nil || p.gap != c.panels {
			t.Errorf("%+v in place: gap %d, %v", c, p.gap, err)
		}
		b.Close()
	}
}

// TestBlocks: rows of up to 127 sequences that decode stay in one block, so a step unpacks each
// panel once, for 9 rows as for 64. Only longer prompts are cut, for the sake of many threads.
func TestBlocks(t *testing.T) {
	for _, threads := range []int{1, 2, 16, 64} {
		b := New(Options{Threads: threads})
		for rows := 1; rows < 2*leastRows; rows++ {
			p := product{e: &executable{b: b}, rows: rows}
			p.divide(40)
			if p.block != rows {
				t.Errorf("%d rows, %d threads: blocks of %d", rows, threads, p.block)
			}
		}
		b.Close()
	}
}
