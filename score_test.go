package karat_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/sample"
)

func open(t *testing.T, path string, o karat.Options) *karat.Model {
	t.Helper()
	m, err := karat.Load(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestScore: log-probabilities of a prompt are those of its logits, and an answer goes on from there.
func TestScore(t *testing.T) {
	ctx := context.Background()
	m := open(t, demo, karat.Options{Context: 256})
	ids, err := m.Tokenize(ctx, "The color of the sky is", karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	logits, err := m.Logits(ctx, ids)
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSession()
	defer s.Close()
	n := 0
	for x, err := range s.Score(ctx, ids, karat.GenerateOptions{TopLogprobs: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 && !math.IsNaN(x.Logprob) || x.ID != ids[n] {
			t.Errorf("token %d: %+v", n, x)
		}
		if n > 0 {
			of, top, err := sample.Logprobs(logits[n-1], ids[n:n+1], 2)
			if err != nil || x.Logprob != of[0].Logprob || x.TopLogprobs[1] != (karat.Logprob{ID: top[1].ID, Text: m.TokenText(top[1].ID), Logprob: top[1].Logprob}) {
				t.Errorf("token %d: %+v, want %v %v %v", n, x, of, top, err)
			}
		}
		n++
	}
	if n != len(ids) {
		t.Errorf("%d tokens of %d", n, len(ids))
	}
	for x, err := range s.GenerateIDs(ctx, ids, karat.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		of, _, err := sample.Logprobs(logits[len(ids)-1], []int{x.ID}, 0)
		if _, kept := s.PromptTokens(); kept != len(ids)-1 || err != nil || of[0].Logprob < -1 {
			t.Errorf("%+v, %d tokens were kept", x, kept)
		}
	}
	for _, x := range []struct {
		ids  []int
		want error
	}{{slices.Repeat([]int{5}, 257), karat.ErrFull}, {[]int{-1}, nil}, {[]int{5, 1 << 30}, nil}} {
		for _, err := range s.Score(ctx, x.ids, karat.GenerateOptions{}) {
			if err == nil || x.want != nil && !errors.Is(err, x.want) {
				t.Errorf("%d tokens: %v", len(x.ids), err)
			}
			break
		}
	}
}

// TestSpecial: names of special tokens that are asked for are a part of the text, and others are not.
func TestSpecial(t *testing.T) {
	ctx := context.Background()
	m := open(t, demo, karat.Options{Context: 64})
	ids, err := m.Tokenize(ctx, "<start_of_turn>", karat.TokenizeOptions{ParseSpecial: true, OmitSpecial: true})
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	force := &karat.Sampling{LogitBias: map[int]float32{ids[0]: 1e6}}
	for _, special := range [][]string{nil, {"<start_of_turn>"}} {
		text := ""
		for x, err := range m.Generate(ctx, "a", karat.GenerateOptions{MaxTokens: 2, Sampling: force, Special: special}) {
			if err != nil {
				t.Fatal(err)
			}
			text += x.Text
		}
		if want := map[bool]string{false: "", true: "<start_of_turn><start_of_turn>"}[special != nil]; text != want {
			t.Errorf("%v: %q", special, text)
		}
	}
	for _, err := range m.Generate(ctx, "a", karat.GenerateOptions{Special: []string{"sky"}}) {
		if err == nil {
			t.Error("a word is a special token")
		}
		break
	}
}

// TestFingerprint: the same for the same file, another where bits differ.
func TestFingerprint(t *testing.T) {
	ctx := context.Background()
	seen := map[string]int{}
	for i, m := range []*karat.Model{open(t, demo, karat.Options{Threads: 1}), open(t, demo, karat.Options{Context: 64, Parallel: 1}), open(t, demo, karat.Options{Precision: karat.Float32}),
		open(t, demo, karat.Options{KV: karat.KVF32}), open(t, golden.Model(t, "tiny-gemma3"), karat.Options{})} {
		p, err := m.Fingerprint(ctx)
		if err != nil || len(p) != 16 {
			t.Fatal(p, err)
		}
		if first, ok := seen[p]; ok && i != 1 {
			t.Errorf("models %d and %d have the same fingerprint", first, i)
		}
		seen[p] = i
	}
	if len(seen) != 4 {
		t.Errorf("%v", seen)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := open(t, demo, karat.Options{}).Fingerprint(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCaller: callers that are apart find nothing of others' prompts, and counts tell the bytes in use.
func TestCaller(t *testing.T) {
	ctx := context.Background()
	m := open(t, demo, karat.Options{Context: 512, KVBudget: 64 << 20})
	ids := slices.Repeat([]int{5, 6, 7}, 60)
	ask := func(c karat.Caller) int {
		s := m.NewSession()
		defer s.Close()
		for _, err := range s.GenerateIDs(ctx, ids, karat.GenerateOptions{MaxTokens: 1, Caller: c}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if used := m.Stats().KVUsed; used <= 0 {
			t.Errorf("%d bytes are in use", used)
		}
		if s.Started().IsZero() {
			t.Error("no step began")
		}
		_, kept := s.PromptTokens()
		return kept
	}
	a, b := karat.Caller{Key: "a", PrivateCache: true}, karat.Caller{Key: "b", PrivateCache: true}
	for i, x := range []struct {
		c    karat.Caller
		some bool
	}{{a, false}, {b, false}, {a, true}, {karat.Caller{Key: "c"}, false}, {karat.Caller{}, true}, {b, true}} {
		if kept := ask(x.c); kept > 0 != x.some {
			t.Errorf("request %d found %d tokens", i, kept)
		}
	}
	if s := m.Stats(); s.KVUsed != 0 || s.KVCached == 0 || s.Busy != 0 || s.Running != 0 || s.Queued != 0 || s.Steps < 6 || s.Finished < 6 || s.MaxSequence != 512 || s.KVBudget != 64<<20 || s.PageSize != 64 || s.Pages < 8 {
		t.Errorf("%+v", s)
	}
}
