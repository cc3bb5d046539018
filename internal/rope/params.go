package rope

import (
	"cmp"
	"fmt"
)

// Params is how a file describes a rotary embedding. The tags are the keys of
// Hugging Face's config.json, there at the top level, in rope_scaling or in
// rope_parameters. The zero value says nothing.
type Params struct {
	Theta   float64 `json:"rope_theta"`
	Type    string  `json:"rope_type"` // default, linear, llama3, proportional, or factors
	OldType string  `json:"type"`      // an older spelling of Type
	Factor  float64 `json:"factor"`
	Low     float64 `json:"low_freq_factor"`
	High    float64 `json:"high_freq_factor"`
	Context float64 `json:"original_max_position_embeddings"`
	Part    float64 `json:"partial_rotary_factor"` // of the pairs that turn; 0 means all

	// Factors is GGUF's rope_freqs tensor: the divisors of the frequencies,
	// with Type "factors".
	Factors []float32 `json:"factors"`
}

// maxFreq bounds frequencies: published ones are at most 1. With it no
// position of a Table has an angle beyond what Turn computes exactly.
const maxFreq = 64

// From returns the frequencies for heads of dim features that ps together
// describe. The first to set a base, a type, or a part decides it, the type
// along with its numbers; no type means no scaling.
//
// Types: "default"; "linear" (Factor); "llama3" (Factor, Low, High, Context);
// "proportional" (the leading Part of the pairs, divided by Factor if set);
// "factors" (Factors). Any other is an error that names it.
func From(dim int, ps ...Params) (Freqs, error) {
	var p Params
	var theta, part float64
	for _, q := range ps {
		q.Type = cmp.Or(q.Type, q.OldType)
		if p.Type == "" {
			p = q
		}
		theta, part = cmp.Or(theta, q.Theta), cmp.Or(part, q.Part)
	}
	p.Theta, p.Part = theta, part
	f, err := p.freqs(dim)
	if err != nil {
		return nil, fmt.Errorf("rope: %w", err)
	}
	for i, v := range f {
		if !(v >= 0 && v <= maxFreq) {
			return nil, fmt.Errorf("rope: frequency %d of %d is %v, expected 0 to %d", i, len(f), v, maxFreq)
		}
	}
	return f, nil
}

func (p *Params) freqs(dim int) (Freqs, error) {
	if dim <= 0 || dim%2 != 0 || dim > 1<<16 {
		return nil, fmt.Errorf("head size %d, expected an even number up to 65536", dim)
	}
	if !(p.Theta >= 1 && p.Theta <= 1e30) {
		return nil, fmt.Errorf("rope_theta %v, expected 1 to 1e30", p.Theta)
	}
	if !(p.Part >= 0 && p.Part <= 1) {
		return nil, fmt.Errorf("partial_rotary_factor %v, expected 0 to 1", p.Part)
	}
	if p.Type != "proportional" && p.Part != 0 && p.Part != 1 {
		return nil, fmt.Errorf("partial_rotary_factor %v with rope_type %q is not supported", p.Part, p.Type)
	}
	return p.scale(New(p.Theta, dim))
}

// scale applies the type to the plain frequencies.
func (p *Params) scale(f Freqs) (Freqs, error) {
	switch p.Type {
	case "", "default":
		return f, nil
	case "linear":
		if err := p.positive("factor", p.Factor); err != nil {
			return nil, err
		}
		return f.Linear(p.Factor), nil
	case "proportional":
		factor := cmp.Or(p.Factor, 1)
		if err := p.positive("factor", factor); err != nil {
			return nil, err
		}
		return f.Partial(cmp.Or(p.Part, 1)).Linear(factor), nil
	case "llama3":
		return p.llama3(f)
	case "factors":
		return p.divide(f)
	}
	return nil, fmt.Errorf("rope_type %q is not supported", p.Type)
}

func (p *Params) llama3(f Freqs) (Freqs, error) {
	err := cmp.Or(
		p.positive("factor", p.Factor),
		p.positive("low_freq_factor", p.Low),
		p.positive("high_freq_factor", p.High),
		p.positive("original_max_position_embeddings", p.Context))
	if err != nil {
		return nil, err
	}
	if p.Low >= p.High {
		return nil, fmt.Errorf("rope_type llama3: low_freq_factor %v is not below high_freq_factor %v", p.Low, p.High)
	}
	return f.Llama3(p.Factor, p.Low, p.High, p.Context), nil
}

func (p *Params) divide(f Freqs) (Freqs, error) {
	if len(p.Factors) != len(f) {
		return nil, fmt.Errorf("%d frequency factors for %d pairs", len(p.Factors), len(f))
	}
	for i, v := range p.Factors {
		if err := p.positive(fmt.Sprintf("frequency factor %d", i), float64(v)); err != nil {
			return nil, err
		}
	}
	return f.Factors(p.Factors), nil
}

func (p *Params) positive(name string, v float64) error {
	if v > 0 && v <= 1e38 {
		return nil
	}
	return fmt.Errorf("rope_type %s: %s is %v, expected a positive number", p.Type, name, v)
}
