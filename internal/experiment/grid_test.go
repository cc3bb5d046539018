package experiment

import (
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
)

// TestGridBound: a grid with too many cells is an error before they are listed.
func TestGridBound(t *testing.T) {
	const tokens = 1 << 12
	r := &Runner{Spec: &Spec{Positions: slices.Repeat([]string{"each"}, 2*maxCells/tokens)}, Pairs: []Pair{{Clean: &Prompt{IDs: make([]int, tokens)}}}}
	err := r.column(0, karat.Node{Name: "x"}, Place{}, "", 0)
	if err == nil || !strings.Contains(err.Error(), "more than 4194304 cells") || len(r.grid) > 0 {
		t.Errorf("%d cells: %v", len(r.grid), err)
	}
}

// TestPageCounts: the page tells how many maps it leaves out.
func TestPageCounts(t *testing.T) {
	x := lab.Number(1)
	v := Values{Difference: &x, Probability: &x, KL: &x}
	b := &Bundle{}
	for i := range 25 { // of three maps each
		b.Manifest.Pairs = append(b.Manifest.Pairs, Pair{Clean: &Prompt{}, Base: v})
		b.Cells = append(b.Cells, Cell{Pair: i, Node: "n", At: "0", Values: v})
	}
	page := string(b.page())
	if n := strings.Count(page, "<svg"); n != maxMaps || !strings.Contains(page, "<p>15 maps are left out") {
		t.Errorf("%d maps, and %q", n, page[strings.LastIndex(page, "<p>"):])
	}
}
