package engine_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/kvfile"
)

// TestCarryBetween: a sequence is carried while others compute: it waits for the end of their step.
func TestCarryBetween(t *testing.T) {
	var carry func()
	e := toy(t, engine.Options{Context: 128, Private: true}, func(*backend.Step) error {
		if carry != nil {
			carry()
		}
		return nil
	})
	s, other, to := e.NewSequence(), e.NewSequence(), e.NewSequence()
	defer s.Close()
	defer other.Close()
	defer to.Close()
	feed(t, s, toyText(70), 1)
	type result struct {
		f   *kvfile.File
		err error
	}
	done := make(chan result, 1)
	carry = func() {
		carry = nil
		go func() {
			f, err := s.Carry()
			done <- result{f, err}
		}()
		for range 1000 { // so that it asks while the step runs
			runtime.Gosched()
		}
	}
	feed(t, other, toyText(3), 1)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if err := to.Take(r.f); err != nil || to.Len() != 70 {
		t.Errorf("%d tokens taken: %v", to.Len(), err)
	}
}

// TestCarryClosed: nothing is read or written behind the end of the engine, or of a sequence.
func TestCarryClosed(t *testing.T) {
	e := toy(t, engine.Options{Context: 128, Private: true}, nil)
	s, ended, empty := e.NewSequence(), e.NewSequence(), e.NewSequence()
	feed(t, s, toyText(70), 1)
	f, err := s.Carry()
	if err != nil {
		t.Fatal(err)
	}
	ended.Close()
	if err := ended.Take(f); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a closed sequence takes a state: %v", err)
	}
	e.Close()
	if _, err := s.Carry(); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("carried from a closed engine: %v", err)
	}
	if err := empty.Take(f); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("taken by a closed engine: %v", err)
	}
}
