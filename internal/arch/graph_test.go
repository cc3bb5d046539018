package arch_test

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

var update = flag.Bool("update", false, "write testdata/*.graph")

// models lists the goldens' models and the types of their GGUF files.
var models = []struct{ name, gguf string }{
	{"tiny-llama", "bf16 Q2_K Q3_K_M Q4_0 Q4_1 Q4_K_M Q5_0 Q5_1 Q5_K_M Q6_K Q8_0 IQ4_NL IQ4_XS"},
	{"tiny-mistral", ""},
	{"tiny-qwen2", ""},
	{"tiny-qwen3", "bf16 Q4_K_M Q8_0"},
	{"tiny-gemma3", "bf16 Q4_K_M Q8_0"},
	{"tiny-gemma4", "bf16 Q4_K_M Q8_0"},
	{"tiny-gemma4-moe", "bf16 Q8_0 MXFP4_MOE"},
	{"demo", ""},
}

// TestGraphs compares each model's recorded graph with testdata/NAME.graph,
// from every form in which the model is at hand.
func TestGraphs(t *testing.T) {
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			for i, path := range forms(t, m.name, strings.Fields(m.gguf)) {
				compare(t, m.name, path, *update && i == 0)
			}
		})
	}
	for _, name := range slices.Concat(golden.Families(t), golden.Encoders(t), golden.Rerankers(t)) {
		t.Run(name, func(t *testing.T) {
			folder, file := golden.Model(t, name), filepath.Join(t.TempDir(), name+".gguf")
			if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			compare(t, name, folder, *update)
			if name == "falconh1" { // whose file has the multipliers in its weights
				name += ".folded"
			}
			compare(t, name, file, *update && strings.HasSuffix(name, ".folded"))
		})
	}
}

// forms lists where a model lies: its folder and its GGUF files in the goldens,
// and a GGUF file made of the folder here, so that a fresh clone has both.
func forms(t *testing.T, name string, types []string) (paths []string) {
	t.Helper()
	if name == "demo" {
		return []string{filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf")}
	}
	if !slices.Contains(golden.Models(t), name) {
		golden.Shared(t, "goldens/models/"+name) // skips: the repository has no copy of it
	}
	folder := golden.Model(t, name)
	paths = append(paths, folder, toGGUF(t, folder, nil))
	if golden.Dir(t) != golden.Repo(t) {
		for _, typ := range types {
			paths = append(paths, golden.Shared(t, "goldens/gguf/"+name+"."+typ+".gguf"))
		}
	}
	return paths
}

// compare loads the model at path and compares its graph with the golden one,
// or makes it that.
func compare(t *testing.T, name, path string, write bool) {
	t.Helper()
	got := printed(t, path)
	file := filepath.Join("testdata", name+".graph")
	if write {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the graph differs from %s (go test -run TestGraphs -update writes it)\n%s", path, file, difference(got, string(want)))
	}
}

// difference shows the first lines that differ.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "one is the beginning of the other"
}

// load opens the model at path, which must not fail.
func load(t testing.TB, path string) (*checkpoint.Checkpoint, *graph.Graph, []string) {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, notes, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, g, append(c.Notes, notes...)
}

// printed is the graph of the model at path.
func printed(t testing.TB, path string) string {
	t.Helper()
	_, g, _ := load(t, path)
	var b strings.Builder
	if err := graph.Print(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFrequencies holds every single frequency equal between a model's forms:
// a printed graph shows only the first and the last.
func TestFrequencies(t *testing.T) {
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			paths := forms(t, m.name, strings.Fields(m.gguf))
			_, want, _ := load(t, paths[0])
			for _, path := range paths[1:] {
				_, got, _ := load(t, path)
				for i, n := range want.Nodes {
					if w, ok := n.Attr.(graph.RoPEAttr); ok {
						sameFreqs(t, path, n, got.Nodes[i].Attr.(graph.RoPEAttr).Freqs, w.Freqs)
					}
				}
			}
		})
	}
}

// sameFreqs allows the rounding of rope_freqs to float32.
func sameFreqs(t *testing.T, path string, n *graph.Node, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v: %d frequencies, want %d", path, n, len(got), len(want))
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 2e-7*want[i] {
			t.Fatalf("%s: %v: frequency %d is %v, want %v", path, n, i, got[i], want[i])
		}
	}
}

// TestNotes wants no note on a model whose every setting is read.
func TestNotes(t *testing.T) {
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			for _, path := range forms(t, m.name, strings.Fields(m.gguf)) {
				if _, _, notes := load(t, path); len(notes) > 0 {
					t.Errorf("%s: %q", path, notes)
				}
			}
		})
	}
}

// TestHoist: behind the last layer that stores keys and values (of tiny-gemma4 eight layers, the
// fourth), and in it from the queries on, a model is computed for the rows whose logits are wanted.
func TestHoist(t *testing.T) {
	for name, layer := range map[string]int{"tiny-llama": 3, "tiny-gemma3": 5, "tiny-gemma4": 3} {
		_, g, _ := load(t, forms(t, name, nil)[0])
		h := g.Hoist(nil, nil)
		after := h.Live().After
		first := slices.IndexFunc(h.Nodes, func(n *graph.Node) bool { return n.Op == graph.Linear && after[n] })
		if first < 0 || h.Nodes[first].Layer != layer {
			t.Errorf("%s: product %d is the first of some rows, want one of layer %d", name, first, layer)
		}
		for _, n := range h.Nodes[max(first, 0):] {
			if !after[n] && n.Op == graph.Linear && !strings.HasSuffix(n.Name, "attn_k") && !strings.HasSuffix(n.Name, "attn_v") {
				t.Errorf("%s: %v is computed for all rows", name, n)
			}
		}
	}
}
