package engine_test

import (
	"context"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// sliding is a trained model with a window of 64 in two of three layers.
const sliding = "tiny-gemma3"

// openModel is the model's files and graph.
func openModel(t testing.TB, path string) (*checkpoint.Checkpoint, *graph.Graph) {
	t.Helper()
	return openFor(t, path, 0)
}

// openFor is openModel for sequences of so many tokens.
func openFor(t testing.TB, path string, context int) (*checkpoint.Checkpoint, *graph.Graph) {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.LoadFor(c, context)
	if err != nil {
		t.Fatal(err)
	}
	return c, g
}

// newEngine makes an engine for g, closed with b when the test ends.
func newEngine(t testing.TB, g *graph.Graph, b backend.Backend, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.New(g, b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); b.Close() })
	return e
}

// demo is the path of the quantized model that the command embeds.
func demo(t testing.TB) string { return filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf") }

// prompt is the first n ids of a model's i-th recorded prompt; all if n is 0.
func prompt(t testing.TB, name string, i, n int) []int32 {
	t.Helper()
	for _, p := range golden.Record(t, name).Prompts {
		if p.Index != i {
			continue
		}
		ids := make([]int32, len(p.IDs))
		for j, id := range p.IDs {
			ids[j] = int32(id)
		}
		if n > len(ids) {
			t.Fatalf("%s: prompt %d has %d ids", name, i, len(ids))
		}
		if n > 0 {
			ids = ids[:n]
		}
		return ids
	}
	t.Fatalf("%s: no prompt %d", name, i)
	return nil
}

// feed appends tokens to s, which must succeed.
func feed(t testing.TB, s *engine.Sequence, tokens []int32, outputs int) [][]float32 {
	t.Helper()
	logits, err := s.Feed(context.Background(), tokens, outputs)
	if err != nil {
		t.Fatal(err)
	}
	if want := min(outputs, len(tokens)); len(logits) != want {
		t.Fatalf("%d rows of logits, want %d", len(logits), want)
	}
	return logits
}

// scratch is the last logits of tokens in a sequence of their own.
func scratch(t testing.TB, e *engine.Engine, tokens []int32, outputs int) [][]float32 {
	t.Helper()
	s := e.NewSequence()
	defer s.Close()
	return feed(t, s, tokens, outputs)
}

// same tells whether two lists of logits have the same bits.
func same(a, b [][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(v, w float32) bool { return math.Float32bits(v) == math.Float32bits(w) })
	})
}

// spy passes steps on to a backend after it has seen them, or fails them.
type spy struct {
	backend.Backend
	see func(*backend.Step) error
}

func (s spy) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	plan, err := s.Backend.Compile(g, o)
	return spiedPlan{plan, s.see}, err
}

type spiedPlan struct {
	backend.Executable
	see func(*backend.Step) error
}

func (p spiedPlan) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if err := p.see(s); err != nil {
		return nil, err
	}
	return p.Executable.Run(ctx, s, tap)
}

// toy makes an engine for a random model of a full and a sliding layer, of
// tokens 0 to backendtest.Vocab-1. see may be nil.
func toy(t testing.TB, o engine.Options, see func(*backend.Step) error) *engine.Engine {
	t.Helper()
	var b backend.Backend = cpu.New(cpu.Options{Threads: 2})
	if see != nil {
		b = spy{b, see}
	}
	return newEngine(t, backendtest.Decoder(t, 1, tensor.BF16, 0, 64), b, o)
}

// toyBytes is what the keys and values of a full sequence of the toy take.
func toyBytes(t testing.TB, context, chunk int) int64 {
	t.Helper()
	return backend.CacheBytes(backendtest.Decoder(t, 1, tensor.BF16, 0, 64), context, chunk, 2, false)
}

// toyText is n tokens for the toy.
func toyText(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*5 + 1) % backendtest.Vocab)
	}
	return ids
}

// noneLeft waits until there are no more goroutines than before.
func noneLeft(t *testing.T, before int) {
	t.Helper()
	for runtime.NumGoroutine() > before { // if it never ends, go test prints those that are left
		runtime.Gosched()
	}
}
