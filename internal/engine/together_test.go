package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// waiting is a backend whose steps of several sequences end with their context.
type waiting struct {
	backend.Backend
	in chan context.Context
}

type waits struct {
	backend.Executable
	in chan context.Context
}

func (b waiting) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	x, err := b.Backend.Compile(g, o)
	return waits{x, b.in}, err
}

func (x waits) Run(ctx context.Context, s *backend.Step, tap backend.Tap) ([]float32, error) {
	if len(s.Tokens) == 1 {
		return x.Executable.Run(ctx, s, tap)
	}
	x.in <- ctx
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestEndTogether: the context of a step of two requests ends when both of theirs have, and not
// with the first. A goroutine may ask it while the step ends, and after it (the race detector
// sees whether that is guarded).
func TestEndTogether(t *testing.T) {
	b := waiting{cpu.New(cpu.Options{Threads: 1}), make(chan context.Context)}
	e := newEngine(t, backendtest.Decoder(t, 1, tensor.BF16, 0, 64), b, engine.Options{Context: 64})
	release := e.Hold()
	var wg sync.WaitGroup
	var cancels [2]context.CancelFunc
	for i := range cancels {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancels[i] = cancel
		s := e.NewSequence()
		wg.Go(func() {
			defer s.Close()
			if _, err := s.Feed(ctx, []int32{1}, 1); !errors.Is(err, context.Canceled) || s.Len() != 0 {
				t.Errorf("request %d: %v, %d tokens", i, err, s.Len())
			}
		})
	}
	e.WaitQueued(2)
	release()
	ctx := <-b.in
	done := ctx.Done()
	over, asking := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asking)
		for {
			_ = ctx.Err()
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	cancels[0]()
	select {
	case <-done:
		t.Error("ended with the first")
	default:
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("ended with the first: %v", err)
	}
	cancels[1]()
	wg.Wait()
	<-done
	close(over)
	<-asking
	feed(t, e.NewSequence(), []int32{1}, 1) // alone
}
