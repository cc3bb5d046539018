package rope

import (
	"cmp"
	"fmt"
	"math"
)

// longFreqs returns longrope's frequencies 1/(factor·base^(2i/dim)), with factors from one of two lists. The list is
// chosen by the context at a model's opening, once, when its graph is recorded: the short one up to original positions,
// the long one beyond.
//
// So a row's bits depend on its position and on the model as opened, and neither on a prompt's cuts nor on its
// sequence's later length; stored keys stay right when a sequence passes original. (As get_rope_factors in
// llama.cpp/src/llama-model.cpp. Transformers chooses by the longest sequence of each call, longrope_frequency_update
// in modeling_rope_utils.py, and its decoding computes a sequence that passes original again from the beginning: the
// same where the context is what the sequence comes to.)
//
// Each step is rounded as in _compute_longrope_parameters there.
func longFreqs(base float64, dim int, short, long []float32, original, context int) (Freqs, error) {
	if dim <= 0 || dim%2 != 0 || dim > 1<<16 || !(base >= 1 && base <= 1e30) || original < 1 {
		return nil, fmt.Errorf("longrope: head size %d, rope_theta %v, original_max_position_embeddings %d", dim, base,
			original)
	}
	factors, name, idle, other := short, "short_factor", long, "long_factor"
	if context > original {
		factors, name, idle, other = long, other, short, name
	}
	check := func(name string, list []float32) error {
		if len(list) != dim/2 {
			return fmt.Errorf("longrope: %d numbers in %s for %d pairs", len(list), name, dim/2)
		}
		for i, v := range list {
			if !(v >= 1.0/maxFreq && v <= 1e30) {
				return fmt.Errorf("longrope: %s %d is %v, expected 1/%d to 1e30", name, i, v, maxFreq)
			}
		}
		return nil
	}
	if err := cmp.Or(check(name, factors), check(other, idle)); err != nil { // a file is wrong whatever the context
		return nil, err
	}
	f := make(Freqs, dim/2)
	for i, v := range factors {
		f[i] = round(1 / round(float64(v)*round(pow(base, round(float64(2*i)/float64(dim))))))
	}
	return f, nil
}

// longrope returns longFreqs of p's lists, and the magnitude sqrt(1 + ln(factor)/ln(original)) unless p has one, factor
// being the model's longest context over the original.
func (p *Params) longrope(dim int) (Freqs, float64, error) {
	original, factor, err := p.growth()
	if err != nil {
		return nil, 0, err
	}
	f, err := longFreqs(p.Theta, dim, p.Short, p.Long, int(original), cmp.Or(p.opened, p.longest))
	if err != nil {
		return nil, 0, err
	}
	magnitude := p.Magnitude
	if magnitude == 0 && factor > 1 && original > 1 {
		magnitude = math.Sqrt(1 + ln(factor)/ln(original))
	}
	return f, magnitude, p.magnitude(magnitude, factor)
}
