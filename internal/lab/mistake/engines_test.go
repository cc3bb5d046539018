package mistake

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// TestEngines wants the logits of engines whose mistakes were made by other code, and of each operation.
func TestEngines(t *testing.T) {
	b, err := os.ReadFile("testdata/engines.tsv")
	if err != nil {
		t.Fatal(err)
	}
	graphs := map[string]*graph.Graph{}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if strings.HasPrefix(line, "#") || (testing.Short() || !golden.Slow() && i%2 != 0) && i%5 != 0 {
			continue
		}
		f := strings.Split(line, "\t")
		if graphs[f[0]] == nil {
			graphs[f[0]] = load(t, f[0])
		}
		faults, err := Parse(f[1])
		if err != nil {
			t.Fatal(err)
		}
		g, edits, in, err := Inject(graphs[f[0]], faults)
		if err != nil {
			t.Errorf("%s: %v", f[0], err)
			continue
		}
		decode := 0
		if in[0].Decode {
			decode = 3
		}
		y := run(t, g, edits, ids(max(9, min(in[0].Positions, 80))), decode)[g.Result().Name]
		var sum float64
		for _, v := range y {
			sum += float64(v) * float64(v)
		}
		got := []float64{math.Sqrt(sum / float64(len(y))), float64(y[len(y)-7]), float64(y[len(y)-101])}
		for k, v := range got {
			if want, _ := strconv.ParseFloat(f[2+k], 64); !(math.Abs(v-want) <= 2e-5*got[0]+1e-5*math.Abs(want)) {
				t.Errorf("%s: %s: %g, want %s (%s)", f[0], f[1], v, f[2+k], in[0].Detail)
				break
			}
		}
	}
}
