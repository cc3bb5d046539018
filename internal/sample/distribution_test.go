package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// A stage changes a distribution over tokens that is given as logits; -Inf is out.
type stage func(logits []float64)

// The stages as the documentation of Options states them, by sorting and math.Exp.

func probabilities(logits []float64) []float64 {
	top, sum := slices.Max(logits), 0.0
	p := make([]float64, len(logits))
	for i, x := range logits {
		p[i] = math.Exp(x - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// ranked is the tokens from the likeliest to the least likely.
func ranked(logits []float64) []int {
	ids := make([]int, len(logits))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	return ids
}

func wantTopK(k int) stage {
	return func(logits []float64) {
		for _, id := range ranked(logits)[min(k, len(logits)):] {
			logits[id] = math.Inf(-1)
		}
	}
}

func wantTopP(p float64) stage {
	return func(logits []float64) {
		sum, prob := 0.0, probabilities(logits)
		for _, id := range ranked(logits) {
			if sum >= p {
				logits[id] = math.Inf(-1)
			}
			sum += prob[id]
		}
	}
}

func wantMinP(p float64) stage {
	return func(logits []float64) {
		prob := probabilities(logits)
		top := slices.Max(prob)
		for id := range logits {
			if prob[id] < p*top {
				logits[id] = math.Inf(-1)
			}
		}
	}
}

func wantTemperature(t float64) stage {
	return func(logits []float64) {
		for id := range logits {
			logits[id] /= t
		}
	}
}

func wantPenalty(p float64, ids ...int) stage {
	return func(logits []float64) {
		for _, id := range ids {
			if logits[id] > 0 {
				logits[id] /= p
			} else {
				logits[id] *= p
			}
		}
	}
}

func wantBias(id int, by float64) stage { return func(logits []float64) { logits[id] += by } }

func want(logits []float32, stages ...stage) []float64 {
	x := make([]float64, len(logits))
	for i, v := range logits {
		x[i] = float64(v)
	}
	for _, s := range stages {
		s(x)
	}
	return probabilities(x)
}

const draws = 100_000

// counts draws tokens with one sampler.
func counts(t *testing.T, o Options, logits []float32, history []int) []int {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	n := make([]int, len(logits))
	for range draws {
		id, err := s.Sample(logits, history)
		if err != nil {
			t.Fatal(err)
		}
		n[id]++
	}
	return n
}

// pValue is the probability that draws from p stray at least as far as n does,
// by Pearson's test; 0 where a token was drawn that p rules out. Tokens with
// fewer than 5 draws expected share one cell.
func pValue(n []int, p []float64) float64 {
	var chi, restN, restP float64
	cells := 0
	cell := func(n, expected float64) {
		chi += (n - expected) * (n - expected) / expected
		cells++
	}
	for id := range n {
		switch expected := p[id] * draws; {
		case expected == 0 && n[id] > 0:
			return 0
		case expected >= 5:
			cell(float64(n[id]), expected)
		default:
			restN, restP = restN+float64(n[id]), restP+p[id]
		}
	}
	if restP*draws >= 5 {
		cell(restN, restP*draws)
	} else if restN > 30 { // fewer than 5 expected: beyond p = 1e-3 by any count
		return 0
	}
	if cells < 2 {
		return 1
	}
	return upperGamma(float64(cells-1)/2, chi/2)
}

// upperGamma is the regularized incomplete gamma function Q(a, x), by the
// series of P(a, x) = x^a e^-x / Γ(a+1) * Σ x^n / ((a+1)...(a+n)).
func upperGamma(a, x float64) float64 {
	if x > 1000+20*a {
		return 0
	}
	sum, term := 1.0, 1.0
	for n := 1.0; term > 1e-17*sum; n++ {
		term *= x / (a + n)
		sum += term
	}
	g, _ := math.Lgamma(a + 1)
	return max(0, 1-sum*math.Exp(a*math.Log(x)-x-g))
}

// TestPValue checks the test's own statistics against printed tables of the chi-square distribution.
func TestPValue(t *testing.T) {
	for _, c := range []struct{ df, chi, p float64 }{
		{1, 3.841, 0.05}, {1, 10.828, 0.001}, {2, 13.816, 0.001}, {10, 29.588, 0.001}, {10, 9.342, 0.5}, {100, 149.449, 0.001},
	} {
		if got := upperGamma(c.df/2, c.chi/2); math.Abs(got-c.p) > 1e-3*c.p+1e-6 {
			t.Errorf("df %v, chi-square %v: p = %v, want %v", c.df, c.chi, got, c.p)
		}
	}
}

// vectors are logits of several shapes. Tokens 2, 5 and 7 are in history below,
// with a positive, a negative and a zero logit among them in "mixed".
func vectors() map[string][]float32 {
	r := rand.New(rand.NewPCG(7, 7))
	wide := make([]float32, 100)
	for i := range wide {
		wide[i] = float32(2 * r.NormFloat64())
	}
	zipf := make([]float32, 200)
	for i := range zipf {
		zipf[(i*37)%200] = float32(-math.Log(float64(i+1))) + 4
	}
	banned := []float32{1, float32(math.Inf(-1)), 2, 0.5, float32(math.Inf(-1)), 1, 0.25, 2.5}
	return map[string][]float32{
		"mixed":  {0.5, 1.25, 2, -0.75, 1.5, -0.5, 0.1, 0, -2, 1},
		"flat":   make([]float32, 16),
		"wide":   wide,
		"zipf":   zipf,
		"banned": banned,
	}
}

var history = []int{5, 2, 2, 7, 5}

// The tests' seeds are fixed; their probabilities were not chosen.
const significance = 1e-3

func TestDistribution(t *testing.T) {
	penalty := wantPenalty(1.5, 2, 5, 7)
	for _, c := range []struct {
		name   string
		o      Options
		stages []stage
	}{
		{"temperature 1", Options{Temperature: 1}, nil},
		{"temperature 0.5", Options{Temperature: 0.5}, []stage{wantTemperature(0.5)}},
		{"temperature 2.5", Options{Temperature: 2.5}, []stage{wantTemperature(2.5)}},
		{"top-k", Options{Temperature: 1, TopK: 5}, []stage{wantTopK(5)}},
		{"top-k above the vocabulary", Options{Temperature: 1, TopK: 5000}, nil},
		{"top-p", Options{Temperature: 1, TopP: 0.7}, []stage{wantTopP(0.7)}},
		{"top-p 1", Options{Temperature: 1, TopP: 1}, nil},
		{"min-p", Options{Temperature: 1, MinP: 0.3}, []stage{wantMinP(0.3)}},
		{"repeat penalty", Options{Temperature: 1, RepeatPenalty: 1.5}, []stage{penalty}},
		{"repeat penalty below 1", Options{Temperature: 1, RepeatPenalty: 0.7}, []stage{wantPenalty(0.7, 2, 5, 7)}},
		{"repeat last", Options{Temperature: 1, RepeatPenalty: 1.5, RepeatLast: 2}, []stage{wantPenalty(1.5, 5, 7)}},
		{"bias", Options{Temperature: 1, LogitBias: map[int]float32{0: 1.5, 7: float32(math.Inf(-1))}},
			[]stage{wantBias(0, 1.5), wantBias(7, math.Inf(-1))}},
		{"top-k, top-p", Options{Temperature: 1, TopK: 6, TopP: 0.8}, []stage{wantTopK(6), wantTopP(0.8)}},
		{"top-k, min-p", Options{Temperature: 1, TopK: 4, MinP: 0.2}, []stage{wantTopK(4), wantMinP(0.2)}},
		{"top-p, min-p", Options{Temperature: 1, TopP: 0.9, MinP: 0.4}, []stage{wantTopP(0.9), wantMinP(0.4)}},
		{"top-p, temperature", Options{Temperature: 2, TopP: 0.6}, []stage{wantTopP(0.6), wantTemperature(2)}},
		{"min-p, temperature", Options{Temperature: 2, MinP: 0.25}, []stage{wantMinP(0.25), wantTemperature(2)}},
		{"bias, penalty", Options{Temperature: 1, RepeatPenalty: 1.5, LogitBias: map[int]float32{5: 2}}, []stage{wantBias(5, 2), penalty}},
		{"all", Options{Temperature: 1.7, TopK: 12, TopP: 0.85, MinP: 0.1, RepeatPenalty: 1.5, LogitBias: map[int]float32{3: 1}},
			[]stage{wantBias(3, 1), penalty, wantTopK(12), wantTopP(0.85), wantMinP(0.1), wantTemperature(1.7)}},
	} {
		for name, logits := range vectors() {
			if !golden.Slow() && len(logits) > 20 && c.name != "all" {
				continue
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				c.o.Seed = 42
				p := want(logits, c.stages...)
				if got := pValue(counts(t, c.o, logits, history), p); got < significance {
					t.Errorf("these draws have probability %.2g", got)
				}
			})
		}
	}
}

// TestDistributionOfSeeds checks the first draw of each of many adjacent seeds.
func TestDistributionOfSeeds(t *testing.T) {
	logits := vectors()["wide"]
	n := make([]int, len(logits))
	for seed := range uint64(draws) {
		s, err := New(Options{Temperature: 1, TopK: 20, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.Sample(logits[:50], nil)
		if err != nil {
			t.Fatal(err)
		}
		n[id]++
	}
	if got := pValue(n[:50], want(logits[:50], wantTopK(20))); got < significance {
		t.Errorf("these draws have probability %.2g", got)
	}
}

// TestChiSquareCatches shows that the tests above would see mistakes: small ones of
// size, and each wrong order of application.
func TestChiSquareCatches(t *testing.T) {
	mixed := vectors()["mixed"]
	penalty := wantPenalty(1.5, 2, 5, 7)
	for _, c := range []struct {
		name  string
		o     Options
		wrong []stage
	}{
		{"temperature 1 is not 1.05", Options{Temperature: 1}, []stage{wantTemperature(1.05)}},
		{"a logit is not 0.05 higher", Options{Temperature: 1}, []stage{wantBias(4, 0.05)}},
		{"top-k 5 is not 6", Options{Temperature: 1, TopK: 5}, []stage{wantTopK(6)}},
		{"top-k 5 is not 4", Options{Temperature: 1, TopK: 5}, []stage{wantTopK(4)}},
		{"penalty once a token", Options{Temperature: 1, RepeatPenalty: 1.5}, []stage{penalty, wantPenalty(1.5, 2, 5)}},
		{"penalty multiplies negative logits", Options{Temperature: 1, RepeatPenalty: 1.5}, []stage{wantPenalty(1.5, 2, 7), wantPenalty(1/1.5, 5)}},
		{"bias before penalty", Options{Temperature: 1, RepeatPenalty: 1.5, LogitBias: map[int]float32{5: 2}}, []stage{penalty, wantBias(5, 2)}},
		{"penalty before top-k", Options{Temperature: 1, TopK: 3, RepeatPenalty: 3}, []stage{wantTopK(3), wantPenalty(3, 2, 5, 7)}},
		{"top-k before top-p", Options{Temperature: 1, TopK: 3, TopP: 0.6}, []stage{wantTopP(0.6), wantTopK(3)}},
		{"top-p before min-p", Options{Temperature: 1, TopP: 0.6, MinP: 0.5}, []stage{wantMinP(0.5), wantTopP(0.6)}},
		{"top-p before temperature", Options{Temperature: 2, TopP: 0.6}, []stage{wantTemperature(2), wantTopP(0.6)}},
		{"min-p before temperature", Options{Temperature: 2, MinP: 0.5}, []stage{wantTemperature(2), wantMinP(0.5)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pValue(counts(t, c.o, mixed, history), want(mixed, c.wrong...)); got > 1e-6 {
				t.Errorf("the wrong distribution has probability %.2g", got)
			}
		})
	}
}

// TestTruncate compares what TopK, TopP and MinP leave with the definition, token
// by token, on larger vocabularies than draws reach.
func TestTruncate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		logits := make([]float32, 1+r.IntN(6000)) // of which a few thousand are put in order by their bits
		spread := []float64{0, 0.1, 3, 30}[i%4]
		for id := range logits {
			logits[id] = float32(math.Round(spread*r.NormFloat64()*8) / 8) // with many ties
		}
		k, p, m := 1+r.IntN(200), r.Float64(), r.Float64()/5
		s, err := New(Options{Temperature: 1, TopK: k * (i % 2), TopP: p, MinP: m})
		if err != nil {
			t.Fatal(err)
		}
		var stages []stage
		if i%2 == 1 {
			stages = append(stages, wantTopK(k))
		}
		prob := want(logits, append(stages, wantTopP(p), wantMinP(m))...)
		for id, x := range logits {
			if err := s.admit(id, x); err != nil {
				t.Fatal(err)
			}
		}
		c := s.truncate(s.candidates)
		if err := sameSupport(c, prob); err != nil {
			t.Fatalf("vocabulary %d, top-k %d, top-p %v, min-p %v: %v", len(logits), s.o.TopK, p, m, err)
		}
	}
}

func sameSupport(c []candidate, prob []float64) error {
	kept := make(map[int]bool)
	for _, x := range c {
		if kept[int(x.id)] {
			return fmt.Errorf("token %d is twice among the candidates", x.id)
		}
		kept[int(x.id)] = true
	}
	for id, p := range prob {
		if kept[id] != (p > 0) {
			return fmt.Errorf("token %d: kept %v, want %v", id, kept[id], p > 0)
		}
	}
	return nil
}
