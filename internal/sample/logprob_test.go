package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestLogprobs(t *testing.T) {
	// Probabilities 1/2, 1/4, 1/8, 1/8, 0 by construction.
	l := float32(math.Ln2)
	of, best, err := Logprobs([]float32{3 * l, 4 * l, 2 * l, 2 * l, -inf}, []int{2, 1, 4}, 10)
	if err != nil {
		t.Fatal(err)
	}
	same := func(got, want []Logprob) bool {
		return slices.EqualFunc(got, want, func(a, b Logprob) bool {
			return a.ID == b.ID && (a.Logprob == b.Logprob || math.Abs(a.Logprob-b.Logprob) < 1e-6) // l is float32
		})
	}
	if want := []Logprob{{2, -3 * math.Ln2}, {1, -math.Ln2}, {4, math.Inf(-1)}}; !same(of, want) {
		t.Errorf("of = %v, want %v", of, want)
	}
	if want := []Logprob{{1, -math.Ln2}, {0, -2 * math.Ln2}, {2, -3 * math.Ln2}, {3, -3 * math.Ln2}}; !same(best, want) {
		t.Errorf("best = %v, want %v", best, want)
	}
}

func TestLogprobsOfManyTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, 50_000)
	for i := range logits {
		logits[i] = float32(math.Round(r.NormFloat64()*500) / 100) // with ties
	}
	p := want(logits)
	ids := []int{0, 17, 49_999}
	of, best, err := Logprobs(logits, ids, 20)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float64, len(logits))
	for i := range x {
		x[i] = float64(logits[i])
	}
	if len(best) != 20 {
		t.Fatalf("%d of 20 tokens", len(best))
	}
	for i, id := range append(ids, ranked(x)[:20]...) {
		got := append(of, best...)[i]
		if got.ID != id || math.Abs(got.Logprob-math.Log(p[id])) > 1e-12 {
			t.Errorf("%d: %v, want %d with %v", i, got, id, math.Log(p[id]))
		}
	}
}

func TestLogprobsErrors(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		ids    []int
		top    int
		err    string
	}{
		{[]float32{1}, []int{1}, 0, "token 1 is outside the vocabulary of 1"},
		{[]float32{1}, []int{-1}, 0, "token -1 is outside"},
		{[]float32{1}, nil, -1, "negative"},
		{[]float32{1, nan}, nil, 1, "logit of token 1: NaN"},
		{[]float32{inf}, nil, 1, "logit of token 0: +Inf"},
		{[]float32{-inf}, nil, 1, "no logit is above -Inf"},
		{nil, nil, math.MaxInt, "no logit is above -Inf"},
	} {
		if _, _, err := Logprobs(c.logits, c.ids, c.top); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("Logprobs(%v, %v, %d): %v; want %q", c.logits, c.ids, c.top, err, c.err)
		}
	}
	of, best, err := Logprobs([]float32{1, 2}, []int{0}, 0)
	if err != nil || len(of) != 1 || best != nil {
		t.Errorf("none of the likeliest: %v, %v, %v", of, best, err)
	}
}
