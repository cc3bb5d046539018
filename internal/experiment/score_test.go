package experiment_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/lab"
)

// open returns a model, closed when the test ends.
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
	whole, _ := m.Tokenize(t.Context(), "The color of the sky is blue.", karat.TokenizeOptions{})
	alone, _ := m.Tokenize(t.Context(), "The color of the sky", karat.TokenizeOptions{})
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
		front, ok := m.BOS()
		if bare, _ := m.Tokenize(t.Context(), "The sky", karat.TokenizeOptions{OmitSpecial: true}); err != nil || !ok || from != 1 || !slices.Equal(ids, append([]int{front}, bare...)) {
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

// TestHarness: on a small set the numbers are lm-evaluation-harness's, found by hand from logits with its definitions.
// Its loglikelihood is the sum of the continuation's log-softmax after the context, and is_greedy whether each token is
// the argmax; acc takes the choice of the largest sum, acc_norm of the largest sum for len(choice) characters,
// acc_bytes for its UTF-8 bytes, where the choice is without the target_delimiter " " (lm_eval/api/task.py,
// process_results of multiple_choice). loglikelihood_rolling is the sum of all tokens of a text after the prefix token
// (lm_eval/utils.py, get_rolling_token_windows with a context of 1), and bits_per_byte that sum by its bytes and ln 2.
func TestHarness(t *testing.T) {
	m := open(t, golden.Model(t, "tiny-qwen3"), karat.Options{Threads: 2, Context: 64, Precision: karat.Float64})
	s := &experiment.Scorer{Model: m}
	// likelihood is the harness's loglikelihood, and its is_greedy.
	likelihood := func(ids []int, from int) (sum float64, greedy bool) {
		rows, err := m.Logits(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		greedy = true
		for i := from; i < len(ids); i++ {
			row, all, best := rows[i-1], 0.0, 0
			for id, x := range row {
				if all += math.Exp(float64(x)); x > row[best] {
					best = id
				}
			}
			sum, greedy = sum+float64(row[ids[i]])-math.Log(all), greedy && best == ids[i]
		}
		return sum, greedy
	}
	near := func(what string, got lab.Number, want float64) {
		t.Helper()
		if d := float64(got) - want; math.Abs(d) > 1e-9*math.Abs(want) {
			t.Errorf("%s: %v, the harness has %v", what, got, want)
		}
	}
	argmax := func(x []float64, length func(string) int, choices []string) (at int) {
		for i := range x {
			if x[i]/float64(length(choices[i])) > x[at]/float64(length(choices[at])) {
				at = i
			}
		}
		return at
	}
	var differ [2]bool
	for _, q := range []struct {
		context string
		choices []string
	}{
		{"The color of the sky is", []string{"blue", "green and sometimes a bit of yellow", "été"}},
		{"The color of the sky is", []string{"a", "blue, and the color of the grass is green"}},
		{"The color of the sky is", []string{"a", "éé"}},
		{"The capital of France is", []string{"Paris", "a", "the largest city of the country", "Zürich"}},
		{"Hello", []string{"world", "world, and all that are in it", "!"}},
		{"One, two,", []string{"three", "thirty-three thousand", "四", "three four five"}},
	} {
		var asked []string
		var sums []float64
		var greedy []bool
		for _, c := range q.choices {
			whole, _ := m.Tokenize(t.Context(), q.context+" "+c, karat.TokenizeOptions{})
			alone, _ := m.Tokenize(t.Context(), q.context, karat.TokenizeOptions{})
			sum, is := likelihood(whole, len(alone))
			asked, sums, greedy = append(asked, " "+c), append(sums, sum), append(greedy, is)
		}
		a, err := s.Answer(t.Context(), 1, &experiment.Question{Context: q.context, Choices: asked})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range a.Choices {
			near(q.context+asked[i], c.Logprob, sums[i])
			if c.Greedy != greedy[i] {
				t.Errorf("%s%s: greedy %v", q.context, asked[i], c.Greedy)
			}
		}
		acc := argmax(sums, func(string) int { return 1 }, q.choices)
		norm := argmax(sums, func(s string) int { return len([]rune(s)) }, q.choices)
		bytes := argmax(sums, func(s string) int { return len(s) }, q.choices)
		if *a.Best != acc || *a.BestByRune != norm || *a.BestByByte != bytes {
			t.Errorf("%s: %d, %d, %d; acc takes %d, acc_norm %d, acc_bytes %d", q.context, *a.Best, *a.BestByRune, *a.BestByByte, acc, norm, bytes)
		}
		differ[0], differ[1] = differ[0] || acc != norm, differ[1] || norm != bytes
	}
	if differ != [2]bool{true, true} {
		t.Errorf("questions that tell acc from acc_norm, and this from acc_bytes: %v", differ)
	}
	const text = "The sky is blue, and the été is long."
	bare, _ := m.Tokenize(t.Context(), text, karat.TokenizeOptions{OmitSpecial: true})
	front, _ := m.BOS()
	sum, _ := likelihood(append([]int{front}, bare...), 1)
	a, err := s.Answer(t.Context(), 1, &experiment.Question{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	near("rolling", a.Logprob, sum)
	near("bits_per_byte", -a.Logprob/lab.Number(float64(a.Bytes)*math.Ln2), -sum/(float64(len(text))*math.Ln2))
}
