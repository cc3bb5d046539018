package synth

import (
	"slices"

	"github.com/karat-run/karat/internal/quantmix"
)

// types are the mixes that files are made of.
var types = []string{"BF16", "F16", "IQ4_XS", "MXFP4_MOE", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0"}

// Types lists the names of the mixes.
func Types() []string { return slices.Clone(types) }

// model is what a mix depends on.
func (s *shape) model() quantmix.Model {
	m := quantmix.Model{Arch: s.Family.Name, Layers: s.Layers, Experts: s.Experts}
	if is := s.is(0); is == attends || is == both {
		m.Group = s.Heads / s.KVHeads
	}
	return m
}
