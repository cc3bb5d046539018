package experiment

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab"
)

// TestGridBound: a grid with too many cells is an error before any is listed or computed.
func TestGridBound(t *testing.T) {
	const tokens = 1 << 12
	r := &Runner{Spec: &Spec{Positions: slices.Repeat([]string{"each"}, maxCells/tokens)}}
	p := &Pair{Clean: &Prompt{IDs: make([]int, tokens)}}
	n, err := r.count(0, 1, p)
	if n != maxCells || err != nil {
		t.Errorf("%d cells: %v, want the most", n, err)
	}
	for _, x := range [][2]int{{n, 1}, {0, 2}, {1, 1}, {0, 1 << 40}} {
		if _, err := r.count(x[0], x[1], p); err == nil || !strings.Contains(err.Error(), "more than 4194304 cells") {
			t.Errorf("%v more: %v", x, err)
		}
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

// TestResumeWithout: cells of an interrupted run that lack a metric are refused, not shown.
func TestResumeWithout(t *testing.T) {
	path := filepath.Join(t.TempDir(), cellsFile)
	r := &Runner{Spec: &Spec{Metrics: metricNames}, grid: []gridCell{{Cell: Cell{Node: "n", At: "0"}}}}
	for text, want := range map[string]string{
		`{"node":"n","at":"0","logit_difference":1,"probability":1,"kl":0}`: "",
		`{"node":"n","at":"0","logit_difference":1,"kl":0}`:                 "cell 0 has no probability",
	} {
		if err := os.WriteFile(path, []byte("{\"model_fingerprint\":\"p\"}\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cells, err := resume(path, r, "p")
		if want == "" && (err != nil || len(cells) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %d cells, %v", text, len(cells), err)
		}
	}
}
