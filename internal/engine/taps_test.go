package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// outcome is how a caller's Feed ended.
type outcome struct {
	logits   [][]float32
	err      error
	panicked any
	returned bool // neither panicked nor ended with its goroutine
}

// atOnce feeds n sequences in one step, or in as few as the engine's chunk allows.
func atOnce(t *testing.T, e *engine.Engine, n int) []outcome {
	t.Helper()
	all := make([]outcome, n)
	release := e.Hold()
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			s := e.NewSequence()
			defer s.Close()
			o := &all[i]
			defer func() { o.panicked = recover() }()
			o.logits, o.err = s.Feed(context.Background(), toyText(10), 1)
			o.returned = true
		})
	}
	e.WaitQueued(n)
	release()
	wg.Wait()
	return all
}

// goesOn wants e to compute as if nothing had happened, and to close.
func goesOn(t *testing.T, e *engine.Engine, want [][]float32) {
	t.Helper()
	for i, o := range atOnce(t, e, 4) {
		if o.err != nil || !same(o.logits, want) {
			t.Errorf("request %d afterwards: %v, or other logits", i, o.err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestTapPanics: a tap that panics or ends its goroutine does so to the caller that
// leads. The step's other requests have an error, those of other steps their logits.
func TestTapPanics(t *testing.T) {
	for name, c := range map[string]struct {
		chunk int
		do    func()
	}{
		"panic":               {64, func() { panic("by the tap") }},
		"Goexit":              {64, runtime.Goexit},
		"panic, one a step":   {10, func() { panic("by the tap") }},
		"Goexit, one a step":  {10, runtime.Goexit},
		"panic with no value": {64, func() { panic(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			var do func()
			e := toy(t, engine.Options{Chunk: c.chunk, Want: func(n *graph.Node) bool { return n.Op == graph.RMSNorm }, Tap: func(*graph.Node, []float32) {
				if f := do; f != nil {
					do = nil
					f()
				}
			}}, nil)
			want := scratch(t, e, toyText(10), 1)
			do = c.do
			gone, told := 0, 0
			for i, o := range atOnce(t, e, 4) {
				switch {
				case !o.returned:
					if gone++; name == "panic" && o.panicked != "by the tap" {
						t.Errorf("request %d panicked with %v", i, o.panicked)
					}
				case o.err != nil:
					if told++; !strings.Contains(o.err.Error(), "a tap panicked") {
						t.Error(o.err)
					}
				case !same(o.logits, want):
					t.Errorf("request %d: other logits", i)
				}
			}
			if others := 3 * (c.chunk / 64); gone != 1 || told != others {
				t.Errorf("%d callers panicked or ended, %d have an error; want 1 and %d", gone, told, others)
			}
			goesOn(t, e, want)
		})
	}
}

// TestBackendPanics: a panic of the backend is an error of that step's requests.
func TestBackendPanics(t *testing.T) {
	bad := false
	e := toy(t, engine.Options{}, func(*backend.Step) error {
		if bad {
			bad = false
			panic("by the backend")
		}
		return nil
	})
	want := scratch(t, e, toyText(10), 1)
	bad = true
	for i, o := range atOnce(t, e, 4) {
		if !o.returned || o.err == nil || !strings.Contains(o.err.Error(), "internal error: by the backend") {
			t.Errorf("request %d: %v, panicked with %v", i, o.err, o.panicked)
		}
	}
	goesOn(t, e, want)
}

// nilContext is a context that panics: a nil pointer to one.
type nilContext struct{ context.Context }

// endless is a context whose Err never returns.
type endless struct{ context.Context }

func (endless) Err() error {
	runtime.Goexit()
	return nil
}

// TestNilContext: no context is an error, and one that panics, too.
func TestNilContext(t *testing.T) {
	e := toy(t, engine.Options{}, nil)
	want := scratch(t, e, toyText(10), 1)
	s := e.NewSequence()
	defer s.Close()
	//lint:ignore SA1012 that is the test
	if _, err := s.Feed(nil, toyText(10), 1); err == nil || err.Error() != "the context is nil" {
		t.Errorf("nil context: %v", err)
	}
	if _, err := s.Feed((*nilContext)(nil), toyText(10), 1); err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("a nil pointer: %v", err)
	}
	ended := make(chan bool)
	go func() { // Err ends the goroutine that leads, before a step
		defer close(ended)
		_, err := s.Feed(endless{}, toyText(10), 1)
		t.Error("returned", err)
	}()
	<-ended
	if s.Len() != 0 {
		t.Errorf("%d tokens", s.Len())
	}
	goesOn(t, e, want)
}

// TestInTap: what would wait for a tap's end is refused in it: requests to the engine and to
// others of the graph, and Close. Another graph's engine serves it.
func TestInTap(t *testing.T) {
	b := cpu.New(cpu.Options{Threads: 2})
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	beside := newEngine(t, g, b, engine.Options{})
	other := toy(t, engine.Options{}, nil)
	want := scratch(t, beside, toyText(10), 1)
	var tapped *engine.Engine
	calls := 0
	inside := func(*graph.Node, []float32) {
		calls++
		for _, e := range []*engine.Engine{tapped, beside} {
			s := e.NewSequence()
			if _, err := s.Feed(context.Background(), toyText(3), 1); !errors.Is(err, engine.ErrInTap) {
				t.Errorf("Feed: %v", err)
			}
			for _, err := range s.Generate(context.Background(), engine.Request{Prompt: toyText(3), Max: 2, Decoder: numbers{}}) {
				if !errors.Is(err, engine.ErrInTap) {
					t.Errorf("Generate: %v", err)
				}
			}
			s.Close()
			if err := e.Close(); !errors.Is(err, engine.ErrInTap) {
				t.Errorf("Close: %v", err)
			}
		}
		scratch(t, other, toyText(3), 1)
	}
	tapped = newEngine(t, g, b, engine.Options{Want: func(n *graph.Node) bool { return n.Op == graph.Attention }, Tap: inside})
	if got := scratch(t, tapped, toyText(10), 1); !same(got, want) || calls == 0 {
		t.Errorf("%d calls of the tap, or other logits", calls)
	}
	goesOn(t, tapped, want)
	goesOn(t, beside, want)
}

// TestBehindTap: requests that wait for a tap of another engine of their backend, in the step
// to come or on the queue, come back when their contexts end.
func TestBehindTap(t *testing.T) {
	b := cpu.New(cpu.Options{Threads: 2})
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	entered, leave := make(chan struct{}, 1000), make(chan struct{})
	slow := newEngine(t, g, b, engine.Options{Want: func(n *graph.Node) bool { return n.Op == graph.Attention }, Tap: func(*graph.Node, []float32) {
		entered <- struct{}{}
		<-leave
	}})
	var wg sync.WaitGroup
	for _, e := range []*engine.Engine{slow, newEngine(t, g, b, engine.Options{}), newEngine(t, g, b, engine.Options{})} {
		if e == slow {
			wg.Go(func() { scratch(t, slow, toyText(3), 1) })
			<-entered
		}
		release := e.Hold()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		const n = 3
		for range n {
			go func() {
				s := e.NewSequence()
				defer s.Close()
				_, err := s.Feed(ctx, toyText(3), 1)
				ended <- err
			}()
		}
		e.WaitQueued(n)
		release()
		if e != slow {
			e.WaitStep(n)
		}
		cancel()
		for range n {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a request behind a tap: %v", err)
			}
		}
	}
	close(leave)
	wg.Wait()
}

// TestForgets: an engine keeps nothing of a step that is over.
func TestForgets(t *testing.T) {
	_, g := openModel(t, demo(t))
	e := newEngine(t, g, cpu.New(cpu.Options{Threads: 1}), engine.Options{Context: 64, Adapters: blendOf(t, g, 1)})
	scratch(t, e, []int32{1, 2, 3}, 1)
	if e.Keeps() {
		t.Error("something of the last step is held")
	}
}
