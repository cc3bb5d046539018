package gguf

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/rope"
)

// writeRope writes the bases and a linear scaling, and returns the divisors of other scalings.
func (w *writer) writeRope() (tensors []Factors) {
	var p, s rope.Params
	params := w.RopeParameters()
	for kind, to := range map[string]*rope.Params{family.FullAttention: &p, family.SlidingAttention: &s} {
		if v, ok := family.Object(params[kind]); ok {
			if err := w.Decode(reflect.ValueOf(to).Elem(), v, "rope_parameters."+kind); err != nil {
				w.errs = append(w.errs, err)
			}
		}
	}
	if p.Type == "" {
		p.Type = p.OldType
	}
	switch {
	case p.Type == "linear":
		w.put("rope.scaling.type", "linear")
		w.put("rope.scaling.factor", float32(p.Factor))
	case p.Type == "yarn" && w.Family.Rope.Yarn:
		w.writeYarn(p)
		p.Type = "default" // divisors without scaling
	case p.Type == "longrope" && w.Family.Rope.Long:
		tensors = w.writeLongrope(p)
		p.Type = "default"
	}
	if !w.Family.Rope.Silent || p.Theta != 1e4 {
		w.put("rope.freq_base", float32(p.Theta))
	}
	if s.Type == "" {
		s.Type = s.OldType
	}
	if w.Family.Rope.Sliding != nil && (!w.Family.Rope.Yarn || slices.Contains(w.slides(), true)) {
		w.put("rope.freq_base_swa", float32(s.Theta))
		if s.Type != "" && s.Type != "default" || s.Part != 0 && s.Part != 1 {
			w.errorf("rope_parameters."+family.SlidingAttention,
				"scales the rotation: GGUF has keys for that of full layers only")
		}
	}
	if w.Family.Partial() {
		p.Part = 0
	}
	factors, err := p.GGUF(w.fullDim())
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if factors != nil {
		tensors = append(tensors, Factors{"rope_freqs", factors})
	}
	return tensors
}

// writeLongrope writes the magnitude, 1 included, and returns both lists of divisors.
func (w *writer) writeLongrope(p rope.Params) []Factors {
	if n := w.Values.Int("original_max_position_embeddings"); n > 0 {
		p.Context = float64(n)
	}
	r, err := rope.Resolve(w.fullDim(), rope.Context{Longest: w.Values.Int("max_position_embeddings")}, p)
	if err != nil {
		w.errs = append(w.errs, err)
		return nil
	}
	w.put("rope.scaling.attn_factor", float32(cmp.Or(r.Magnitude, 1)))
	return []Factors{{longFactors[0].tensor, p.Long}, {longFactors[1].tensor, p.Short}}
}

// writeYarn writes the numbers of a yarn. Settings without a key must be as readers assume.
func (w *writer) writeYarn(p rope.Params) {
	params, _ := family.Object(w.RopeParameters()[family.FullAttention])
	if truncate := p.Truncate == nil || *p.Truncate; truncate != (w.Family.Rope.Fixed["truncate"] != false) {
		w.errorf("rope_parameters."+family.FullAttention, "has truncate %v: GGUF has no key for it in architecture %s",
			truncate, w.Arch)
	}
	switch own := w.Family.KeyOf(family.Multiplier).GGUF; {
	case w.Family.Latent() && p.Mscale == p.MscaleAllDim:
		if p.MscaleAllDim != 0 {
			w.put(yarnMultiplier, float32(0.1*p.MscaleAllDim))
		}
	case !w.Family.Latent() && (p.Mscale == 0 || p.MscaleAllDim == 0): // the library reads neither
	case own != "" && p.Mscale == 1:
		w.put(own, float32(p.MscaleAllDim))
	default:
		w.errorf("rope_parameters."+family.FullAttention,
			"has mscale %v and mscale_all_dim %v: GGUF has no keys for them in architecture %s", p.Mscale,
			p.MscaleAllDim, w.Arch)
	}
	w.put("rope.scaling.type", "yarn")
	for _, k := range yarnKeys {
		v, ok := params[k.setting].(float64)
		switch {
		case ok && k.whole:
			w.put(k.gguf, uint32(v))
		case ok:
			w.put(k.gguf, float32(v))
		}
	}
}
