package engine_test

import (
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// blendOf is random adapters for all linear layers of g, the i-th by a factor.
func blendOf(t testing.TB, g *graph.Graph, by ...float64) *backend.Blend {
	t.Helper()
	var parts []backend.Part
	for i, f := range by {
		parts = append(parts, backend.Part{Adapter: backendtest.Adapter(uint64(i), g, nil, 4, 16, 7), By: f})
	}
	return backendtest.Blend(t, parts...)
}

// small is a quantized model of a full layer and one with a window.
func small(t testing.TB) *graph.Graph { return backendtest.Decoder(t, 30, tensor.Q4_0, 0, 7) }

// adapted is the last logits of tokens in a sequence of their own with adapters.
func adapted(t testing.TB, e *engine.Engine, b *backend.Blend, tokens []int32, outputs int) [][]float32 {
	t.Helper()
	s := e.NewSequence()
	defer s.Close()
	s.Adapt(b)
	return feed(t, s, tokens, outputs)
}

// adapterHashes are as hashes, with two adapters.
var adapterHashes = map[string]string{
	"demo.Q4_K_M": "3ead5b2386055a46f8bdd5b8d094ed8e797666077a45febbbc0a1616392170f4",
	"tiny-gemma4": "9437e3975dd442eeb519852ec3d36d1e298c04b53c744fef64dccf150fc25015",
	"tiny-llama":  "aebb29d6878155338f876d4a1f2f0576c9fcf94b44aa5191aa110df4993aa897",
}

func TestAdapterHashes(t *testing.T) {
	hashed(t, adapterHashes, "tiny-llama", func(t *testing.T, e *engine.Engine, g *graph.Graph, ids []int32, want string) {
		if got := digest(adapted(t, e, blendOf(t, g, 0.25, -0.125), ids, len(ids))); got != want {
			t.Errorf("logits hash to %s, want %s", got, want)
		}
	})
}

// TestAdapterSteps: requests with different adapters, with two at once and with none, in one
// step, have the bits that they have alone, by any threads and however prompts are cut.
func TestAdapterSteps(t *testing.T) {
	graphs := map[string]*graph.Graph{"small": small(t)}
	if !testing.Short() {
		_, graphs["demo"] = openModel(t, demo(t))
		_, graphs["tiny-gemma4"] = openModel(t, golden.Model(t, "tiny-gemma4"))
	}
	for name, g := range graphs {
		one := newEngine(t, g, cpu.New(cpu.Options{Threads: 1}), engine.Options{Context: 64})
		blends := []*backend.Blend{blendOf(t, g, 0.5), nil, blendOf(t, g, 0.25, 0.5), blendOf(t, g, 0, 1)}
		var want [][][]float32
		for i, b := range blends {
			want = append(want, adapted(t, one, b, ids(one.VocabSize(), 20, i), 5))
		}
		if plain := scratch(t, one, ids(one.VocabSize(), 20, 0), 5); same(plain, want[0]) {
			t.Fatalf("%s: an adapter changes nothing", name)
		}
		if plain := scratch(t, one, ids(one.VocabSize(), 20, 1), 5); !same(plain, want[1]) {
			t.Fatalf("%s: no adapters change something", name)
		}
		for _, o := range []struct{ threads, chunk int }{{3, 256}, {2, 13}, {1, 80}} {
			e := newEngine(t, g, cpu.New(cpu.Options{Threads: o.threads}), engine.Options{Context: 64, Chunk: o.chunk})
			release := e.Hold()
			var wg sync.WaitGroup
			for i, b := range blends {
				wg.Go(func() {
					if got := adapted(t, e, b, ids(e.VocabSize(), 20, i), 5); !same(got, want[i]) {
						t.Errorf("%s, %+v, request %d: other bits than alone", name, o, i)
					}
				})
				e.WaitQueued(i + 1)
			}
			release()
			wg.Wait()
		}
	}
}

// TestAdapterPrefix: what was computed with adapters serves those who have the same, by the same
// factors, and nobody else.
func TestAdapterPrefix(t *testing.T) {
	g := small(t)
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 256})
	text := ids(e.VocabSize(), 200, 0)
	for i, c := range []struct {
		blend *backend.Blend
		held  int
	}{
		{blendOf(t, g, 1), 0}, {nil, 0}, {blendOf(t, g, 0.5), 0}, {blendOf(t, g, 1, 1), 0},
		{blendOf(t, g, 1), 199}, {nil, 199}, {blendOf(t, g, 1, 1), 199}, {blendOf(t, g, 1, 0), 199}, // the same as others above
	} {
		s := e.NewSequence()
		s.Adapt(c.blend)
		if got := s.Rewind(text); got != c.held {
			t.Errorf("%d: %d tokens are there, want %d", i, got, c.held)
		}
		feed(t, s, text[s.Len():], 0)
		s.Close()
	}
}

// TestAdapt: a sequence that changes its adapters begins anew, and one that does not goes on.
func TestAdapt(t *testing.T) {
	g := small(t)
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 256, Adapters: blendOf(t, g, 1)})
	text := ids(e.VocabSize(), 100, 0)
	byDefault := scratch(t, e, text, 3)
	s := e.NewSequence()
	defer s.Close()
	for i, c := range []struct {
		blend *backend.Blend
		held  int
	}{{blendOf(t, g, 1), 0}, {blendOf(t, g, 1), 90}, {nil, 0}, {blendOf(t, g, 0, 1), 0}, {blendOf(t, g, 0, 1), 90}} {
		if s.Adapt(c.blend); s.Len() != c.held {
			t.Errorf("%d: %d tokens are left, want %d", i, s.Len(), c.held)
		}
		feed(t, s, text[s.Len():90], 0) // not by Rewind: nothing is found
		want := adapted(t, e, c.blend, text, 3)
		got := s.Len()
		if logits := feed(t, s, text[90:], 3); !same(logits, want) || i == 0 && !same(logits, byDefault) {
			t.Errorf("%d: other bits", i)
		}
		if s.Rewind(text[:91]); s.Len() != 90 {
			t.Errorf("%d: %d tokens of %d are left", i, s.Len(), got)
		}
	}
}

// TestAdapterPreempted: sequences with adapters that give their pages back to each other are
// computed again with their own.
func TestAdapterPreempted(t *testing.T) {
	g := small(t)
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 256, Budget: backend.CacheBytes(g, 256, 256, 2, false)})
	blends := []*backend.Blend{blendOf(t, g, 1), blendOf(t, g, 0, 1), nil}
	seqs := make([]*engine.Sequence, len(blends))
	want := make([][][]float32, len(blends))
	wide := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 256})
	for i, b := range blends {
		text := ids(e.VocabSize(), 200, i)
		want[i] = adapted(t, wide, b, text, 4)
		seqs[i] = e.NewSequence()
		defer seqs[i].Close()
		seqs[i].Adapt(b)
		feed(t, seqs[i], text[:150], 0)
	}
	for i, s := range seqs {
		if !same(feed(t, s, ids(e.VocabSize(), 200, i)[150:], 4), want[i]) {
			t.Errorf("sequence %d: other bits", i)
		}
	}
}
