package lab

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// TestFast quantizes the model of each family, and wants fast precision, with keys and values
// in float32, within a KL of 1e-6 of float64 over the same file. It prints, too, what keys and values in binary16 make of it.
// One prompt in ten may lie farther off, if two experts with nearly equal scores change places there.
func TestFast(t *testing.T) {
	for _, name := range golden.Sample(golden.Families(t)) {
		gold, folder := open(t, golden.Record(t, name).Tensors(t)), golden.Model(t, name)
		for _, kind := range []string{"Q8_0", "Q4_K_M"} {
			if odd := []string{"deepseek2", "glm4moe"}; kind == "Q8_0" && slices.Contains(odd, golden.Architecture(t, name)) {
				continue // rows of 24 and 48, which llama-quantize refuses, too
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), name+".gguf")
				if _, err := convert.Convert(t.Context(), folder, file, convert.Options{Type: kind}); err != nil {
					if (kind == "Q8_0" || name == "gemma3n") && strings.Contains(err.Error(), "no multiple of Q8_0's block of 32") {
						return // rows of 24, 48 or 144, which llama-quantize refuses, too
					}
					t.Fatal(err)
				}
				g := graphOf(t, file, false)
				f64 := recordAs(t, g, reference.Backend{}, gold)
				fast := compareAs(t, f64, recordAs(t, g, cpu.New(cpu.Options{KV: cpu.KVF32}), gold), Options{MaxKL: new(1e-6)})
				far := 0
				for i, p := range fast.Prompts {
					if p.KLMean <= 1e-6 {
						continue
					}
					if far++; !swapped(t, g, gold.Prompts[i].IDs) {
						t.Errorf("prompt %d: mean KL %.2g, though no experts change places", i, float64(p.KLMean))
					}
				}
				if may := max(len(f64.Prompts)/10, nearTies[name]); far > may {
					t.Errorf("%d of %d prompts have a mean KL above 1e-6", far, len(f64.Prompts))
				}
				half := compareAs(t, f64, recordAs(t, g, cpu.New(cpu.Options{}), gold), Options{MaxKL: new(1e-6)})
				t.Logf("max |Δlogit| %.2g, mean KL %.2g; with keys and values in binary16 %.2g, %.2g", float64(fast.All.MaxAbsDiff), float64(fast.All.KLMean), float64(half.All.MaxAbsDiff), float64(half.All.KLMean))
			})
		}
	}
}

// nearTies has the prompts of short records in which two experts, or positions, are known to change places
// (docs/families.md).
var nearTies = map[string]int{"kimilinear": 1, "deepseek32": 1}

// swapped reports whether an indexer chooses one other position in the first row in which it chooses others, or in
// some row the first expert that float64 does not choose is before the last that it does
// in fast, and their scores in float64 are nearer to each other than twice the engines' largest difference of a score.
func swapped(t *testing.T, g *graph.Graph, ids []int32) bool {
	t.Helper()
	var seen []map[*graph.Node][]float32 // in float64, in fast
	for _, b := range []backend.Backend{reference.Backend{}, cpu.New(cpu.Options{KV: cpu.KVF32})} {
		defer b.Close()
		r, err := NewRecorder(t.Context(), g, b, 4096, 8)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Record(t.Context(), &Prompt{IDs: ids}, true); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, r.seen)
	}
	for _, n := range g.Nodes {
		if n.Op == graph.Choose {
			a, b, k := seen[0][n], seen[1][n], n.Shape[0]
			for row := range len(a) / k {
				others := 0
				for _, p := range b[row*k : (row+1)*k] {
					if !slices.Contains(a[row*k:(row+1)*k], p) {
						others++
					}
				}
				if others > 0 {
					t.Logf("%s, row %d: %d other positions", n.Name, row, others)
					return others == 1
				}
			}
		}
		if n.Op != graph.Route {
			continue
		}
		experts, k := n.In[0].Shape.Size(), n.Shape[0]
		for row := range len(seen[0][n.In[0]]) / experts {
			exact, got := chosenBy(t, n, seen[0][n.In[0]][row*experts:][:experts]), chosenBy(t, n, seen[1][n.In[0]][row*experts:][:experts])
			best := TopIDs(exact, experts)
			last, next := best[k-1], best[k] // the last that is chosen, the first that is not
			far := 0.
			for i, x := range exact {
				far = max(far, math.Abs(float64(x-got[i])))
			}
			if gap := float64(exact[last] - exact[next]); got[last] < got[next] && gap <= 2*far {
				t.Logf("%s, row %d: expert %d in place of %d; their scores are %.2g apart, the engines' %.2g", n.Name, row, next, last, gap, far)
				return true
			}
		}
	}
	return false
}

// chosenBy returns the numbers by which a Route chooses, of scores: their sigmoids plus a bias where there is one.
func chosenBy(t *testing.T, n *graph.Node, scores []float32) []float32 {
	_, bias := n.RouteWeights()
	if bias == nil {
		return scores
	}
	by, err := reference.Vector(bias)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(scores))
	for i, x := range scores {
		out[i] = float32(reference.Sigmoid(float64(x)) + by[i])
	}
	return out
}
