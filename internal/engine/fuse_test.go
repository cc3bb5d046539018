package engine_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/synth"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/simd"
)

// random are quantized random models of all families. With Q4_K_M, weights that
// read the same rows are of several types.
func random(t *testing.T) (list []subject) {
	ids := make([]int32, 20)
	for i := range ids {
		ids[i] = int32(7 * i)
	}
	for _, m := range [][3]string{{"llama", "tiny", "Q4_K_M"}, {"qwen3", "tiny", "Q8_0"}, {"gemma3", "tiny", "IQ4_XS"}, {"gemma4", "tiny", "Q6_K"}, {"gemma4", "tiny-moe", "Q4_0"}} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmp.Or(synth.Write(context.Background(), f, synth.Options{Arch: m[0], Shape: m[1], Type: m[2]}), f.Close()); err != nil {
			t.Fatal(err)
		}
		list = append(list, subject{strings.Join(m[:], "."), path, ids})
	}
	return list
}

// TestFusionBits: a fusion changes no bit, neither in a prefill nor in a step of
// one row, and neither does what keeps nodes from being fused away.
func TestFusionBits(t *testing.T) {
	for _, s := range append(subjects(t), random(t)...) {
		s.ids = s.ids[:min(len(s.ids), 20)]
		t.Run(s.name, func(t *testing.T) {
			_, g := openModel(t, s.path)
			logits := func(want func(*graph.Node) bool, noFuse ...string) [][]float32 {
				e := newEngine(t, g, cpu.New(cpu.Options{Threads: 2, NoFuse: noFuse}),
					engine.Options{Context: len(s.ids), Want: want, Tap: func(*graph.Node, []float32) {}})
				return append(scratch(t, e, s.ids, kept), decode(t, e, s.ids)...)
			}
			all := logits(nil)
			for _, name := range []string{"glu", "beside"} {
				if !same(logits(nil, name), all) {
					t.Errorf("without %s: other bits", name)
				}
			}
			for _, part := range []string{"attn_k", "ffn_gate", "ffn_up", "glu"} {
				if !same(logits(func(n *graph.Node) bool { return strings.HasSuffix(n.Name, part) }), all) {
					t.Errorf("with taps on %s: other bits", part)
				}
			}
			if !same(logits(everything), all) {
				t.Error("with taps on everything: other bits")
			}
		})
	}
}

// TestTapsOfFused: a tap sees the values of nodes that are computed together
// with others, as those of nodes that are not.
func TestTapsOfFused(t *testing.T) {
	_, g := openModel(t, demo(t))
	ids := prompt(t, "demo", 7, 5)
	values := func(want func(*graph.Node) bool, noFuse ...string) map[string][]float32 {
		seen := map[string][]float32{}
		e := newEngine(t, g, cpu.New(cpu.Options{Threads: 2, NoFuse: noFuse}), engine.Options{Context: 8, Want: want,
			Tap: func(n *graph.Node, out []float32) { seen[n.Name] = append([]float32(nil), out...) }})
		s := e.NewSequence()
		defer s.Close()
		if _, err := s.Feed(context.Background(), ids, 1); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	plain := values(everything, "glu")
	for _, want := range []func(*graph.Node) bool{everything,
		func(n *graph.Node) bool { return n.Op == graph.Linear },
		func(n *graph.Node) bool { return n.Op == graph.GLU || strings.HasSuffix(n.Name, "attn_v") }} {
		got := values(want)
		for _, n := range g.Nodes {
			if n.Op != graph.StoreKV && want(n) && !same([][]float32{got[n.Name]}, [][]float32{plain[n.Name]}) {
				t.Errorf("%s: other bits", n)
			}
		}
	}
}

// fused is what the plans of the random models compute together in the second
// layer: a fusion that finds nothing any more shows here.
var fused = map[string]string{
	"llama.tiny.Q4_K_M":    "beside attn_q attn_k attn_v, glu glu",
	"qwen3.tiny.Q8_0":      "beside attn_q attn_k attn_v, glu glu",
	"gemma3.tiny.IQ4_XS":   "beside attn_q attn_k attn_v, glu glu",
	"gemma4.tiny.Q6_K":     "beside attn_q attn_k attn_v, glu glu",
	"gemma4.tiny-moe.Q4_0": "beside attn_q attn_k, glu glu, glu ffn_experts",
}

func TestFused(t *testing.T) {
	for _, s := range random(t) {
		_, g := openModel(t, s.path)
		b := cpu.New(cpu.Options{})
		defer b.Close()
		plan, err := b.Compile(g, backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, f := range plan.(interface{ Fused() []string }).Fused() {
			if strings.Contains(f, "blk.1.") {
				list = append(list, strings.ReplaceAll(f, "blk.1.", ""))
			}
		}
		if got := strings.Join(list, ", "); got != fused[s.name] {
			t.Errorf("%s: fused are %q, want %q", s.name, got, fused[s.name])
		}
	}
}

func TestUnknownFusion(t *testing.T) {
	_, g := openModel(t, demo(t))
	b := cpu.New(cpu.Options{NoFuse: []string{"glue"}})
	defer b.Close()
	if _, err := b.Compile(g, backend.Options{}); err == nil || err.Error() != `no fusion is called "glue", there are glu, beside` {
		t.Error(err)
	}
}

// loops is how many loops threads share for a token: each ends in a wait for all of them.
var loops = map[string]int{"llama.tiny.Q4_K_M": 22, "qwen3.tiny.Q8_0": 22, "gemma3.tiny.IQ4_XS": 32, "gemma4.tiny.Q6_K": 51, "gemma4.tiny-moe.Q4_0": 28}

func TestLoops(t *testing.T) {
	if !(&simd.Stored{}).HasRow() {
		t.Skip("without a kernel for one row fewer products share a loop")
	}
	for _, s := range random(t) {
		_, g := openModel(t, s.path)
		b := cpu.New(cpu.Options{Threads: 4})
		defer b.Close()
		e := newEngine(t, g, b, engine.Options{Context: 64})
		q := e.NewSequence()
		feed(t, q, s.ids[:2], 1)
		b.Measure(true)
		feed(t, q, s.ids[2:3], 1)
		got := 0
		for _, k := range b.Measure(false).Kernels {
			if k.Name != "repack" { // of weights that are in place yet
				got += k.Loops
			}
		}
		if got != loops[s.name] {
			t.Errorf("%s: %d loops for a token, want %d", s.name, got, loops[s.name])
		}
		q.Close()
	}
}
