// Package sample chooses the next token from a model's logits.
//
// The order of application is llama.cpp's default (common/sampling.cpp):
//
//	LogitBias, RepeatPenalty, PresencePenalty and FrequencyPenalty, TopK, TopP, MinP, Temperature, draw
//
// Each step sees the result of the step before. TopP sums probabilities renormalized over the tokens kept by TopK.
// Temperature comes last: TopP and MinP judge the model's belief, at temperature 1, and a high temperature flattens
// only plausible tokens.
//
// Hugging Face transformers divides by the temperature before TopK, TopP and MinP: there a temperature above 1 also
// lets more tokens through TopP and MinP, a lower temperature fewer. Its repetition penalty looks at the whole history,
// like RepeatLast -1; llama.cpp looks at the last 64 tokens.
//
// Ties go to the lowest token id, in the greedy choice and at the edges of TopK and TopP. All arithmetic is in fixed
// order with fixed roundings, so equal logits and seeds give equal tokens on every architecture.
//
// Files in reading order: logprob.go (log-probabilities), mask.go (a grammar's tokens), sampler.go (Sampler),
// options.go (Options), truncate.go (TopK, TopP, MinP), exp.go (sums of powers).
package sample

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/simd"
)

// A Sampler chooses the tokens of one sequence. A Sampler is not safe for concurrent use. Drawing takes about 16 bytes
// per token of the vocabulary, and TopP as many again.
type Sampler struct {
	o       Options
	penalty float32
	bias    []bias // sorted by id
	logMinP float64
	random  *rand.PCG
	chosen  map[int]int // how often each token was; nil where nobody asks

	adjusted   []float32 // logits after bias and penalty
	seen       []bool    // by token id; all false between calls
	candidates []candidate
	scratch    []candidate
}

// A bias is an entry of Options.LogitBias.
type bias struct {
	id    int
	value float32
}

// A candidate is a token still in the running.
type candidate struct {
	id     int32
	logit  float32
	weight float64 // not normalized; set by weigh
}

// New returns a sampler, or an error naming the option out of range. New keeps no reference to o.LogitBias.
func New(o Options) (*Sampler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sampler{o: o, penalty: float32(o.RepeatPenalty), random: rand.NewPCG(o.Seed, 0)}
	if o.MinP > 0 {
		s.logMinP = log(max(o.MinP, 0x1p-1022))
	}
	if o.RepeatLast == 0 {
		s.o.RepeatLast = defaultRepeatLast
	}
	for _, id := range slices.Sorted(maps.Keys(o.LogitBias)) {
		s.bias = append(s.bias, bias{id, o.LogitBias[id]})
	}
	s.o.LogitBias = nil
	if o.PresencePenalty != 0 || o.FrequencyPenalty != 0 {
		s.chosen = map[int]int{}
	}
	return s, nil
}

// Sample chooses the token after history, given a logit for each token of the vocabulary, and leaves the logits as they
// are. A logit of -Inf bans its token. A NaN, +Inf, no logit above -Inf, and a token of the history or of LogitBias
// outside the vocabulary are errors, never a token.
func (s *Sampler) Sample(logits []float32, history []int) (id int, err error) {
	logits, err = s.adjust(logits, history)
	if err != nil {
		return 0, err
	}
	if id, err = s.chooseFrom(logits); err == nil && s.chosen != nil {
		s.chosen[id]++
	}
	return id, err
}

// chooseFrom returns the options' choice from adjusted logits.
func (s *Sampler) chooseFrom(logits []float32) (id int, err error) {
	if n := s.o.Tokens; n > 0 && n < len(logits) {
		logits = logits[:n]
	}
	if s.o.Temperature == 0 {
		return argmax(logits)
	}
	if k := s.o.TopK; k > 0 && k < len(logits) { // truncate's, without candidates of all tokens
		if _, err := argmax(logits); err != nil {
			return 0, err
		}
		s.candidates = likeliest(s.candidates, logits, k)
		sortDown(s.candidates, higherID)
		return s.pick()
	}
	s.candidates = slices.Grow(s.candidates[:0], len(logits))[:len(logits)]
	n := 0
	for id, x := range logits {
		if !(x <= math.MaxFloat32) {
			return 0, check(id, x)
		}
		s.candidates[n] = candidate{id: int32(id), logit: x}
		if x >= -math.MaxFloat32 { // else the token is banned, and its place free
			n++
		}
	}
	s.candidates = s.candidates[:n]
	return s.pick()
}

// Likely is a token and its logit.
type Likely struct {
	ID    int
	Logit float32
}

// Likeliest returns how many of the likeliest tokens Choose needs to choose as Sample does; 0 if Sample must see all
// logits.
func (s *Sampler) Likeliest() int {
	switch {
	case len(s.bias) > 0 || s.penalizes() || s.chosen != nil:
		return 0
	case s.o.Temperature == 0:
		return 1
	}
	return s.o.TopK
}

// Choose samples like Sample, given as many of the likeliest tokens as Likeliest returns, or all: the higher logit
// first, of equal logits the lower id. NaN and +Inf are errors; their place is above all other logits.
func (s *Sampler) Choose(likeliest []Likely) (id int, err error) {
	s.candidates = s.candidates[:0]
	for _, x := range likeliest {
		if err := s.admit(x.ID, x.Logit); err != nil {
			return 0, err
		}
	}
	if s.o.Temperature == 0 && len(s.candidates) > 0 {
		return likeliest[0].ID, nil
	}
	sortDown(s.candidates, higherID)
	return s.pick()
}

// admit takes a token among the candidates, unless the token is banned.
func (s *Sampler) admit(id int, logit float32) error {
	if err := check(id, logit); err != nil {
		return err
	}
	if !math.IsInf(float64(logit), -1) {
		s.candidates = append(s.candidates, candidate{id: int32(id), logit: logit})
	}
	return nil
}

// pick chooses among the candidates, given in the order of their ids.
func (s *Sampler) pick() (int, error) {
	if len(s.candidates) == 0 {
		return 0, errNoToken
	}
	c := s.truncate(s.candidates)
	total := weigh(c, s.o.Temperature)
	return draw(c, total*s.uniform()), nil
}

// Pass counts a token that Sample did not choose, and drops the number that Sample would have drawn: later choices are
// as if Sample had chosen the token.
func (s *Sampler) Pass(id int) {
	if s.o.Temperature > 0 {
		s.uniform()
	}
	if s.chosen != nil {
		s.chosen[id]++
	}
}

// uniform returns the next number of [0, 1), in steps of 2^-53.
func (s *Sampler) uniform() float64 { return float64(s.random.Uint64()>>11) * 0x1p-53 }

// adjust applies LogitBias and the penalties to a copy of logits.
func (s *Sampler) adjust(logits []float32, history []int) ([]float32, error) {
	penalize := s.penalizes() && len(history) > 0
	if len(s.bias) == 0 && !penalize && len(s.chosen) == 0 {
		return logits, nil
	}
	s.adjusted = append(s.adjusted[:0], logits...)
	for _, b := range s.bias {
		if b.id >= len(logits) {
			return nil, fmt.Errorf("Sampling.LogitBias: token %d is outside the vocabulary of %d", b.id, len(logits))
		}
		s.adjusted[b.id] += b.value
	}
	if penalize {
		if err := s.penalizeRepeats(history); err != nil {
			return nil, err
		}
	}
	for id, n := range s.chosen {
		s.adjusted[id] -= float32(s.o.PresencePenalty + float64(s.o.FrequencyPenalty*float64(n)))
	}
	return s.adjusted, nil
}

// penalizes reports whether RepeatPenalty is on.
func (s *Sampler) penalizes() bool { return s.penalty != 0 && s.penalty != 1 }

// penalizeRepeats applies RepeatPenalty to s.adjusted.
func (s *Sampler) penalizeRepeats(history []int) error {
	first := 0
	if n := s.o.RepeatLast; n >= 0 {
		first = max(0, len(history)-n)
	}
	window := history[first:]
	for i, id := range window {
		if id < 0 || id >= len(s.adjusted) {
			return fmt.Errorf("history: position %d: token %d is outside the vocabulary of %d", first+i, id,
				len(s.adjusted))
		}
	}
	if len(s.seen) < len(s.adjusted) {
		s.seen = make([]bool, len(s.adjusted))
	}
	for _, id := range window {
		if s.seen[id] {
			continue
		}
		s.seen[id] = true
		if s.adjusted[id] > 0 {
			s.adjusted[id] /= s.penalty
		} else {
			s.adjusted[id] *= s.penalty
		}
	}
	for _, id := range window {
		s.seen[id] = false
	}
	return nil
}

// truncate applies TopK, TopP and MinP to c. c and the result of TopK are in the order of ids: a draw depends on
// nothing except its tokens.
func (s *Sampler) truncate(c []candidate) []candidate {
	if s.o.TopK > 0 && s.o.TopK < len(c) {
		c = topK(c, s.o.TopK)
		sortDown(c, higherID)
	}
	if s.o.TopP > 0 && s.o.TopP < 1 {
		c, s.scratch = topP(c, s.o.TopP, s.scratch)
	}
	if s.o.MinP > 0 {
		c = minP(c, s.logMinP)
	}
	return c
}

var errNoToken = errors.New("no logit is above -Inf")

// check refuses NaN and +Inf.
func check(id int, x float32) error {
	if x != x || x > math.MaxFloat32 {
		return fmt.Errorf("logit of token %d: %v: a weight is damaged, or a value too large; \"karat check\" and "+
			"\"karat stats\" find which", id, x)
	}
	return nil
}

// argmax returns the token with the highest logit, the lowest id of equal ones.
func argmax(logits []float32) (int, error) {
	top := simd.Maximum(logits)
	switch {
	case math.IsInf(float64(top), -1):
		return 0, errNoToken
	case top <= math.MaxFloat32:
		return slices.Index(logits, top), nil
	}
	bad := slices.IndexFunc(logits, func(x float32) bool { return !(x <= math.MaxFloat32) })
	return 0, check(bad, logits[bad])
}

// highest returns the highest logit of c.
func highest(c []candidate) float64 {
	top := c[0].logit
	for i := range c {
		top = max(top, c[i].logit)
	}
	return float64(top)
}

// draw returns the token at x of the way along the weights, 0 <= x <= their sum.
func draw(c []candidate, x float64) int {
	last := 0
	sum := 0.0
	for i := range c {
		if c[i].weight == 0 {
			continue
		}
		last = i
		if sum += c[i].weight; x < sum {
			break
		}
	}
	return int(c[last].id)
}
