package lab

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/ref"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/graph"
)

// TestFast quantizes the model of each family, and wants fast precision, with keys and values
// in float32, within a KL of 1e-6 of float64 over the same file. It prints, too, what keys and values in binary16 make of it. Where experts are chosen, two that are
// nearly equal may change places: one prompt in ten may lie farther off.
func TestFast(t *testing.T) {
	for _, name := range golden.Families(t) {
		gold, folder := open(t, golden.Record(t, name).Tensors), golden.Model(t, name)
		for _, kind := range []string{"Q8_0", "Q4_K_M"} {
			if odd := []string{"deepseek2", "glm4moe"}; kind == "Q8_0" && slices.Contains(odd, golden.Architecture(t, name)) {
				continue // rows of 24 and 48, which llama-quantize refuses, too
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), name+".gguf")
				if _, err := convert.Convert(t.Context(), folder, file, convert.Options{Type: kind}); err != nil {
					if kind == "Q8_0" && strings.Contains(err.Error(), "no multiple of Q8_0's block of 32") {
						return // rows of 24 or 48, which llama-quantize refuses, too
					}
					t.Fatal(err)
				}
				g := graphOf(t, file, false)
				f64 := recordAs(t, g, ref.Backend{}, gold)
				fast := compareAs(t, f64, recordAs(t, g, cpu.New(cpu.Options{KV: cpu.KVF32}), gold), Options{MaxKL: new(1e-6)})
				far := 0
				for _, p := range fast.Prompts {
					if !(p.KLMean <= 1e-6) {
						far++
					}
				}
				if may := len(f64.Prompts) / 10; far > may || far > 0 && !chooses(g) {
					t.Errorf("%d of %d prompts have a mean KL above 1e-6", far, len(f64.Prompts))
				}
				half := compareAs(t, f64, recordAs(t, g, cpu.New(cpu.Options{}), gold), Options{MaxKL: new(1e-6)})
				t.Logf("max |Δlogit| %.2g, mean KL %.2g; with keys and values in binary16 %.2g, %.2g", float64(fast.All.MaxAbsDiff), float64(fast.All.KLMean), float64(half.All.MaxAbsDiff), float64(half.All.KLMean))
			})
		}
	}
}

// chooses reports whether a model has experts.
func chooses(g *graph.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == graph.Route })
}
