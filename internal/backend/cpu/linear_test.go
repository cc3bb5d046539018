package cpu

import (
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/simd"
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
