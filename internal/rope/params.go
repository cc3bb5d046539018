package rope

import (
	"cmp"
	"fmt"
)

// Params is how a file describes a rotary embedding. The tags are the keys of Hugging Face's config.json, there at the
// top level, in rope_scaling or in rope_parameters. The zero value says nothing.
type Params struct {
	Theta   float64 `json:"rope_theta"`
	Type    string  `json:"rope_type"` // one of Resolve's
	Factor  float64 `json:"factor"`
	Low     float64 `json:"low_freq_factor"`
	High    float64 `json:"high_freq_factor"`
	Context float64 `json:"original_max_position_embeddings"`
	Part    float64 `json:"partial_rotary_factor"` // of the turning features or pairs; 0 means all

	// Of yarn; Magnitude also of longrope. 0 and nil mean the library's defaults.
	Fast         float64 `json:"beta_fast"` // turns within Context from which on a pair keeps its frequency; 32
	Slow         float64 `json:"beta_slow"` // turns up to which a pair's frequency is divided; 1
	Truncate     *bool   `json:"truncate"`  // whether the bounds between are whole pairs; true
	Magnitude    float64 `json:"attention_factor"`
	Mscale       float64 `json:"mscale"`
	MscaleAllDim float64 `json:"mscale_all_dim"`

	// Of longrope: divisors of the frequencies up to Context, and beyond.
	Short []float32 `json:"short_factor"`
	Long  []float32 `json:"long_factor"`

	// Factors is GGUF's rope_freqs tensor: the divisors of the frequencies, with Type "factors".
	Factors []float32 `json:"factors"`

	longest, opened int // see Open
}

// Kinds are the settings by kind of layer.
type Kinds struct {
	Full    Params `json:"full_attention"`
	Sliding Params `json:"sliding_attention"`
}

// Open says for how many positions a model was made (max_position_embeddings), and for how many the model is opened; 0
// is all of them.
func (k *Kinds) Open(longest, opened int) {
	for _, p := range []*Params{&k.Full, &k.Sliding} {
		p.longest, p.opened = longest, opened
	}
}

// maxFreq bounds frequencies: published ones are at most 1. All angles of a Table then stay within Turn's exact range.
const maxFreq = 64

// Reads reports whether the type of scaling kind reads key, a key of config.json that Params has.
func Reads(kind, key string) bool {
	switch key {
	case "factor":
		return kind != "" && kind != "default" && kind != "factors"
	case "low_freq_factor", "high_freq_factor":
		return kind == "llama3"
	case "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim":
		return kind == "yarn"
	case "attention_factor":
		return kind == "yarn" || kind == "longrope"
	case "short_factor", "long_factor":
		return kind == "longrope"
	}
	return true
}

// A Rotation is how the features of a head turn.
type Rotation struct {
	Freqs     Freqs
	Dim       int     // the leading features of a head forming pairs; 0 for all
	Magnitude float64 // multiplies cosines and sines; 0 is 1
}

// Resolve returns how heads of dim features turn, in the first Part of the features if p has it. Types: "default";
// "linear" (Factor); "dynamic"; "llama3" (Factor, Low, High, Context); "yarn" (Factor, Context, Fast, Slow, Truncate,
// Magnitude, Mscale, MscaleAllDim); "longrope" (Short, Long, Context, Factor, Magnitude); "proportional" (the leading
// Part of the pairs, divided by Factor if set); "factors" (Factors). Any other type is an error. No type means no
// scaling.
//
// "dynamic" has a larger base for texts longer than max_position_embeddings. All positions of a text then turn by a
// base that follows from its length, so stored keys would be wrong a token later: a model opened for such texts is an
// error. (_compute_dynamic_ntk_parameters in transformers/modeling_rope_utils.py)
func Resolve(dim int, p Params) (Rotation, error) {
	p = p.whole()
	r, err := p.turn(dim)
	if err != nil {
		return Rotation{}, Error{err}
	}
	for i, v := range r.Freqs {
		if !(v >= 0 && v <= maxFreq) {
			return Rotation{}, fmt.Errorf("frequency %d of %d is %v, expected 0 to %d", i, len(r.Freqs), v, maxFreq)
		}
	}
	return r, nil
}

// whole returns p with the original context, if absent, as the library assumes.
func (p Params) whole() Params {
	p.Context = cmp.Or(p.Context, float64(p.longest))
	return p
}

// Error is an error of settings that contradict each other or that no type takes.
type Error struct{ error }

func (p *Params) turn(dim int) (r Rotation, err error) {
	if dim <= 0 || dim%2 != 0 || dim > 1<<16 {
		return r, fmt.Errorf("head size %d, expected an even number up to 65536", dim)
	}
	if !(p.Theta >= 1 && p.Theta <= 1e30) {
		return r, fmt.Errorf("rope_theta %v, expected 1 to 1e30", p.Theta)
	}
	if !(p.Part >= 0 && p.Part <= 1) {
		return r, fmt.Errorf("partial_rotary_factor %v, expected 0 to 1", p.Part)
	}
	if p.Type != "proportional" && p.Part != 0 && p.Part != 1 {
		dim = int(float64(dim) * p.Part)
		if r.Dim = dim; dim == 0 || dim%2 != 0 {
			return r, fmt.Errorf("partial_rotary_factor %v makes pairs of %d features, expected an even number",
				p.Part, dim)
		}
	}
	switch p.Type {
	case "yarn":
		r.Freqs, r.Magnitude, err = p.yarn(dim)
	case "longrope":
		r.Freqs, r.Magnitude, err = p.longrope(dim)
	default:
		r.Freqs, err = p.scale(New(p.Theta, dim))
	}
	return r, err
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
	case "dynamic":
		if p.opened > p.longest && p.longest > 0 {
			return nil, fmt.Errorf("rope_type dynamic: a text of %d tokens turns all its positions by its length, "+
				"which is not supported beyond max_position_embeddings, %d: open the model for at most so many",
				p.opened, p.longest)
		}
		return f, p.positive("factor", p.Factor)
	case "proportional":
		factor := cmp.Or(p.Factor, 1)
		if err := p.positive("factor", factor); err != nil {
			return nil, err
		}
		return f.Partial(cmp.Or(p.Part, 1)).Linear(factor), nil
	case "llama3":
		return p.bands(f)
	case "factors":
		return p.divide(f)
	}
	return nil, fmt.Errorf("rope_type %q is not supported; supported are default, linear, dynamic, llama3, yarn, "+
		"longrope and proportional", p.Type)
}

func (p *Params) bands(f Freqs) (Freqs, error) {
	err := cmp.Or(
		p.positive("factor", p.Factor),
		p.positive("low_freq_factor", p.Low),
		p.positive("high_freq_factor", p.High),
		p.positive("original_max_position_embeddings", p.Context))
	if err != nil {
		return nil, err
	}
	if p.Low > p.High { // equal factors leave no band between the two: Llama 4 Scout has them
		return nil, fmt.Errorf("rope_type llama3: low_freq_factor %v is above high_freq_factor %v", p.Low, p.High)
	}
	return f.Bands(p.Factor, p.Low, p.High, p.Context), nil
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
