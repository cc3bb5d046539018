package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/tensor"
)

// TestFeedLimits: a sequence holds exactly its context, and nothing is
// computed of what does not fit or is no token.
func TestFeedLimits(t *testing.T) {
	steps := 0
	e := toy(t, engine.Options{Context: 100, Chunk: 32}, func(*backend.Step) error { steps++; return nil })
	ids := toyText(101)
	s := e.NewSequence()
	defer s.Close()
	refuse := func(tokens []int32, full bool) {
		t.Helper()
		before, length := steps, s.Len()
		logits, err := s.Feed(context.Background(), tokens, 1)
		if err == nil || errors.Is(err, engine.ErrFull) != full || logits != nil {
			t.Errorf("%d tokens after %d: %d rows, %v", len(tokens), length, len(logits), err)
		}
		if steps != before || s.Len() != length {
			t.Errorf("%d tokens after %d: %d steps, length %d", len(tokens), length, steps-before, s.Len())
		}
	}
	refuse(ids, true)
	refuse([]int32{5, -1}, false)
	refuse([]int32{int32(e.VocabSize())}, false)
	feed(t, s, ids[:60], 1)
	refuse(ids[:41], true)
	feed(t, s, nil, 1)
	last := feed(t, s, ids[60:100], 1)
	if s.Len() != 100 {
		t.Errorf("length %d", s.Len())
	}
	refuse(ids[100:], true)
	if !same(last, scratch(t, e, ids[:100], 1)) {
		t.Error("refusals changed the logits")
	}
}

// TestFeedOutputs: the last outputs rows, whatever steps they fall into.
func TestFeedOutputs(t *testing.T) {
	e := toy(t, engine.Options{Context: 64, Chunk: 8}, nil)
	ids := toyText(27)
	all := scratch(t, e, ids, len(ids))
	for _, n := range []int{-1, 0, 1, 3, 4, 11, 12, 26, 27, 28, 1000} {
		s := e.NewSequence()
		rows, err := s.Feed(context.Background(), ids, n)
		s.Close()
		if err != nil || !same(rows, all[len(all)-min(max(n, 0), len(all)):]) {
			t.Errorf("the last %d: %d rows, %v", n, len(rows), err)
		}
	}
}

// TestShow: the rows that Feed returns are shown in their order, in few steps, and a sequence goes on behind them.
func TestShow(t *testing.T) {
	e := toy(t, engine.Options{Context: 64, Chunk: 8}, nil)
	ids := toyText(27)
	all := scratch(t, e, ids, len(ids))
	size := len(all[0])
	for _, n := range []int{0, 1, 11, 27} {
		s := e.NewSequence()
		var rows [][]float32
		calls, before := 0, e.Stats().Steps
		err := engine.Show(t.Context(), s, ids[:26], min(n, 26), func(logits []float32) {
			for calls++; len(logits) > 0; logits = logits[size:] {
				rows = append(rows, slices.Clone(logits[:size]))
			}
		})
		if steps := e.Stats().Steps - before; err != nil || !same(rows, all[26-min(n, 26):26]) || calls > steps || steps != 4 {
			t.Errorf("the last %d: %d rows in %d calls and %d steps, %v", n, len(rows), calls, steps, err)
		}
		if last := feed(t, s, ids[26:], 1); !same(last, all[26:]) {
			t.Errorf("the last %d: other logits behind the shown", n)
		}
		s.Close()
	}
}

// TestRewind: a sequence that is cut back and continued has the bits of one
// that begins anew, however much its rings have forgotten.
func TestRewind(t *testing.T) {
	e := toy(t, engine.Options{Context: 256, Chunk: 32, Private: true}, nil)
	long := toyText(230)
	rounds := 120
	if testing.Short() {
		rounds = 12
	}
	s := e.NewSequence()
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	reused, begun := 0, 0
	var have []int32
	for range rounds {
		keep := min(len(have), max(0, len(have)-r.IntN(1+[]int{5, 40, 250}[r.IntN(3)])))
		tokens := append(slices.Clone(have[:keep]), long[r.IntN(200):][:1+r.IntN(20)]...)
		if r.IntN(8) == 0 {
			tokens = slices.Clone(long[:200+r.IntN(30)])
		}
		common := 0
		for common < min(len(have), len(tokens)-1) && have[common] == tokens[common] {
			common++
		}
		n := s.Rewind(tokens)
		if n != common && n != 0 || s.Len() != n {
			t.Fatalf("Rewind gave %d, length %d, for %d common tokens", n, s.Len(), common)
		}
		if n > 0 {
			reused++
		} else if common > 0 {
			begun++
		}
		if len(have)-common < 32 && n != common {
			t.Errorf("a ring for chunks of 32 does not go back by %d", len(have)-common)
		}
		if r.IntN(4) > 0 {
			if !same(feed(t, s, tokens[n:], 1), scratch(t, e, tokens, 1)) {
				t.Fatalf("%d tokens, %d of them reused: other bits", len(tokens), n)
			}
			have = tokens
		} else {
			have = tokens[:n]
		}
	}
	if !testing.Short() && (reused < 30 || begun < 4) {
		t.Errorf("only %d rewinds that kept something, and %d that could not", reused, begun)
	}
}

// TestRewindLength is about the returned length, of a model without windows.
func TestRewindLength(t *testing.T) {
	e := newEngine(t, backendtest.Decoder(t, 2, tensor.F16, 0), cpu.New(cpu.Options{}), engine.Options{Context: 256})
	ids := toyText(30)
	other := append(slices.Clone(ids[:12]), 1, 2, 3)
	for _, x := range []struct {
		tokens []int32
		want   int
	}{
		{ids, 29}, {ids[:10], 9}, {other, 12}, {ids[:1], 0}, {nil, 0}, {append(slices.Clone(ids), 7), 30}, {[]int32{-5, 1}, 0},
	} {
		s := e.NewSequence()
		feed(t, s, ids, 0)
		if n := s.Rewind(x.tokens); n != x.want || s.Len() != n {
			t.Errorf("%d tokens: %d, want %d; length %d", len(x.tokens), n, x.want, s.Len())
		}
		s.Close()
	}
}

// TestStepFails: a step that fails is its caller's error. It leaves the
// sequence as it was before it, to be continued up to its full context.
func TestStepFails(t *testing.T) {
	cause := errors.New("cause")
	fail := -1 // steps until one fails
	e := toy(t, engine.Options{Context: 220, Chunk: 32, Private: true}, func(*backend.Step) error {
		fail--
		if fail == 0 {
			return cause
		}
		return nil
	})
	ids := toyText(220)
	want := scratch(t, e, ids, 1)
	for _, at := range []int{1, 3, 7} {
		s := e.NewSequence()
		fail = at
		if logits, err := s.Feed(context.Background(), ids, 1); !errors.Is(err, cause) || logits != nil {
			t.Errorf("step %d: %v", at, err)
		}
		if s.Len() != (at-1)*32 {
			t.Errorf("step %d: length %d", at, s.Len())
		}
		if n := s.Len(); at == 3 && s.Rewind(ids) != n {
			t.Errorf("step %d: Rewind keeps %d of %d", at, s.Len(), n)
		}
		if !same(feed(t, s, ids[s.Len():], 1), want) {
			t.Errorf("step %d: continued, other bits", at)
		}
		s.Close()
	}
}

// TestCancel: a cancelled caller gets its context's error, before a step, in
// the middle of one, and in a queue whose other callers are served.
func TestCancel(t *testing.T) {
	steps, during := 0, func() {}
	e := toy(t, engine.Options{Context: 256, Chunk: 32}, func(*backend.Step) error { steps++; during(); return nil })
	ids := toyText(100)
	want := scratch(t, e, ids, 1)
	s := e.NewSequence()
	defer s.Close()
	feed(t, s, ids[:40], 0)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	before := steps
	if _, err := s.Feed(ctx, ids[40:], 1); !errors.Is(err, context.Canceled) || steps != before || s.Len() != 40 {
		t.Errorf("before: %v, %d steps, length %d", err, steps-before, s.Len())
	}
	ctx, cancel = context.WithCancel(context.Background())
	during = cancel
	if _, err := s.Feed(ctx, ids[40:], 1); !errors.Is(err, context.Canceled) || s.Len() != 40 {
		t.Errorf("in a step: %v, length %d", err, s.Len())
	}
	during = func() {}

	ctx, cancel = context.WithCancel(context.Background())
	release := e.Hold()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Feed(ctx, ids[40:50], 1); !errors.Is(err, context.Canceled) || s.Len() != 40 {
			t.Errorf("in the queue: %v, length %d", err, s.Len())
		}
	})
	e.WaitQueued(1)
	wg.Go(func() {
		if !same(scratch(t, e, ids, 1), want) {
			t.Error("behind a cancelled caller: other bits")
		}
	})
	e.WaitQueued(2)
	cancel()
	release()
	wg.Wait()
	if !same(feed(t, s, ids[40:], 1), want) {
		t.Error("after three cancelled steps: other bits")
	}
}

// TestClosed: a closed engine fails what comes later, and what is queued.
func TestClosed(t *testing.T) {
	for range 4 { // who comes first, Close or the queued, is open
		e := toy(t, engine.Options{Context: 64}, nil)
		release := e.Hold()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.NewSequence().Feed(context.Background(), []int32{2}, 1); err == nil {
				t.Error("queued before Close: no error")
			}
		})
		e.WaitQueued(1)
		wg.Go(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		e.WaitClosed()
		release()
		wg.Wait()
		s := e.NewSequence()
		if _, err := s.Feed(context.Background(), []int32{2}, 1); err == nil || err.Error() != "the model is closed" {
			t.Errorf("after Close: %v", err)
		}
		for _, err := range s.Generate(context.Background(), engine.Request{Prompt: []int32{2}, Max: 1, Decoder: numbers{}}) {
			if err == nil {
				t.Error("after Close: a token")
			}
		}
		s.Close()
	}
}

// TestMeet: sequences that want a token each after a common step meet in the
// next one, although one is back before the others. Those that end are not waited for.
func TestMeet(t *testing.T) {
	const sequences, tokens = 4, 12
	steps := decodeTogether(t, sequences, func(i int) int { return tokens - i })
	if len(steps) != tokens {
		t.Errorf("%d steps for %d tokens of each of %d sequences", len(steps), tokens, sequences)
	}
	for took, want := range map[time.Duration]time.Duration{0: 0, 8 * time.Millisecond: time.Millisecond, time.Second: 10 * time.Millisecond} {
		if got := engine.Wait(took); got != want {
			t.Errorf("behind a step of %v: %v, want %v", took, got, want)
		}
	}
}

// TestStepsByParallel: however many sequences decode, a token of all of them is one step. So
// the weights are read once for all, and more sequences never take more steps a token.
func TestStepsByParallel(t *testing.T) {
	const tokens = 6
	for _, sequences := range []int{1, 8, 32, 64} {
		steps := decodeTogether(t, sequences, func(int) int { return tokens })
		if len(steps) != tokens || slices.Min(steps) != sequences {
			t.Errorf("%d tokens of each of %d sequences: steps of %v rows", tokens, sequences, steps)
		}
	}
}

// decodeTogether decodes sequences, of which number i has so many tokens, and returns how many rows each step had.
func decodeTogether(t *testing.T, sequences int, tokens func(i int) int) (steps []int) {
	t.Helper()
	e := toy(t, engine.Options{Context: 64}, func(s *backend.Step) error {
		steps = append(steps, len(s.Tokens))
		return nil
	})
	e.Meet()
	release := e.Hold()
	var wg sync.WaitGroup
	for i := range sequences {
		wg.Go(func() {
			s := e.NewSequence()
			defer s.Close()
			for _, id := range toyText(tokens(i)) {
				feed(t, s, []int32{id}, 1)
			}
		})
	}
	e.WaitQueued(sequences)
	release()
	wg.Wait()
	return steps
}

// numbers decodes ids as themselves.
type numbers struct{}

func (numbers) Write(id int) string { return fmt.Sprintf("<%d>", id) }
func (numbers) Flush() string       { return "" }
