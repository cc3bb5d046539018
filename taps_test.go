package karat_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/karat-run/karat"
)

// load is the demo model, closed when the test ends.
func load(t *testing.T) *karat.Model {
	t.Helper()
	m, err := karat.Load(t.Context(), demo, karat.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestTapsEnd: when see panics or ends its goroutine Taps does so, and the model goes on.
func TestTapsEnd(t *testing.T) {
	m := load(t)
	for name, end := range map[string]func(){"panic": func() { panic("mine") }, "Goexit": runtime.Goexit} {
		returned, panicked := false, any(nil)
		done := make(chan bool)
		go func() {
			defer close(done)
			defer func() { panicked = recover() }()
			_ = m.Taps(t.Context(), []int{1, 2, 3}, func(karat.Node, []float32) { end() })
			returned = true
		}()
		<-done
		if returned || name == "panic" && panicked != "mine" {
			t.Errorf("%s: returned %v, panicked with %v", name, returned, panicked)
		}
		if err := m.Taps(t.Context(), []int{1, 2, 3}, func(karat.Node, []float32) {}); err != nil {
			t.Errorf("Taps after %s: %v", name, err)
		}
		if _, err := m.Logits(t.Context(), []int{1, 2, 3}); err != nil {
			t.Errorf("Logits after %s: %v", name, err)
		}
	}
}

// TestTapsCancelled: a request whose context ends inside see returns after see, with the context's
// error, and the model goes on.
func TestTapsCancelled(t *testing.T) {
	m := load(t)
	ctx, cancel := context.WithCancel(t.Context())
	inside, leave := make(chan bool), make(chan bool)
	done := make(chan error, 1)
	calls := 0
	go func() {
		done <- m.Taps(ctx, []int{1, 2, 3}, func(karat.Node, []float32) {
			if calls++; calls == 1 {
				cancel()
				close(inside)
				<-leave
			}
		})
	}()
	<-inside
	for range 1000 { // a feed that left the queue would be done
		runtime.Gosched()
	}
	select {
	case err := <-done:
		t.Errorf("Taps returned inside see: %v", err)
	default:
	}
	close(leave)
	if err := <-done; !errors.Is(err, context.Canceled) || calls == len(m.Nodes()) {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := m.Taps(t.Context(), []int{1, 2, 3}, func(karat.Node, []float32) {}); err != nil {
		t.Error(err)
	}
}

// TestInTap: inside see all that would wait for its end is refused.
func TestInTap(t *testing.T) {
	m := load(t)
	want, err := m.Logits(t.Context(), []int{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, karat.ErrInTap) {
			t.Errorf("%s: %v", what, err)
		}
	}
	calls := 0
	err = m.Taps(t.Context(), []int{1, 2, 3}, func(n karat.Node, _ []float32) {
		if n.Layer != 0 {
			return
		}
		calls++
		for _, err := range m.Generate(t.Context(), "Hello", karat.GenerateOptions{MaxTokens: 2}) {
			refused("Generate", err)
		}
		for _, err := range m.Chat(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, "Hello")}, karat.GenerateOptions{MaxTokens: 2}) {
			refused("Chat", err)
		}
		_, err := m.Logits(t.Context(), []int{1})
		refused("Logits", err)
		refused("Taps", m.Taps(t.Context(), []int{1}, func(karat.Node, []float32) {}))
		refused("Close", m.Close())
	})
	if err != nil || calls == 0 {
		t.Errorf("%d calls, %v", calls, err)
	}
	got, err := m.Logits(t.Context(), []int{1, 2, 3})
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("other logits afterwards, %v", err)
	}
}

// TestNilContext: no context is an error, wherever one is wanted.
func TestNilContext(t *testing.T) {
	m := load(t)
	wanted := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	//lint:file-ignore SA1012 nil contexts are the test
	said := []karat.Message{karat.TextMessage(karat.RoleUser, "Hello")}
	wanted("Taps without a function", m.Taps(t.Context(), []int{1}, nil))
	for _, err := range m.Generate(nil, "Hello", karat.GenerateOptions{}) {
		wanted("Generate", err)
	}
	for _, err := range m.Chat(nil, said, karat.GenerateOptions{}) {
		wanted("Chat", err)
	}
	_, err := m.Render(nil, said, karat.GenerateOptions{})
	wanted("Render", err)
	_, err = m.Logits(nil, []int{1})
	wanted("Logits", err)
	_, err = m.Tokenize(nil, "Hello", karat.TokenizeOptions{})
	wanted("Tokenize", err)
	for _, err := range m.GenerateIDs(nil, []int{1}, karat.GenerateOptions{}) {
		wanted("GenerateIDs", err)
	}
	_, err = karat.Load(nil, demo, karat.Options{})
	wanted("Load", err)
	wanted("Taps", m.Taps(nil, []int{1}, func(karat.Node, []float32) {}))
	_, err = karat.Check(nil, demo, karat.CheckOptions{})
	wanted("Check", err)
	_, err = karat.Convert(nil, demo, t.TempDir()+"/a", karat.ConvertOptions{})
	wanted("Convert", err)
	_, err = karat.Quantize(nil, demo, t.TempDir()+"/a.gguf", karat.QuantizeOptions{Type: "Q4_0"})
	wanted("Quantize", err)
	if _, err := m.Logits(t.Context(), []int{1}); err != nil {
		t.Error(err)
	}
}
