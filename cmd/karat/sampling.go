package main

import (
	"strings"

	"github.com/karat-run/karat"
	"github.com/spf13/pflag"
)

// samplingFlags say how tokens are chosen. Each that is given overrides that one
// field of what the model's publisher recommends.
type samplingFlags struct {
	flags *pflag.FlagSet
	given karat.Sampling
	seed  uint64
}

func (s *samplingFlags) add(fs *pflag.FlagSet) {
	s.flags = fs
	fs.Float64Var(&s.given.Temperature, "temp", 0, "`temperature`; 0 is greedy (default: as the model recommends, else 0)")
	alias(fs, "temp", "temperature")
	fs.IntVar(&s.given.TopK, "top-k", 0, "draw from the `k` likeliest tokens; 0 is off")
	fs.Float64Var(&s.given.TopP, "top-p", 0, "draw from the likeliest tokens that together have this `probability`; 0 and 1 are off")
	fs.Float64Var(&s.given.MinP, "min-p", 0, "draw from tokens at least this `share` as likely as the likeliest; 0 is off")
	fs.Float64Var(&s.given.RepeatPenalty, "repeat-penalty", 0, "divide the logits of the last 64 tokens by this `factor`; 0 and 1 are off")
	fs.Uint64Var(&s.seed, "seed", 0, "`seed` of the draws, by which a text comes again (default: a random one; -v says it)")
}

// check finds values that are out of range.
func (s *samplingFlags) check() error {
	if err := s.given.Validate(); err != nil {
		return usagef("%s", optionFlags.Replace(err.Error()))
	}
	return nil
}

// optionFlags names options as the flags that set them.
var optionFlags = strings.NewReplacer("Sampling.Temperature:", "--temp:", "Sampling.TopK:", "--top-k:", "Sampling.TopP:", "--top-p:",
	"Sampling.MinP:", "--min-p:", "Sampling.RepeatPenalty:", "--repeat-penalty:")

// over is the recommendation with the given flags in place.
func (s *samplingFlags) over(r karat.Sampling) karat.Sampling {
	changed := s.flags.Changed
	if changed("temp") {
		r.Temperature = s.given.Temperature
	}
	if changed("top-k") {
		r.TopK = s.given.TopK
	}
	if changed("top-p") {
		r.TopP = s.given.TopP
	}
	if changed("min-p") {
		r.MinP = s.given.MinP
	}
	if changed("repeat-penalty") {
		r.RepeatPenalty = s.given.RepeatPenalty
	}
	if changed("seed") {
		r.Seed = &s.seed
	}
	return r
}
