// Package rope computes the frequencies of rotary position embeddings, their published scalings, and the tables of
// cosines and sines that every backend reads. (Su et al. 2021, arXiv:2104.09864)
//
// Every step is rounded to float32 where, and in the order of Hugging Face Transformers on PyTorch
// (transformers/modeling_rope_utils.py): at position 300 an angle rounded otherwise is off by 1e-5. Powers, cosines and
// sines are this package's own, so that a table has the same bits on every machine.
//
// The files in reading order: factors.go (settings in GGUF), params.go (settings in files), long.go and yarn.go (two
// scalings), table.go, rope.go (frequencies), math.go.
package rope

import "math"

// Freqs holds one turning speed in radians per position for each leading pair
// of a head; pairs past its end do not turn. The values are float32 numbers.
type Freqs []float64

// New returns the dim/2 frequencies 1/base^(2i/dim). It expects base ≥ 1 and an even dim.
func New(base float64, dim int) Freqs {
	f := make(Freqs, dim/2)
	for i := range f {
		f[i] = round(1 / round(pow(base, round(float64(2*i)/float64(dim)))))
	}
	return f
}

// Partial keeps the leading part of the pairs; the others do not turn. It expects part from 0 to 1.
func (f Freqs) Partial(part float64) Freqs {
	return f[:int(float64(len(f))*part)]
}

// Linear divides every frequency by factor, which stretches the context.
// (Chen et al. 2023, arXiv:2306.15595)
func (f Freqs) Linear(factor float64) Freqs {
	g := make(Freqs, len(f))
	for i, v := range f {
		g[i] = round(v / factor)
	}
	return g
}

// Factors divides frequency i by factors[i], as GGUF's rope_freqs tensor states a scaling. Pairs with a factor of 1e30
// or more do not turn: llama.cpp's converter writes Partial so. It expects len(factors) ≥ len(f).
func (f Freqs) Factors(factors []float32) Freqs {
	g, n := make(Freqs, len(f)), 0
	for i, v := range f {
		if factors[i] < 1e30 {
			g[i], n = round(v/float64(factors[i])), i+1
		}
	}
	return g[:n]
}

// Bands divides the frequencies whose wavelength exceeds context/low by
// factor, keeps wavelengths below context/high and blends between.
// (_compute_llama3_parameters in transformers/modeling_rope_utils.py; PyTorch
// divides a number by a tensor as the number times the tensor's reciprocal.)
func (f Freqs) Bands(factor, low, high, context float64) Freqs {
	g := make(Freqs, len(f))
	for i, v := range f {
		wave := round(round(1/v) * round(2*math.Pi))
		switch {
		case wave < round(context/high):
			g[i] = v
		case wave > round(context/low):
			g[i] = round(v / factor)
		default:
			turns := round(round(1/wave) * context) // in the original context
			mix := round(round(turns-low) / round(high-low))
			slow := round(round(round(1-mix)*v) / factor)
			g[i] = round(slow + round(mix*v))
		}
	}
	return g
}

// Turn returns the cosine and sine of the angle of a pair of frequency freq at a position, both as float32 numbers.
// Turn is exact to float32 rounding for angles below 2^30.
func Turn(pos int, freq float64) (cos, sin float64) {
	sin, cos = sincos(round(float64(pos) * freq))
	return round(cos), round(sin)
}

// TurnBy does Turn's work with cosine and sine multiplied by a magnitude, in float32; 0 is 1. (As transformers
// multiplies by attention_scaling.)
func TurnBy(pos int, freq, magnitude float64) (cos, sin float64) {
	cos, sin = Turn(pos, freq)
	if magnitude != 0 {
		magnitude = round(magnitude)
		cos, sin = round(cos*magnitude), round(sin*magnitude)
	}
	return cos, sin
}

func round(x float64) float64 { return float64(float32(x)) }
