package sample

import (
	"fmt"
	"math"
)

// Options say how a token is chosen. The zero value is greedy: the likeliest token. Each field that is left zero is
// off.
type Options struct {
	// Temperature divides the logits before the draw, up to 100. Zero is greedy: no draw, and TopK, TopP, MinP and Seed
	// have no effect.
	Temperature float64

	// TopK keeps the k likeliest tokens.
	TopK int

	// TopP keeps the fewest likeliest tokens whose probabilities sum to at least TopP, at most 1, which is off like 0
	// (Holtzman et al., The Curious Case of Neural Text Degeneration, 2019).
	TopP float64

	// MinP keeps the tokens that are at least MinP times, at most 1, as likely as the likeliest (Nguyen et al., Turning Up
	// the Heat: Min-p Sampling, 2024).
	MinP float64

	// RepeatPenalty divides the positive logits of tokens that were seen and multiplies their negative ones, each token
	// once, from 0.01 to 100; 1 is off like 0 (Keskar et al., CTRL, 2019).
	RepeatPenalty float64

	// RepeatLast is how many tokens at the end of the history RepeatPenalty looks at: 64 if zero, all of them if -1.
	RepeatLast int

	// PresencePenalty is subtracted from the logits of tokens that the sampler has chosen, FrequencyPenalty as often as it
	// has chosen them, from -100 to 100 (OpenAI's API).
	PresencePenalty, FrequencyPenalty float64

	// Seed chooses the draws. Equal seeds, options, logits and histories give equal tokens, on every architecture.
	Seed uint64

	// Tokens bounds the ids that are chosen: a model may have rows beyond its vocabulary. Zero is all logits.
	Tokens int

	// LogitBias is added to the logits of the tokens that are its keys; -Inf bans one. A key outside the vocabulary is an
	// error of Sample.
	LogitBias map[int]float32
}

const (
	maxTemperature    = 100
	minRepeatPenalty  = 0.01
	maxRepeatPenalty  = 100
	defaultRepeatLast = 64
	maxPenalty        = 100
)

// Validate reports the first field that is out of its range, by name.
func (o *Options) Validate() error {
	// Written so that NaN is out of every range.
	switch {
	case !(o.Temperature >= 0 && o.Temperature <= maxTemperature):
		return fmt.Errorf("Sampling.Temperature: %v is not from 0 to %v", o.Temperature, maxTemperature)
	case o.TopK < 0:
		return fmt.Errorf("Sampling.TopK: %d is negative", o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return fmt.Errorf("Sampling.TopP: %v is not from 0 to 1", o.TopP)
	case !(o.MinP >= 0 && o.MinP <= 1):
		return fmt.Errorf("Sampling.MinP: %v is not from 0 to 1", o.MinP)
	case o.RepeatPenalty != 0 && !(o.RepeatPenalty >= minRepeatPenalty && o.RepeatPenalty <= maxRepeatPenalty):
		return fmt.Errorf("Sampling.RepeatPenalty: %v is neither 0 nor from %v to %v", o.RepeatPenalty, minRepeatPenalty,
			maxRepeatPenalty)
	case o.RepeatLast < -1:
		return fmt.Errorf("Sampling.RepeatLast: %d is below -1", o.RepeatLast)
	case !(math.Abs(o.PresencePenalty) <= maxPenalty):
		return fmt.Errorf("Sampling.PresencePenalty: %v is not from -%v to %v", o.PresencePenalty, maxPenalty, maxPenalty)
	case !(math.Abs(o.FrequencyPenalty) <= maxPenalty):
		return fmt.Errorf("Sampling.FrequencyPenalty: %v is not from -%v to %v", o.FrequencyPenalty, maxPenalty, maxPenalty)
	}
	for id, b := range o.LogitBias {
		switch {
		case id < 0:
			return fmt.Errorf("Sampling.LogitBias: token %d is negative", id)
		case b != b || math.IsInf(float64(b), 1):
			return fmt.Errorf("Sampling.LogitBias: token %d: %v is neither finite nor -Inf", id, b)
		}
	}
	return nil
}
