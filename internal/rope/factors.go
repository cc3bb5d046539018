package rope

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// GGUF returns the divisors of the frequencies, in a GGUF file the tensor rope_freqs; nil if p needs none. Each step is
// rounded as in llama.cpp's converter, which computes in PyTorch (generate_extra_tensors in conversion/llama.py and
// gemma.py there).
func (p Params) GGUF(dim int) ([]float32, error) {
	p = p.whole()
	if _, err := Resolve(dim, p); err != nil {
		return nil, err
	}
	factors := make([]float32, dim/2)
	switch p.Type {
	case "proportional":
		if p.Factor != 0 && p.Factor != 1 {
			return nil, fmt.Errorf("GGUF has no key for factor %v with rope_type proportional", p.Factor)
		}
		turning := len(make(Freqs, dim/2).Partial(cmp.Or(p.Part, 1)))
		for i := range factors {
			factors[i] = 1
			if i >= turning {
				factors[i] = 1e30
			}
		}
	case "llama3":
		for i, v := range New(p.Theta, dim) {
			factors[i] = p.bandFactor(v)
		}
	case "factors":
		copy(factors, p.Factors)
	case "yarn", "longrope":
		return nil, fmt.Errorf("rope_type %s has no divisors", p.Type)
	default:
		return nil, nil
	}
	return factors, nil
}

// bandFactor returns the divisor of the frequency v in Bands.
func (p *Params) bandFactor(v float64) float32 {
	wave := round(round(1/v) * round(2*math.Pi))
	switch {
	case wave < round(p.Context/p.High):
		return 1
	case wave > round(p.Context/p.Low):
		return float32(p.Factor)
	}
	turns := round(round(1/wave) * p.Context)
	mix := round(round(turns-p.Low) / round(p.High-p.Low))
	return float32(1 / round(round(round(1-mix)/p.Factor)+mix))
}

// BandsFrom finds the settings of type llama3 whose divisors, rounded as GGUF rounds them, are factors: the published
// low_freq_factor 1 and high_freq_factor 4, and a context that is a power of two. It returns false if there are none.
func BandsFrom(theta float64, factors []float32) (Params, bool) {
	if len(factors) == 0 || len(factors) > 1<<15 {
		return Params{}, false
	}
	p := Params{Type: "llama3", Theta: theta, Factor: float64(slices.Max(factors)), Low: 1, High: 4}
	for p.Context = 32; p.Context <= 1<<22; p.Context *= 2 {
		if got, err := p.GGUF(2 * len(factors)); err == nil && slices.Equal(got, factors) {
			return p, true
		}
	}
	return Params{}, false
}

// Banded finds the settings of type llama3 making freqs of the powers of base, as BandsFrom does from divisors. It
// returns false if there are none.
func Banded(freqs []float64, base float64, dim int) (Params, bool) {
	plain, last := New(base, dim), len(freqs)-1
	if len(plain) != len(freqs) || last < 0 {
		return Params{}, false
	}
	p := Params{Type: "llama3", Theta: base, Factor: math.Round(plain[last] / freqs[last]), Low: 1, High: 4}
	for p.Context = 128; p.Context <= 1<<22 && p.Factor > 1; p.Context *= 2 {
		r, err := Resolve(dim, p)
		if err == nil && near(r.Freqs, freqs) && freqs[0] == plain[0] {
			return p, true
		}
	}
	return Params{}, false
}

// near reports whether frequencies are the same up to the rounding of float32.
func near(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6*math.Abs(b[i]) {
			return false
		}
	}
	return true
}
