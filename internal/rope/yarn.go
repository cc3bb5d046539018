package rope

import (
	"cmp"
	"fmt"
	"math"
)

// Yarn keeps the frequencies of pairs turning often within the original context, divides the frequencies of slow pairs
// by factor, and blends between the pairs low and high. (Peng et al. 2023, arXiv:2309.00071; _compute_yarn_parameters
// in transformers/modeling_rope_utils.py, rounded as there.)
func Yarn(base float64, dim int, factor, low, high float64) Freqs {
	if low == high {
		high += 0.001
	}
	f := make(Freqs, dim/2)
	for i := range f {
		power := round(pow(base, round(float64(2*i)/float64(dim))))
		kept, divided := round(1/power), round(1/round(factor*power))
		ramp := min(max(round(round(float64(i)-round(low))/round(high-low)), 0), 1)
		keep := round(1 - ramp)
		f[i] = round(round(divided*round(1-keep)) + round(kept*keep))
	}
	return f
}

// yarn returns Yarn between the pairs that turn Fast and Slow times within the original context, and its magnitude: p's
// own, else 0.1·ln(factor) + 1, else, if p has both multipliers, the ratio of two such sums.
func (p *Params) yarn(dim int) (Freqs, float64, error) {
	original, factor, err := p.growth()
	if err != nil {
		return nil, 0, err
	}
	fast, slow := cmp.Or(p.Fast, 32), cmp.Or(p.Slow, 1)
	if err := cmp.Or(p.positive("factor", factor), p.positive("beta_fast", fast),
		p.positive("beta_slow", slow)); err != nil {
		return nil, 0, err
	}
	if fast < slow {
		return nil, 0, fmt.Errorf("rope_type yarn: beta_fast %v is below beta_slow %v", fast, slow)
	}
	if p.Theta == 1 {
		return nil, 0, fmt.Errorf("rope_type yarn: rope_theta is 1")
	}
	// pair returns the pair turning n times; a number between pairs.
	pair := func(n float64) float64 {
		return float64(float64(dim)*ln(original/(n*2*math.Pi))) / float64(2*ln(p.Theta))
	}
	low, high := pair(fast), pair(slow)
	if p.Truncate == nil || *p.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))

	magnitude := p.Magnitude
	if magnitude == 0 && factor > 1 {
		magnitude = mscale(factor, 1)
		if p.Mscale != 0 && p.MscaleAllDim != 0 {
			magnitude = mscale(factor, p.Mscale) / mscale(factor, p.MscaleAllDim)
		}
	}
	return Yarn(p.Theta, dim, factor, low, high), magnitude, p.magnitude(magnitude, factor)
}

// mscale returns 0.1·m·ln(factor) + 1, for factors above 1.
func mscale(factor, m float64) float64 { return float64(0.1*m*ln(factor)) + 1 }

// ScoreScale returns a further factor of attention's scores: for a yarn with mscale_all_dim, the square of its
// multiplier, the part of the magnitude missing in features that do not turn. (transformers' modeling_deepseek_v3.py)
func (p Params) ScoreScale() float64 {
	p = p.whole()
	_, factor, err := p.growth()
	if p.Type != "yarn" || p.MscaleAllDim == 0 || err != nil || !(factor > 1) {
		return 1
	}
	by := mscale(factor, p.MscaleAllDim)
	return by * by
}

// growth returns the context of the model's first training, and by how much the longest context exceeds it: p's own
// factor, else their ratio.
func (p *Params) growth() (original, factor float64, err error) {
	if !(p.Context >= 1 && p.Context <= 1<<31-1) {
		return 0, 0, fmt.Errorf("rope_type %s: original_max_position_embeddings is %v, expected 1 to 2147483647",
			p.Type, p.Context)
	}
	return p.Context, cmp.Or(p.Factor, float64(p.longest)/p.Context), nil
}

// magnitude checks v, perhaps 0 for 1, and its factor.
func (p *Params) magnitude(v, factor float64) error {
	if !(v >= 0 && v <= 1e6) {
		return fmt.Errorf("rope_type %s: attention_factor is %v, expected a positive number", p.Type, v)
	}
	return p.positive("factor", factor)
}
