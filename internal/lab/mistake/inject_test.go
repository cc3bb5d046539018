package mistake

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
)

func load(t *testing.T, name string) *graph.Graph {
	t.Helper()
	return open(t, golden.Model(t, name))
}

func open(t *testing.T, path string) *graph.Graph {
	t.Helper()
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, _, err := arch.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ids is a prompt of n tokens, all of them different ones.
func ids(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(300 + 7*i%900)
	}
	return list
}

// run computes a prompt, its last decode tokens one by one, and returns all values by node.
func run(t *testing.T, g *graph.Graph, edits reference.Edits, prompt []int32, decode int) map[string][]float32 {
	t.Helper()
	values := map[string][]float32{}
	e, err := engine.New(g, reference.Backend{Threads: 1, Edits: edits}, engine.Options{Context: len(prompt), Chunk: len(prompt),
		Want: func(*graph.Node) bool { return true },
		Tap:  func(n *graph.Node, out []float32) { values[n.Name] = append(values[n.Name], out...) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	first := len(prompt) - decode
	if _, err := s.Feed(context.Background(), prompt[:first], first); err != nil {
		t.Fatal(err)
	}
	for _, id := range prompt[first:] {
		if _, err := s.Feed(context.Background(), []int32{id}, 1); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

// distance is the relative L2 distance of y from x.
func distance(x, y []float32) float64 {
	if len(x) != len(y) {
		return math.Inf(1)
	}
	var d, s float64
	for i := range x {
		d += float64(x[i]-y[i]) * float64(x[i]-y[i])
		s += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(d / (s + 1e-300))
}

// begin is the number of the first node with a mistake.
func begin(g *graph.Graph, in []Injected) int {
	first := len(g.Nodes)
	for _, i := range in {
		for _, name := range i.Nodes {
			first = min(first, g.Node(name).ID)
		}
	}
	return first
}

// models are the goldens that are small enough to run some hundred times.
func models(t *testing.T) []string {
	if golden.Slow() {
		return golden.Models(t)
	}
	return []string{"tiny-gemma4", "qwen3moe", "phi2"} // rows by layer and shared keys, experts, biases and LayerNorm
}

// TestEveryFault injects each fault that a model can have. It must show at the
// faulty operation or in the logits, and nowhere before; what computes the same
// function must show in no logit.
func TestEveryFault(t *testing.T) {
	for _, name := range models(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := load(t, name)
			baselines := map[[2]int]func() map[string][]float32{}
			for _, f := range chosen(name, Applicable(g)) {
				h, edits, in, err := Inject(g, []Fault{f})
				if err != nil {
					t.Errorf("%v", err)
					continue
				}
				key := [2]int{max(9, in[0].Positions), 0}
				if in[0].Decode {
					key[1] = 3
				}
				if baselines[key] == nil {
					baselines[key] = sync.OnceValue(func() map[string][]float32 { return run(t, g, nil, ids(key[0]), key[1]) })
				}
				check(t, g, h, in, baselines[key](), run(t, h, edits, ids(key[0]), key[1]))
			}
		})
	}
}

// chosen is one fault for each ID, value and, on two models, place; in short
// tests one for each ID.
func chosen(model string, all []Fault) (list []Fault) {
	places := slices.Contains([]string{"tiny-qwen2", "tiny-gemma4-moe"}, model)
	seen := map[Fault]bool{}
	for _, f := range all {
		key := Fault{ID: f.ID, Value: f.Value}
		if testing.Short() || !golden.Slow() && model != "tiny-gemma4" {
			key.Value = ""
		} else if places && golden.Slow() {
			key.Where = f.Where
		}
		if !seen[key] {
			seen[key] = true
			list = append(list, f)
		}
	}
	return list
}

func check(t *testing.T, g, h *graph.Graph, in []Injected, right, wrong map[string][]float32) {
	t.Helper()
	first := begin(g, in)
	for _, n := range g.Nodes[:first] {
		if n.Op != graph.StoreKV && !slices.Equal(right[n.Name], wrong[n.Name]) {
			t.Errorf("%s: %s changes, before %s", in[0].Fault, n.Name, g.Nodes[first].Name)
			break
		}
	}
	shown := distance(right[g.Result().Name], wrong[h.Result().Name])
	if strings.HasPrefix(in[0].Cause, "same_") {
		if shown > 1e-5 && in[0].Cause != "same_logits_shifted" {
			t.Errorf("%s: logits are off by %.2g", in[0].Fault, shown)
		}
		return
	}
	for _, name := range in[0].Nodes {
		if r, ok := right[name]; ok {
			shown = max(shown, distance(r, wrong[name]))
		}
	}
	if shown < 1e-6 {
		t.Errorf("%s: it shows by %.2g", in[0].Fault, shown)
	}
}

// TestQuantized injects the faults of weights into models of blocks.
func TestQuantized(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"tiny-gemma3.Q4_K_M", "tiny-llama.Q4_K_M", "tiny-llama.Q2_K", "tiny-llama.Q5_1"} {
		g := open(t, golden.Shared(t, "goldens/gguf/"+name+".gguf"))
		right := run(t, g, nil, ids(5), 0)
		for _, f := range Applicable(g) {
			if !strings.HasPrefix(f.ID, "weight_") || f.Layers == "all" || f.Where != "" {
				continue
			}
			h, edits, in, err := Inject(g, []Fault{f})
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			seen[f.ID+"="+f.Value] = true
			check(t, g, h, in, right, run(t, h, edits, ids(5), 0))
		}
	}
	for _, want := range []string{"weight_scale=", "weight_scale=min", "weight_scale=packing", "weight_layout=", "weight_layout=packed", "weight_transposed=", "weight_permuted=heads"} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
}

// TestEdited wants the edited backend to compute what the plain one does, as long as nothing is edited.
func TestEdited(t *testing.T) {
	for _, name := range []string{"tiny-gemma4-moe", "tiny-llama", "falconh1", "gpt2"} {
		g := load(t, name)
		right, got := run(t, g, nil, ids(9), 2), run(t, g, reference.Edits{}, ids(9), 2)
		for _, n := range g.Nodes {
			if n.Op != graph.StoreKV && !(distance(right[n.Name], got[n.Name]) < 1e-7) {
				t.Fatalf("%s: %v lies %g away", name, n, distance(right[n.Name], got[n.Name]))
			}
		}
	}
}

// TestStrange wants no mistake on no list that the table lists at the same operation: the table's name wins.
func TestStrange(t *testing.T) {
	for _, m := range strange {
		e := entryOf(strings.TrimPrefix(m.id, "x_"))
		if m.forms != nil || e != nil && (m.ops == nil || slices.ContainsFunc(m.ops, func(op graph.Op) bool { return slices.Contains(e.ops, op) })) {
			t.Errorf("%s has a name in the table", m.id)
		}
	}
}

// TestCatalogue wants a fault for every cause that an engine, its input or its
// probe can have, and some that have none.
func TestCatalogue(t *testing.T) {
	strange := 0
	ids := slices.Concat(inputIDs, probeIDs)
	for _, m := range table {
		ids = append(ids, m.id)
	}
	for _, id := range ids {
		if strings.HasPrefix(id, "x_") {
			strange++
		}
		if _, ok := Find(id); !ok && !strings.HasPrefix(id, "x_") && !strings.HasPrefix(id, "same_") {
			t.Errorf("%s is no cause", id)
		}
	}
	if strange < 20 {
		t.Errorf("%d faults are on no list", strange)
	}
	for _, c := range All() {
		if c.Kind != Numeric && c.ID != "unknown" && !known(c.ID) {
			t.Errorf("no fault for %s", c.ID)
		}
	}
}

// TestPacked injects the faults of packed weights into folders that have them.
func TestPacked(t *testing.T) {
	wanted := map[string][]string{
		"awq":                  {"packed_scale=", "packed_one_scale=", "packed_turned=", "packed_zero=", "packed_zero=above", "packed_order="},
		"gptq-act-order":       {"packed_scale=", "packed_zero=", "packed_zero=above", "packed_order="},
		"fp8-small-block-bf16": {"packed_scale=", "packed_one_scale=", "packed_turned="},
		"ct-nvfp4":             {"packed_scale=", "packed_one_scale=", "packed_turned=", "packed_order="},
		"mlx-4-bits":           {"packed_scale=", "packed_one_scale=", "packed_turned=", "packed_order="},
		"ct-int8-channel":      {"packed_scale=", "packed_one_scale=", "packed_zero="},
	}
	for _, p := range packed.All {
		if wanted[p.Name] == nil {
			continue
		}
		dir := t.TempDir()
		if err := packed.Folders(golden.Model(t, "tiny-llama"), dir+"/packed", dir+"/plain", p, nil); err != nil {
			t.Fatal(err)
		}
		g := open(t, dir+"/packed")
		right, seen := run(t, g, nil, ids(5), 0), map[string]bool{}
		for _, f := range Applicable(g) {
			if !strings.HasPrefix(f.ID, "packed_") || f.Layers == "all" || f.Where != "" && f.Where != "ffn_up" {
				continue
			}
			h, edits, in, err := Inject(g, []Fault{f})
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			seen[f.ID+"="+f.Value] = true
			check(t, g, h, in, right, run(t, h, edits, ids(5), 0))
		}
		for _, want := range wanted[p.Name] {
			if !seen[want] {
				t.Errorf("%s: no %s in %v", p.Name, want, seen)
			}
		}
	}
	for _, f := range Applicable(load(t, "tiny-llama")) {
		if strings.HasPrefix(f.ID, "packed_") {
			t.Errorf("%v in a folder without packed weights", f)
		}
	}
}
