package engine_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// decodeStep compiles g for one row, and makes a step at position 100.
func decodeStep(t testing.TB, g *graph.Graph) (backend.Executable, *backend.Step) {
	t.Helper()
	b := cpu.New(cpu.Options{Threads: 2})
	t.Cleanup(func() { b.Close() })
	plan, err := b.Compile(g, backend.Options{Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 256, Chunk: 128})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	seq := pool.NewSequence()
	if err := seq.Grow(101); err != nil {
		t.Fatal(err)
	}
	s := &backend.Step{Tokens: []int32{5}, Seqs: []*kv.Sequence{seq}, Outputs: []int32{0}, Cache: cache}
	for pos := range int32(101) { // all pages exist, and hold something
		s.Pos = []int32{pos}
		if _, err := plan.Run(context.Background(), s, nil); err != nil {
			t.Fatal(err)
		}
	}
	return plan, s
}

// TestDecodeAllocs wants no allocation for a token, with experts or without, with adapters or without, with an indexer.
func TestDecodeAllocs(t *testing.T) {
	for _, path := range []string{demo(t), golden.Model(t, "tiny-gemma4-moe"), golden.Model(t, "tiny-qwen2"),
		golden.Model(t, "deepseek32")} {
		_, g := openModel(t, path)
		plan, s := decodeStep(t, g)
		for _, blend := range []*backend.Blend{nil, blendOf(t, g, 1, -0.5)} {
			s.Adapters = []*backend.Blend{blend}
			n := testing.AllocsPerRun(20, func() {
				if _, err := plan.Run(context.Background(), s, nil); err != nil {
					t.Error(err)
				}
			})
			if n != 0 {
				t.Errorf("%s, adapters %v: %v allocations for a token", path, blend != nil, n)
			}
		}
	}
}

// TestLogitsKept: a generation makes no logits anew, but for who gets them, whom they stay with.
func TestLogitsKept(t *testing.T) {
	_, g := openModel(t, demo(t))
	e := newEngine(t, g, cpu.New(cpu.Options{Threads: 1}), engine.Options{Context: 128})
	made := func(logits bool) (bytes uint64, tokens []engine.Token) {
		s := e.NewSequence()
		defer s.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tokens, _ = generate(t, s, engine.Request{Prompt: []int32{2, 5, 9}, Max: 64, Decoder: numbers{}, Logits: logits})
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, tokens
	}
	row := uint64(4 * e.VocabSize())
	if bytes, _ := made(false); bytes > 32*row { // keys, values and text take some, too
		t.Errorf("%d bytes for 64 tokens, a row of logits is %d", bytes, row)
	}
	_, tokens := made(true)
	for i, x := range tokens {
		if best := slices.Index(x.Logits, slices.Max(x.Logits)); best != x.ID {
			t.Fatalf("token %d is %d, the highest of its logits %d", i, x.ID, best)
		}
	}
}

// TestStepAllocs: queueing a token, choosing a step and ending it allocate nothing but the
// list of rows that Feed returns, and pages' numbers.
func TestStepAllocs(t *testing.T) {
	_, g := openModel(t, demo(t))
	s := newEngine(t, g, cpu.New(cpu.Options{Threads: 1}), engine.Options{Context: 512}).NewSequence()
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tokens := []int32{5}
	token := func() {
		logits, err := s.Feed(ctx, tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		s.Reuse(logits[0])
	}
	for _, blend := range []*backend.Blend{nil, blendOf(t, g, 1)} {
		s.Adapt(blend)
		for range 200 { // until all weights are repacked
			token()
		}
		if n := testing.AllocsPerRun(50, token); n > 1 {
			t.Errorf("adapters %v: %v allocations for a token", blend != nil, n)
		}
	}
}

// TestStepAllocsTogether: the same for sequences that share a step, each of which can be cancelled.
func TestStepAllocsTogether(t *testing.T) {
	const sequences = 8
	_, g := openModel(t, demo(t))
	e := newEngine(t, g, cpu.New(cpu.Options{Threads: 1}), engine.Options{Context: 512})
	ctx, cancel := context.WithCancel(t.Context())
	begin, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range sequences {
		s, tokens := e.NewSequence(), []int32{5}
		wg.Go(func() {
			defer s.Close()
			for {
				select {
				case <-begin:
				case <-ctx.Done():
					return
				}
				logits, err := s.Feed(ctx, tokens, 1)
				if err != nil {
					t.Error(err)
				} else {
					s.Reuse(logits[0])
				}
				done <- struct{}{}
			}
		})
	}
	e.Cut(func(rows int) int { e.WaitQueued(sequences); return rows })
	rounds := 0
	token := func() {
		rounds++
		for range sequences {
			begin <- struct{}{}
		}
		for range sequences {
			<-done
		}
	}
	for range 200 { // until all weights are repacked
		token()
	}
	if n := testing.AllocsPerRun(50, token); n > sequences {
		t.Errorf("%v allocations for a token of each of %d sequences", n, sequences)
	}
	if n := e.Stats().Steps; n != rounds {
		t.Errorf("%d steps for %d tokens", n, rounds)
	}
}

// TestReuse: logits that are given back are those of the next token.
func TestReuse(t *testing.T) {
	_, g := openModel(t, demo(t))
	s := newEngine(t, g, cpu.New(cpu.Options{Threads: 1}), engine.Options{Context: 128}).NewSequence()
	defer s.Close()
	var last *float32
	for id := range int32(8) {
		logits, err := s.Feed(t.Context(), []int32{id}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && &logits[0][0] != last {
			t.Fatalf("token %d: logits are made anew", id)
		}
		last = &logits[0][0]
		s.Reuse(logits[0])
	}
}

// BenchmarkDecode is a token of the demo: ns and allocations of its step.
func BenchmarkDecode(b *testing.B) {
	_, g := openModel(b, demo(b))
	plan, s := decodeStep(b, g)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Run(context.Background(), s, nil); err != nil {
			b.Fatal(err)
		}
	}
}
