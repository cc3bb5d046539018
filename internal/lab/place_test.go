package lab

import (
	"context"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/ref"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/graph"
)

func loadGraph(t *testing.T, path string) *graph.Graph {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// runAll is what g's nodes give for a prompt in float64, by node.
func runAll(t *testing.T, g *graph.Graph, ids []int32) map[*graph.Node][]float32 {
	t.Helper()
	seen := map[*graph.Node][]float32{}
	e, err := engine.New(g, ref.Backend{}, engine.Options{Context: 4096,
		Want: func(n *graph.Node) bool { return n.Op != graph.StoreKV },
		Tap:  func(n *graph.Node, out []float32) { seen[n] = append(seen[n], out...) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Feed(context.Background(), ids, len(ids)); err != nil {
		t.Fatal(err)
	}
	return seen
}

// offBy is how far a placed tap lies from what its node gives: the relative error of the worst row.
func offBy(p *Placed, want []float32) float64 {
	worst := 0.
	row := make([]float64, p.Width)
	for i := range p.Rows {
		p.Read(row, i)
		var d, n float64
		for j, v := range want[(p.First+i)*p.Width:][:p.Width] {
			d += (row[j] - float64(v)) * (row[j] - float64(v))
			n += float64(v) * float64(v)
		}
		worst = max(worst, math.Sqrt(d/max(n, 1e-300)))
	}
	return worst
}

// placedWell places a prompt's taps and holds them against what their nodes give.
func placedWell(t *testing.T, g *graph.Graph, names string, p *Prompt, limit float64, unplaced string) *Placement {
	t.Helper()
	l, err := Place(g, NamesAuto, p)
	if err != nil {
		t.Fatal(err)
	}
	if l.Names != names {
		t.Errorf("auto takes %s, want %s (%v)", l.Names, names, l.Inferred)
	}
	allowed := regexp.MustCompile(unplaced)
	for _, u := range l.Unplaced {
		if !allowed.MatchString(u.Name) || u.Why == "" {
			t.Errorf("%s has no place: %s", u.Name, u.Why)
		}
	}
	want := runAll(t, g, p.IDs)
	last := 0
	for i := range l.Taps {
		x := &l.Taps[i]
		if d := offBy(x, want[x.Node]); !(d <= limit) {
			t.Errorf("%s at %s (%s): off by %.2g", x.Name, x.Node.Name, x.Tap, d)
		}
		if x.Node.ID < last || x.First+x.Rows != len(p.IDs) {
			t.Errorf("%s: node %d after %d, rows %d from %d", x.Name, x.Node.ID, last, x.Rows, x.First)
		}
		last = x.Node.ID
	}
	return l
}

// TestPlaceGolden places PyTorch's taps: all but those of modules that depend on
// how they are called, with the values that their nodes give.
func TestPlaceGolden(t *testing.T) {
	for _, name := range records(t) {
		if name == "demo" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			gold := open(t, golden.Record(t, name).Tensors)
			g := loadGraph(t, golden.Model(t, name))
			l := placedWell(t, g, NamesHF, gold.Prompt(2), 1e-5, `act_fn\.out$|rotary_emb\.out$|router\.out$`)
			if n := len(l.Taps) + len(l.Unplaced); n < len(gold.Prompt(2).Taps)+1 {
				t.Errorf("%d taps of %d", n, len(gold.Prompt(2).Taps)+1)
			}
			for _, x := range l.Taps {
				if strings.HasSuffix(x.Name, "_proj.in") && x.Tap != x.Name || strings.HasSuffix(x.Name, "norm.out") && x.Tap != x.Name {
					t.Errorf("%s is called %s", x.Name, x.Tap)
				}
			}
			without := placedWell(t, g, NamesHF, gold.Prompt(1), 1e-5, `^$`) // hidden states and logits alone
			if len(without.Taps) != gold.Prompt(1).Hidden.Shape[0]+1 {
				t.Errorf("%d taps of a prompt that has %d hidden states", len(without.Taps), gold.Prompt(1).Hidden.Shape[0])
			}
		})
	}
}

// TestPlaceLlamaCpp places all that llama.cpp's graph callback saw.
func TestPlaceLlamaCpp(t *testing.T) {
	const inside = `^norm(-\d+)?#|^kq(_soft_max)?-|^ffn_moe_(down_scaled|gate|gate_up|geglu|probs|up|weight.*)-`
	for _, c := range []struct {
		model, gguf string
		limit       float64
		unplaced    string
	}{
		{"tiny-llama", "tiny-llama.bf16", 1e-4, inside},
		{"tiny-qwen3", "tiny-qwen3.bf16", 1e-4, inside},
		{"tiny-gemma4", "tiny-gemma4.bf16", 1e-2, inside + `|^embd#`},
		{"tiny-gemma4-moe", "tiny-gemma4-moe.bf16", 1e-2, inside + `|^embd#`},
		{"tiny-llama", "tiny-llama.Q4_K_M", 0.3, inside},
		{"tiny-gemma4", "tiny-gemma4.Q8_0", 0.5, inside + `|^embd#`},
	} {
		t.Run(c.gguf, func(t *testing.T) {
			gold := open(t, golden.Record(t, c.model).Tensors)
			p := open(t, golden.Shared(t, filepath.Join("goldens/llamacpp", c.gguf+".safetensors"))).Prompt(2)
			p.IDs = gold.Prompt(2).IDs
			l := placedWell(t, loadGraph(t, golden.Shared(t, "goldens/gguf/"+c.gguf+".gguf")), NamesLlamaCpp, p, c.limit, c.unplaced)
			t.Log(len(l.Taps), "placed,", len(l.Unplaced), "not")
		})
	}
}
