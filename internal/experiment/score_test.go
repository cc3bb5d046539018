package experiment_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/golden"
)

// open is a model, closed when the test ends.
func open(t *testing.T, path string, o karat.Options) *karat.Model {
	t.Helper()
	m, err := karat.Load(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

var demo = filepath.Join("..", "..", "cmd", "karat", "demo.gguf")

// TestScore: a continuation's numbers are those that a person finds from the logits, the sum of ln(e^x / Σ e^y); the
// boundary of its tokens is that of lm-evaluation-harness: the context's last spaces are the continuation's, and the
// context has as many ids as it has alone.
func TestScore(t *testing.T) {
	m := open(t, golden.Model(t, "tiny-qwen3"), karat.Options{Threads: 2, Context: 64, Precision: karat.Float64})
	s := &experiment.Scorer{Model: m, Parts: true}
	ids, from, err := s.Pair(t.Context(), "The color of the sky ", "is blue.")
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := m.Tokenize(t.Context(), "The color of the sky is blue.")
	alone, _ := m.Tokenize(t.Context(), "The color of the sky")
	if !slices.Equal(ids, whole) || from != len(alone) {
		t.Errorf("ids %v from %d, want %v from %d", ids, from, whole, len(alone))
	}
	q, err := experiment.ParseQuestion([]byte(`{"id": 7, "context": "The color of the sky ", "continuation": "is blue."}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Answer(t.Context(), 1, q)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.Logits(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	want, entropy, top1 := 0.0, 0.0, 0
	for i := from; i < len(ids); i++ {
		row, sum, best := rows[i-1], 0.0, 0
		for id, x := range row {
			sum += math.Exp(float64(x))
			if x > row[best] {
				best = id
			}
		}
		want += math.Log(math.Exp(float64(row[ids[i]])) / sum)
		for _, x := range row {
			p := math.Exp(float64(x)) / sum
			entropy -= p * math.Log(p)
		}
		if best == ids[i] {
			top1++
		}
	}
	n := len(ids) - from
	if d := float64(a.Logprob) - want; math.Abs(d) > 1e-9*math.Abs(want) || a.Tokens != n || a.Top1 != top1 || a.Greedy != (top1 == n) || len(a.Parts) != n || string(a.ID) != "7" {
		t.Errorf("%+v, want logprob %v, %d tokens of which %d are the likeliest", a.Score, want, n, top1)
	}
	if d := float64(a.Entropy) - entropy/float64(n); math.Abs(d) > 1e-9 {
		t.Errorf("entropy %v, want %v", a.Entropy, entropy/float64(n))
	}
}

// TestScoreForms: a text is scored from its first token on, choices are ordered, and bad lines are errors.
func TestScoreForms(t *testing.T) {
	m := open(t, demo, karat.Options{Threads: 2, Context: 16})
	for _, noBOS := range []bool{false, true} {
		s := &experiment.Scorer{Model: m, NoBOS: noBOS}
		ids, from, err := s.Pair(t.Context(), "", "The sky")
		front, ok := m.Front()
		if bare, _ := m.TokenizeBare(t.Context(), "The sky"); err != nil || !ok || from != 1 || !slices.Equal(ids, append([]int{front}, bare...)) {
			t.Errorf("without BOS %v: %v from %d, %v", noBOS, ids, from, err)
		}
	}
	s := &experiment.Scorer{Model: m}
	a, err := s.Answer(t.Context(), 3, &experiment.Question{Context: "The color of the sky is", Choices: []string{" red.", " blue.", " green."}})
	if err != nil || *a.Best != 1 || *a.BestByByte != 1 || len(a.Choices) != 3 || !a.Choices[1].Greedy || a.Choices[0].Greedy {
		t.Errorf("%+v, %v", a, err)
	}
	long, err := s.Answer(t.Context(), 1, &experiment.Question{Context: "one two three four five six seven eight nine ten eleven twelve thirteen The color of the sky is", Continuation: " blue."})
	if err != nil || !long.Truncated || long.Tokens != 1 {
		t.Errorf("%+v, %v", long, err)
	}
	for _, line := range []string{``, `{`, `{}`, `[]`, `{"text": "a", "continuation": "b"}`, `{"text": "a", "context": "b"}`, `{"context": "a"}`, `{"txt": "a"}`, `{"choices": [""]}`, `{"text": "a"} {}`, `{"text": 1}`} {
		if q, err := experiment.ParseQuestion([]byte(line)); err == nil {
			t.Errorf("%s: %+v", line, q)
		}
	}
}
