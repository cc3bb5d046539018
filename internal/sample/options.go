package sample

import (
	"fmt"
	"math"
)

// Options say how a token is chosen. The zero value is greedy: the likeliest token. A zero field is off.
type Options struct {
	// Temperature divides the logits before the draw, up to 100. Zero is greedy: no draw, and TopK, TopP, MinP and Seed
	// have no effect.
	Temperature float64

	// TopK keeps the k likeliest tokens.
	TopK int

	// TopP keeps the fewest likeliest tokens with probabilities summing to at least TopP, at most 1; 0 and 1 are off
	// (Holtzman et al., The Curious Case of Neural Text Degeneration, 2019).
	TopP float64

	// MinP keeps the tokens at least MinP times, at most 1, as likely as the likeliest (Nguyen et al., Turning Up the
	// Heat: Min-p Sampling, 2024).
	MinP float64

	// RepeatPenalty divides the positive logits of tokens seen before and multiplies their negative ones, each token
	// once, from 0.01 to 100; 0 and 1 are off (Keskar et al., CTRL, 2019).
	RepeatPenalty float64

	// RepeatLast is the length of the history's end seen by RepeatPenalty: 64 if zero, the whole history if -1.
	RepeatLast int

	// PresencePenalty is subtracted from the logits of tokens already chosen by the sampler, FrequencyPenalty once for
	// each choice, from -100 to 100 (OpenAI's API).
	PresencePenalty, FrequencyPenalty float64

	// Seed chooses the draws. Equal seeds, options, logits and histories give equal tokens, on every architecture.
	Seed uint64

	// Tokens bounds the ids chosen, for models with rows beyond the vocabulary. Zero allows all logits.
	Tokens int

	// LogitBias is added to the logits of its keys; -Inf bans a token. A key outside the vocabulary is an error of
	// Sample.
	LogitBias map[int]float32
}

const (
	maxTemperature    = 100
	minRepeatPenalty  = 0.01
	maxRepeatPenalty  = 100
	defaultRepeatLast = 64
	maxPenalty        = 100
)

// Validate reports the first field out of range, by name.
func (o *Options) Validate() error {
	// The conditions are written to put NaN out of every range.
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
		return fmt.Errorf("Sampling.RepeatPenalty: %v is neither 0 nor from %v to %v", o.RepeatPenalty,
			minRepeatPenalty, maxRepeatPenalty)
	case o.RepeatLast < -1:
		return fmt.Errorf("Sampling.RepeatLast: %d is below -1", o.RepeatLast)
	case !(math.Abs(o.PresencePenalty) <= maxPenalty):
		return fmt.Errorf("Sampling.PresencePenalty: %v is not from -%v to %v", o.PresencePenalty, maxPenalty,
			maxPenalty)
	case !(math.Abs(o.FrequencyPenalty) <= maxPenalty):
		return fmt.Errorf("Sampling.FrequencyPenalty: %v is not from -%v to %v", o.FrequencyPenalty, maxPenalty,
			maxPenalty)
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
