package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// TestCuts: wherever steps cut the prompts of several sequences, the digests are those of
// prompts that are computed at once.
func TestCuts(t *testing.T) {
	hashed(t, hashes, sliding, func(t *testing.T, e *engine.Engine, _ *graph.Graph, ids []int32, want string) {
		r := rand.New(rand.NewPCG(1, 2))
		cuts := map[int]bool{}
		e.Cut(func(int) int {
			n := 1 + r.IntN(1+r.IntN(20))
			cuts[n] = true
			return n
		})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				s := e.NewSequence()
				defer s.Close()
				rows, err := s.Feed(context.Background(), ids, len(ids))
				if got := digest(rows); err != nil || got != want {
					t.Errorf("logits hash to %s, want %s; %v", got, want, err)
				}
			})
		}
		wg.Wait()
		if len(cuts) < 3 {
			t.Errorf("steps of %v rows alone", cuts)
		}
	})
}

// seen is a step: how many rows each sequence has in it.
type seen map[*kv.Sequence]int

func rowsOf(s *backend.Step) seen {
	x := seen{}
	for _, q := range s.Seqs {
		x[q]++
	}
	return x
}

// TestMixed: while twelve sequences decode, a prompt of 4,096 tokens is computed. Each
// step has a row of each of the twelve, and no more rows than a step may have: between two
// tokens of a sequence lies one step.
func TestMixed(t *testing.T) {
	const decoding, chunk, long = 12, 64, 4096
	var steps []seen
	e := toy(t, engine.Options{Context: long, Chunk: chunk}, func(s *backend.Step) error {
		steps = append(steps, rowsOf(s))
		return nil
	})
	e.Level() // the toy is nearly all attention
	tokens := 4 + (long+chunk-decoding-1)/(chunk-decoding)
	var wg, ready sync.WaitGroup
	all := make([]*engine.Sequence, decoding)
	ready.Add(decoding)
	begin := make(chan struct{})
	for i := range all {
		all[i] = e.NewSequence()
		wg.Go(func() {
			defer all[i].Close()
			feed(t, all[i], toyText(5), 1)
			ready.Done()
			<-begin
			for _, id := range toyText(tokens) {
				feed(t, all[i], []int32{id}, 1)
			}
		})
	}
	ready.Wait()
	steps = nil
	release := e.Hold()
	close(begin)
	e.WaitQueued(decoding)
	wg.Go(func() {
		if !same(scratch(t, e, toyText(long), 1), scratch(t, toy(t, engine.Options{Context: long}, nil), toyText(long), 1)) {
			t.Error("beside others: other bits")
		}
	})
	e.WaitQueued(decoding + 1)
	e.Cut(func(rows int) int {
		if len(steps) < tokens-4 {
			e.WaitQueued(decoding + 1) // however slow this machine is in choosing tokens
		}
		return rows
	})
	release()
	wg.Wait()
	mixed := 0
	for i, x := range steps {
		rows := 0
		for _, n := range x {
			rows += n
		}
		if rows > chunk {
			t.Errorf("step %d: %d rows, at most %d", i, rows, chunk)
		}
		if rows > decoding {
			mixed++
			if len(x) != decoding+1 {
				t.Errorf("step %d: %d sequences, want all %d", i, len(x), decoding+1)
			}
		}
	}
	if want := tokens - 4; mixed != want {
		t.Errorf("the prompt took %d steps, want %d", mixed, want)
	}
}

// TestLeave: a queued request whose context ends returns while a step is inside a tap.
func TestLeave(t *testing.T) {
	inside, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	e := toy(t, engine.Options{Want: func(n *graph.Node) bool { return n.Op == graph.Attention }, Tap: func(*graph.Node, []float32) {
		once.Do(func() { close(inside); <-goOn })
	}}, nil)
	var wg sync.WaitGroup
	wg.Go(func() { scratch(t, e, toyText(10), 1) })
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	s := e.NewSequence()
	defer s.Close()
	go func() {
		_, err := s.Feed(ctx, toyText(10), 1)
		left <- err
	}()
	e.WaitQueued(2)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) || s.Len() != 0 {
		t.Errorf("%v, length %d", err, s.Len())
	}
	if n := e.Queued(); n != 1 {
		t.Errorf("%d are queued, want the one in the tap", n)
	}
	close(goOn)
	wg.Wait()
	feed(t, s, toyText(10), 1)
}

// TestLeaveStep: a request that is in a step with others leaves when that one ends.
func TestLeaveStep(t *testing.T) {
	steps, cancel := 0, func() {}
	e := toy(t, engine.Options{Context: 256, Chunk: 16}, func(*backend.Step) error {
		if steps++; steps == 2 {
			cancel()
		}
		return nil
	})
	var ctx context.Context
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	release := e.Hold()
	var wg sync.WaitGroup
	s := e.NewSequence()
	defer s.Close()
	wg.Go(func() {
		_, err := s.Feed(ctx, toyText(200), 1)
		if !errors.Is(err, context.Canceled) || s.Len() == 0 || s.Len() > 48 {
			t.Errorf("%v, length %d", err, s.Len())
		}
	})
	e.WaitQueued(1)
	wg.Go(func() { scratch(t, e, toyText(40), 1) })
	e.WaitQueued(2)
	release()
	wg.Wait()
}

// TestBudget: a dozen sequences share the room of two. None fails, their bits are those
// that each has alone, the room is never more, and what was given back was computed again.
func TestBudget(t *testing.T) {
	const context, chunk = 256, 32
	want := toy(t, engine.Options{Context: context, Chunk: chunk}, nil)
	budget := 2*toyBytes(t, context, chunk) - 1
	rows, most := 0, int64(0)
	var e *engine.Engine
	e = toy(t, engine.Options{Context: context, Chunk: chunk, Budget: budget}, func(s *backend.Step) error {
		rows, most = rows+len(s.Tokens), max(most, e.CacheBytes())
		return nil
	})
	ids := toyText(300)
	var wg sync.WaitGroup
	least := 0
	for i := range 12 {
		r := engine.Request{Prompt: ids[i:][:20+9*i], Max: 100, Logits: true, Decoder: numbers{}, Caller: engine.Caller{Priority: i % 2, Key: fmt.Sprint(i % 3)}}
		least += len(r.Prompt) + r.Max - 1
		wg.Go(func() {
			a, b := e.NewSequence(), want.NewSequence()
			defer a.Close()
			defer b.Close()
			got, _ := generate(t, a, r)
			alone, _ := generate(t, b, r)
			if !slices.EqualFunc(got, alone, func(x, y engine.Token) bool { return x.ID == y.ID && slices.Equal(x.Logits, y.Logits) }) {
				t.Errorf("request %d: other tokens or logits", i)
			}
		})
	}
	wg.Wait()
	if most = max(most, e.CacheBytes()); most > budget || most < budget/2 {
		t.Errorf("%d bytes of keys and values, the budget is %d", most, budget)
	}
	if rows <= least {
		t.Errorf("%d rows were computed, of %d: none was computed again", rows, least)
	}
}

// TestIdle: what nobody asks for gives way, and comes back with its next tokens.
func TestIdle(t *testing.T) {
	e := toy(t, engine.Options{Context: 128, Chunk: 64, Budget: toyBytes(t, 128, 64), Private: true}, nil)
	ids := toyText(128)
	a, b := e.NewSequence(), e.NewSequence()
	defer a.Close()
	defer b.Close()
	want := scratch(t, toy(t, engine.Options{Context: 128}, nil), ids, 1)
	feed(t, a, ids[:100], 1)
	bytes := e.CacheBytes()
	if !same(feed(t, b, ids, 1), want) || a.Len() != 100 {
		t.Error("in another's pages: other bits")
	}
	if !same(feed(t, a, ids[100:], 1), want) || a.Len() != 128 {
		t.Error("computed again: other bits")
	}
	if n := a.Rewind(ids); n != 127 {
		t.Errorf("%d tokens are kept", n)
	}
	if n := b.Rewind(ids); n != 0 {
		t.Errorf("%d tokens are kept of what was given back", n)
	}
	if e.CacheBytes() > toyBytes(t, 128, 64) || bytes > e.CacheBytes() {
		t.Errorf("%d bytes became %d", bytes, e.CacheBytes())
	}
}

// TestNeverFits: what the budget cannot hold is an error at once, and not a wait; a budget
// for nothing is one of New.
func TestNeverFits(t *testing.T) {
	steps := 0
	e := toy(t, engine.Options{Context: 1024, Chunk: 64, Budget: toyBytes(t, 128, 64)}, func(*backend.Step) error { steps++; return nil })
	s := e.NewSequence()
	defer s.Close()
	if _, err := s.Feed(t.Context(), toyText(300), 1); !errors.Is(err, engine.ErrFull) || !errors.Is(err, engine.ErrBudget) || !strings.Contains(err.Error(), "300 more, its") || steps != 0 {
		t.Errorf("%v, %d steps", err, steps)
	}
	if _, err := s.Feed(t.Context(), toyText(1025), 1); !errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrBudget) {
		t.Errorf("beyond the context: %v", err)
	}
	feed(t, s, toyText(128), 1)
	n := 0
	for _, err := range s.Generate(t.Context(), engine.Request{Prompt: toyText(100), Max: -1, Decoder: numbers{}}) {
		if n++; err != nil && !errors.Is(err, engine.ErrBudget) {
			t.Error(err)
		}
	}
	if n < 29 {
		t.Errorf("%d tokens and an error behind 100", n)
	}
	_, g := openModel(t, golden.Model(t, sliding))
	b := cpu.New(cpu.Options{})
	defer b.Close()
	if _, err := engine.New(g, b, engine.Options{Budget: 100}); !errors.Is(err, engine.ErrBudget) || !strings.Contains(err.Error(), "it has 100") {
		t.Error(err)
	}
}

// asked is a request of some tokens.
type asked struct {
	engine.Caller
	tokens int
}

// turns is the order in which requests of one step each are computed, one at a time.
func turns(t *testing.T, all ...asked) []int {
	t.Helper()
	var order []int
	e := toy(t, engine.Options{Context: 64, Chunk: 32, Parallel: 1}, func(s *backend.Step) error {
		if n := all[s.Tokens[0]].tokens; len(s.Tokens) != n {
			t.Errorf("%d rows, want %d", len(s.Tokens), n)
		}
		order = append(order, int(s.Tokens[0]))
		return nil
	})
	release := e.Hold()
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Go(func() {
			s := e.NewSequence()
			defer s.Close()
			s.As(a.Caller)
			feed(t, s, slices.Repeat([]int32{int32(i)}, a.tokens), 1)
		})
		e.WaitQueued(i + 1)
	}
	release()
	wg.Wait()
	return order
}

// TestPriority: the higher goes first, of equal ones the first that came.
func TestPriority(t *testing.T) {
	of := func(priority int) asked { return asked{engine.Caller{Priority: priority}, 8} }
	got := turns(t, of(0), of(2), of(-1), of(2), of(0), of(1))
	if want := []int{1, 3, 5, 0, 4, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFair: callers with different keys have equal shares of tokens, however many requests each
// has queued, and however long they are.
func TestFair(t *testing.T) {
	a, b, c, long := asked{engine.Caller{Key: "a"}, 8}, asked{engine.Caller{Key: "b"}, 8}, asked{engine.Caller{Key: "c"}, 8}, asked{engine.Caller{Key: "a"}, 32}
	got := turns(t, a, a, a, a, a, a, b, b, c)
	if want := []int{0, 6, 8, 1, 7, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	got = turns(t, long, long, long, b, b, b, b, b, b)
	if want := []int{0, 3, 4, 5, 6, 1, 7, 8, 2}; !slices.Equal(got, want) {
		t.Errorf("long prompts and short ones: %v, want %v", got, want)
	}
}

// TestUrgent: a request of a higher priority has the room, or the place, of one that runs.
// That one goes on behind it, with the same bits.
func TestUrgent(t *testing.T) {
	const size, chunk = 128, 16
	ids := toyText(120)
	want := scratch(t, toy(t, engine.Options{Context: size}, nil), ids, 1)
	for name, o := range map[string]engine.Options{"room": {Budget: toyBytes(t, size, chunk)}, "place": {Parallel: 1}} {
		o.Context, o.Chunk = size, chunk
		var order []bool // of steps: are they the urgent request's
		started := make(chan struct{})
		var once sync.Once
		var e *engine.Engine
		e = toy(t, o, func(s *backend.Step) error {
			once.Do(func() { close(started); e.WaitQueued(2) })
			order = append(order, s.Tokens[0] == s.Tokens[1])
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if !same(scratch(t, e, ids, 1), want) {
				t.Errorf("%s: other bits", name)
			}
		})
		<-started
		s := e.NewSequence()
		s.As(engine.Caller{Priority: 1})
		feed(t, s, make([]int32, 120), 1)
		s.Close()
		wg.Wait()
		if want := slices.Repeat([]bool{true}, 8); order[0] || !slices.Equal(order[1:9], want) || slices.Contains(order[9:], true) {
			t.Errorf("%s: steps of the urgent request are %v, want 1 to 8", name, order)
		}
	}
}

// TestOutputBytes: a step has no more rows of logits than a bound in bytes allows, and the
// rows of a whole prompt come all the same.
func TestOutputBytes(t *testing.T) {
	most := 0
	e := toy(t, engine.Options{Context: 256, Chunk: 256}, func(s *backend.Step) error { most = max(most, len(s.Outputs)); return nil })
	all := scratch(t, e, toyText(200), 200)
	if most != 200 {
		t.Errorf("%d rows of a small vocabulary in a step, want 200", most)
	}
	e.BoundOutputs(7)
	if most = 0; !same(scratch(t, e, toyText(200), 200), all) || most != 7 {
		t.Errorf("%d rows of logits in a step, want 7, or other bits", most)
	}
}

// TestLazy: an engine that nobody asks has no goroutine, and Close ends the one of an engine
// that somebody did.
func TestLazy(t *testing.T) {
	b := cpu.New(cpu.Options{Threads: 1})
	defer b.Close()
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	before := runtime.NumGoroutine()
	e, err := engine.New(g, b, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines before the first request", n-before)
	}
	scratch(t, e, toyText(3), 1)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	noneLeft(t, before)
}

// TestBusy: two requests to one sequence at a time are an error of the second, not a crash.
func TestBusy(t *testing.T) {
	e := toy(t, engine.Options{Context: 128}, nil)
	release := e.Hold()
	s := e.NewSequence()
	first := make(chan error)
	go func() {
		_, err := s.Feed(t.Context(), toyText(10), 1)
		first <- err
	}()
	e.WaitQueued(1)
	if _, err := s.Feed(t.Context(), toyText(5), 1); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("a second request: %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	s.Close()
}
