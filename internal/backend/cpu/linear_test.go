package cpu

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/panel"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// TestSpans: whatever pieces a loop over one row is cut into, their spans have each
// panel once, at no more places than there are.
func TestSpans(t *testing.T) {
	for panels := 1; panels < 70; panels++ {
		for _, gap := range []int{panels, apart(panels)} {
			for _, piece := range []int{1, 3, 100} {
				p, visits := product{n: panels, gap: gap}, make([]int, panels)
				for from := 0; from < gap; from += piece {
					for at := from; at < min(from+piece, gap); {
						s := p.span(at, min(from+piece, gap), 2)
						if s.to <= at || s.to > at+2 || s.places > simd.RowPlaces {
							t.Fatalf("%d panels, gap %d: a span %+v from %d", panels, gap, s, at)
						}
						for i := range s.panels() {
							visits[s.panel(i)]++
						}
						at = s.to
					}
				}
				if slices.Max(visits) != 1 || slices.Min(visits) != 1 {
					t.Fatalf("%d panels, gap %d, pieces of %d: %v visits", panels, gap, piece, visits)
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
