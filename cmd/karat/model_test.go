package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
)

func TestLoadProgress(t *testing.T) {
	var last, all int64
	o := karat.Options{Context: 64, Progress: func(done, total int64) {
		if done < last || done > total || all != 0 && total != all {
			t.Errorf("%d of %d after %d of %d", done, total, last, all)
		}
		last, all = done, total
	}}
	m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: demoName, Data: demo}}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if all == 0 || last != all || all > int64(len(demo)) {
		t.Errorf("at the end %d of %d, the file has %d", last, all, len(demo))
	}
}

func TestLoadInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := loadModel(ctx, "", karat.Options{Context: 64}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestLoadNothing: a source with neither bytes nor what reads them is told.
func TestLoadNothing(t *testing.T) {
	if _, err := karat.LoadSources(t.Context(), []karat.Source{{Name: "m.gguf", Size: 5}}, karat.Options{}); err == nil || !strings.Contains(err.Error(), "m.gguf: neither its Data nor At is there") {
		t.Errorf("error %v", err)
	}
}

// TestTapsClosed: a model that is closed ends the taps that run, and begins no others.
func TestTapsClosed(t *testing.T) {
	load := func() *karat.Model {
		m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: demoName, Data: demo}}, karat.Options{Context: 2048})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := load()
	closed := make(chan error, 1)
	var once sync.Once
	err := m.Taps(t.Context(), make([]int, 2048), func(karat.Node, []float32) {
		once.Do(func() { go func() { closed <- m.Close() }() })
	})
	if !errors.Is(err, karat.ErrClosed) {
		t.Errorf("closed in the midst: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	for _, m := range []*karat.Model{m, load()} {
		m.Close()
		if err := m.Taps(t.Context(), []int{1}, func(karat.Node, []float32) {}); !errors.Is(err, karat.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestLoadFails: what fails to load is no model, at any point. The file shrinks once the
// weights are read.
func TestLoadFails(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot shrink there")
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, demo, 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := karat.Load(t.Context(), path, karat.Options{Context: 64, Progress: func(int64, int64) { os.Truncate(path, 4096) }})
	if m != nil || err == nil {
		t.Errorf("a model %v and the error %v", m != nil, err)
	}
}

// TestLongPrompt: a prompt that the context cannot hold is refused by its length, and one
// that is cancelled is not read.
func TestLongPrompt(t *testing.T) {
	m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: demoName, Data: demo}}, karat.Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.NewSession()
	defer s.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	text := strings.Repeat("a", 16<<20)
	said := func(role karat.Role, text string) []karat.Message {
		return []karat.Message{karat.TextMessage(karat.RoleUser, "Hi"), karat.TextMessage(role, text)}
	}
	short := said(karat.RoleUser, text[:1<<16])
	for _, x := range []struct {
		name string
		all  iter.Seq2[karat.Token, error]
		want error
		most uint64 // bytes that are allocated
	}{
		{"Generate", m.Generate(t.Context(), text, karat.GenerateOptions{}), karat.ErrFull, 1 << 20},
		{"Session.Generate", s.Generate(t.Context(), text, karat.GenerateOptions{}), karat.ErrFull, 1 << 20},
		{"Generate, cancelled", m.Generate(cancelled, "a", karat.GenerateOptions{}), context.Canceled, 1 << 20},
		{"Chat", m.Chat(t.Context(), short, karat.GenerateOptions{}), karat.ErrFull, 2 << 20},
		{"Session.Chat", s.Chat(t.Context(), short, karat.GenerateOptions{}), karat.ErrFull, 2 << 20},
		{"Chat, by its length", m.Chat(t.Context(), said(karat.RoleUser, text), karat.GenerateOptions{}), karat.ErrFull, 1 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var last error
		for _, err := range x.all {
			last = err
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(last, x.want) || n > x.most {
			t.Errorf("%s: %v, %d bytes", x.name, last, n)
		}
	}
	if n, _ := s.PromptTokens(); n != 0 {
		t.Errorf("a prompt of %d tokens", n)
	}
	for _, messages := range [][]karat.Message{said(karat.RoleUser, text), said(karat.RoleAssistant, text)} {
		if ids, err := m.TokenizeChat(t.Context(), messages, karat.GenerateOptions{}); !errors.Is(err, karat.ErrFull) {
			t.Errorf("TokenizeChat: %d ids, %v", len(ids), err)
		}
	}
}

// looks is a context that counts who asks for its end, and ends at the last-th time.
type looks struct {
	context.Context
	n, last int
}

func (l *looks) Err() error {
	if l.n++; l.last > 0 && l.n >= l.last {
		return context.Canceled
	}
	return nil
}

// TestLongChat: rendering a long conversation looks at the context for each MiB of it, and ends there. Each
// of its messages alone fits the context.
func TestLongChat(t *testing.T) {
	m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: demoName, Data: demo}}, karat.Options{Context: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var messages []karat.Message
	for i := range 128 {
		messages = append(messages, karat.TextMessage([]karat.Role{karat.RoleUser, karat.RoleAssistant}[i%2], strings.Repeat("sky ", 1<<14)))
	}
	all := looks{Context: t.Context()}
	if _, err := m.Render(&all, messages, karat.GenerateOptions{}); err != nil || all.n < 8 {
		t.Fatalf("%v, %d looks", err, all.n)
	}
	for _, l := range []looks{{last: 2}, {last: all.n / 2}, {last: all.n}} {
		l.Context = t.Context()
		var last error
		for _, last = range m.Chat(&l, messages, karat.GenerateOptions{}) {
		}
		if !errors.Is(last, context.Canceled) || l.n > l.last+1 {
			t.Errorf("cancelled at look %d of %d: %v after %d", l.last, all.n, last, l.n)
		}
	}
}
