package webgpu_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/sample"
)

// slow tells that all is to be computed, which takes minutes where a program stands
// in for a GPU.
// open opens the first GPU, and skips the test where there is none.
func open(t *testing.T) *webgpu.Device {
	t.Helper()
	d, err := webgpu.Open(0)
	if errors.Is(err, gpu.ErrNone) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// load is a model's graph, for prompts of a record.
func load(t *testing.T, path string) *graph.Graph {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.LoadFor(c, 1024)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// recordOf computes gold's prompts, or some of them, with taps where gold has them.
func recordOf(t *testing.T, g *graph.Graph, b backend.Backend, gold *lab.Record, prompts func(*lab.Prompt) bool) *lab.Record {
	t.Helper()
	defer b.Close()
	r, err := lab.NewRecorder(t.Context(), g, b, 4096, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := &lab.Record{}
	for _, p := range gold.Prompts {
		if !prompts(p) {
			continue
		}
		q := &lab.Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: p.IDs, Float32: p.Float32, BFloat16: p.BFloat16}
		if err := r.Record(t.Context(), q, len(p.Taps) > 0); err != nil {
			t.Fatal(err)
		}
		out.Prompts = append(out.Prompts, q)
	}
	return out
}

// few are prompts that show most: the one with taps, and a short one.
func few(p *lab.Prompt) bool { return golden.Slow() || p.Index == 2 || p.Index == 0 }

// readGold reads a model's record.
func readGold(t *testing.T, name string) *lab.Record {
	t.Helper()
	r, err := lab.ReadRecord(golden.Record(t, name).Tensors(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// models are the tiny models: a few of them that have all operations, or all.
func models(t *testing.T) (some []string) {
	for _, name := range golden.Models(t) {
		if golden.Slow() || name == "tiny-qwen2" || name == "tiny-gemma4" || name == "tiny-gemma4-moe" {
			some = append(some, name)
		}
	}
	return some
}

// TestRecords compares the logits of the tiny models, and if there is time of one of each
// family, with PyTorch's float64 ones: within 4 times what PyTorch's own float32 pass differs
// by, and every tap within 1e-5.
func TestRecords(t *testing.T) {
	d := open(t)
	names := models(t)
	if golden.Slow() {
		names = append(names, golden.Families(t)...)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			gold := readGold(t, name)
			got := recordOf(t, load(t, golden.Model(t, name)), webgpu.New(d, webgpu.Options{F32KV: true}), gold, few)
			c, err := lab.Compare(gold, got, lab.Options{Partial: true})
			if err != nil {
				t.Fatal(err)
			}
			if !c.Inside() || !(c.All.KLMean <= 1e-6) {
				t.Errorf("max |Δlogit| %.3g, KL %.3g", float64(c.All.MaxAbsDiff), float64(c.All.KLMean))
			}
			var worst float64
			for _, p := range c.Prompts {
				for _, tap := range p.Taps {
					if tap.NeedNotMatch {
						continue
					}
					if worst = max(worst, float64(tap.Whole)); tap.Problem != "" || !(tap.Whole <= 1e-5) {
						t.Errorf("prompt %d: %s: relative error %.3g %s", p.Index, tap.Name, float64(tap.Whole), tap.Problem)
					}
				}
			}
			t.Logf("%d prompts: max |Δlogit| %.2g, KL %.2g, taps %.2g", len(c.Prompts), float64(c.All.MaxAbsDiff), float64(c.All.KLMean), worst)
		})
	}
}

// TestQuantizedFiles compares each quantized file's logits with float64 over the same
// file: a mean KL of 1e-5 at most, with keys and values in binary16.
func TestQuantizedFiles(t *testing.T) {
	d := open(t)
	for _, path := range append(golden.Files(t), filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf")) {
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		if !golden.Slow() && !strings.HasPrefix(filepath.Base(path), "tiny-llama.Q4_K") {
			continue
		}
		if strings.Contains(path, ".bf16.") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			gold, g := readGold(t, name), load(t, path)
			short := func(p *lab.Prompt) bool { return golden.Slow() || p.Index == 0 }
			want := recordOf(t, g, reference.Backend{}, gold, short)
			for _, o := range []webgpu.Options{{}, {Matrices: true}} {
				if o.Matrices && d.Adapter().Matrices == nil {
					continue
				}
				got := recordOf(t, g, webgpu.New(d, o), gold, short)
				bound := 1e-5
				c, err := lab.Compare(want, got, lab.Options{MaxKL: &bound})
				if err != nil {
					t.Fatal(err)
				}
				if !c.Inside() || !(c.All.KLMean <= 1e-5) {
					t.Errorf("matrix units %v: max |Δlogit| %.3g, KL %.3g", o.Matrices, float64(c.All.MaxAbsDiff), float64(c.All.KLMean))
				}
				t.Logf("matrix units %v: %d prompts: max |Δlogit| %.2g, KL %.2g", o.Matrices, len(c.Prompts), float64(c.All.MaxAbsDiff), float64(c.All.KLMean))
			}
		})
	}
}

// TestGreedy: the likeliest tokens, which the GPU chooses, are PyTorch's.
func TestGreedy(t *testing.T) {
	d := open(t)
	for _, name := range models(t) {
		t.Run(name, func(t *testing.T) {
			b := webgpu.New(d, webgpu.Options{F32KV: true})
			defer b.Close()
			e, err := engine.New(load(t, golden.Model(t, name)), b, engine.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for _, p := range golden.Record(t, name).Prompts {
				want := p.GreedyIDs
				if !golden.Slow() {
					if p.Index != 0 {
						continue
					}
					want = want[:min(8, len(want))]
				}
				if got := greedy(t, e, p.IDs, len(want)); !equal(got, want) {
					t.Errorf("prompt %d: %v, want %v", p.Index, got, want)
				}
			}
		})
	}
}

func equal(a []int32, b []int) bool {
	for i, x := range a {
		if int(x) != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// greedy is the n likeliest tokens after ids.
func greedy(t *testing.T, e *engine.Engine, ids []int, n int) (out []int32) {
	t.Helper()
	s := e.NewSequence()
	defer s.Close()
	next := make([]int32, len(ids))
	for i, id := range ids {
		next[i] = int32(id)
	}
	for len(out) < n {
		chosen, err := s.Follow(t.Context(), next, n-len(out))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range chosen {
			out = append(out, int32(id))
		}
		next = out[len(out)-1:]
	}
	return out
}

// TestChosen: tokens that the GPU chooses, or finds likeliest, several in one list where
// the model's embeddings allow it, are those that the host chooses by the logits of steps
// one by one, greedily and with the same seed.
func TestChosen(t *testing.T) {
	d, most := open(t), 8
	if golden.Slow() {
		most = 24
	}
	for _, name := range models(t) {
		if !golden.Slow() && name != "tiny-qwen2" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := webgpu.New(d, webgpu.Options{})
			defer b.Close()
			e, err := engine.New(load(t, golden.Model(t, name)), b, engine.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			var prompt []int32
			for _, id := range golden.Record(t, name).Prompts[0].IDs {
				prompt = append(prompt, int32(id))
			}
			for _, o := range []sample.Options{{}, {Temperature: 1, TopK: 40, TopP: 0.9, Seed: 3}, {Temperature: 1.5, TopK: 7, MinP: 0.01, Seed: 4}} {
				r := engine.Request{Prompt: prompt, Max: most, Sample: o, Decoder: silent{}}
				got, steps := generated(t, b, e, r)
				r.Logits = true
				want, each := generated(t, b, e, r)
				if !slices.Equal(got, want) {
					t.Errorf("%+v: the GPU chooses %v, the host %v", o, got, want)
				}
				if each != 0 && (each != most || steps != most) { // else there are no time stamps
					t.Errorf("%+v: %d steps, %d for logits", o, steps, each)
				}
			}
		})
	}
}

// silent is a decoder of no text.
type silent struct{}

func (silent) Write(int) string { return "" }
func (silent) Flush() string    { return "" }

// generated is the tokens of a request, and how many steps they took.
func generated(t *testing.T, b *webgpu.Backend, e *engine.Engine, r engine.Request) (ids []int, steps int) {
	t.Helper()
	s := e.NewSequence()
	defer s.Close()
	b.Meter()
	for x, err := range s.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.ID)
	}
	return ids, b.Meter().Steps
}
