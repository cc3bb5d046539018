package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
)

// readRope reads the rotary keys, and the tensor with a scaling by frequency or with the share of turning pairs.
func (r *reader) readRope() {
	if r.Family.Lacks("rope_parameters") {
		return
	}
	if own := r.Family.Rope.Switch; own != "" && r.value(own) == false {
		r.errorf(own, "is false: a model of architecture %s without rotary positions is not supported", r.Arch)
	}
	f, s := family.Settings{}, family.Settings{}
	for _, k := range []struct {
		to       family.Settings
		key, own string
	}{
		{f, "rope_theta", "rope.freq_base"},
		{f, "factor", "rope.scaling.factor"},
		{f, "original_max_position_embeddings", "rope.scaling.original_context_length"},
		{s, "rope_theta", "rope.freq_base_swa"},
	} {
		if n, ok := r.number(k.own); ok && (n != 0 || k.key != "factor") { // readers take 0 for none
			k.to[k.key] = n
		}
	}
	if n, ok := r.number("rope.scale_linear"); ok && n != 0 && f["factor"] == nil { // key of early files
		f["factor"] = n
	}
	if f["rope_theta"] == nil && !r.Family.Rope.Silent {
		r.Notes = append(r.Notes, "the file has no key "+r.Arch+".rope.freq_base: assuming 10000")
		r.Assumed = append(r.Assumed, settings.Entry{Key: r.Arch + ".rope.freq_base", Value: "10000"})
	}
	if s["rope_theta"] == nil && r.Family.Rope.Sliding != nil {
		r.Assumed = append(r.Assumed, settings.Entry{Key: r.Arch + ".rope.freq_base_swa", Value: "10000"})
	}
	f.Fill("rope_theta", 1e4)
	if r.Family.Rope.Yarn {
		s.Fill("rope_theta", f["rope_theta"])
	}
	s.Fill("rope_theta", 1e4)
	r.readScaling(f)
	if r.Family.Rope.Sliding != nil {
		s.Fill("partial_rotary_factor", f["partial_rotary_factor"])
	}
	if r.Family.Rope.Long {
		r.readLongrope(f)
	}
	if t, ok := r.set.ByName["rope_freqs"]; ok {
		r.set.Drop("rope_freqs")
		if f["rope_type"] != nil {
			r.errorf("rope.scaling.type", "is linear, but the file also has a tensor rope_freqs")
		} else if err := factors(f, t, int(r.fullDim)/2); err != nil {
			r.errs = append(r.errs, err)
		}
	}
	if types, _ := r.Values["layer_types"].([]any); r.Family.Rope.Full["rope_type"] != nil && f["rope_type"] == nil &&
		slices.Contains(types, any(family.FullAttention)) {
		r.errs = append(r.errs, badFactors("missing: it says which pairs of a head turn in full layers"))
	}
	r.Values["rope_parameters"] = family.Settings{family.FullAttention: f, family.SlidingAttention: s}
}

// readScaling reads the turning part of a head, and how full layers stretch the context.
func (r *reader) readScaling(f family.Settings) {
	if r.Family.Partial() {
		if n, ok := r.number("rope.dimension_count"); ok && n != r.fullDim {
			f["partial_rotary_factor"] = n / r.fullDim
		}
	}
	typ, kinds := r.str("rope.scaling.type"), "none and linear"
	if r.Family.Rope.Yarn {
		kinds = "none, linear and yarn"
	}
	switch {
	case typ == "" && r.value("rope.scaling.type") == "":
		r.errorf("rope.scaling.type", "is \"\", supported are %s", kinds)
	case typ == "yarn" && r.Family.Rope.Yarn:
		f["rope_type"] = typ
		for _, k := range yarnKeys {
			if n, ok := r.number(k.gguf); ok && (n != 0 || k.setting != "factor") {
				f[k.setting] = n
			}
		}
		f.Fill("factor", 1.)
		f.Fill("original_max_position_embeddings", r.Values["max_position_embeddings"])
		maps.Copy(f, r.Family.Rope.Fixed)
		if n, ok := r.number(yarnMultiplier); ok && r.Family.Latent() {
			f["mscale"] = shortest(float32(10 * n)) // GGUF has a tenth of the multiplier, and no key for a second
			f["mscale_all_dim"] = f["mscale"]
		}
		if own := r.Family.KeyOf(family.Multiplier).GGUF; own != "" {
			if n, ok := r.number(own); ok && n != 0 {
				f["mscale"], f["mscale_all_dim"] = 1., n
			}
		}
	case typ == "none":
		if n, ok := f["factor"].(float64); ok && n != 1 {
			r.Ignored = append(r.Ignored,
				fmt.Sprintf("metadata key %s.rope.scaling.factor = %v is not read: the scaling's type is none", r.Arch,
					n))
		}
		delete(f, "factor")
	case typ == "", typ == "linear": // a factor without a type is linear, as in llama.cpp
		if n, ok := f["factor"].(float64); typ != "" || ok && n != 0 && n != 1 {
			f["rope_type"] = "linear"
		} else {
			delete(f, "factor")
		}
	case typ == "longrope" && r.Family.Rope.Long: // the tensors say so
	default:
		r.errorf("rope.scaling.type", "is %s, supported are %s", family.Show(typ), kinds)
	}
}

// readLongrope reads the magnitude, and the divisors for contexts up to the original and beyond.
func (r *reader) readLongrope(f family.Settings) {
	part, _ := f["partial_rotary_factor"].(float64)
	pairs := int(r.fullDim*cmp.Or(part, 1)) / 2
	found := 0
	for _, k := range longFactors {
		t, ok := r.set.ByName[k.tensor]
		if !ok {
			continue
		}
		found++
		r.set.Drop(k.tensor)
		list, err := divisors(t, pairs)
		if err != nil {
			r.errs = append(r.errs, settings.NewError("rope_parameters."+family.FullAttention+"."+k.setting,
				fmt.Sprintf("tensor %s: %v", k.tensor, err)))
			return
		}
		f[k.setting] = list
	}
	switch typ := r.str("rope.scaling.type"); {
	case found == len(longFactors):
		if f["rope_type"] != nil {
			r.errorf("rope.scaling.type", "is linear, but the file also has tensors %s and %s", longFactors[0].tensor,
				longFactors[1].tensor)
		}
		f["rope_type"] = "longrope"
		if n, ok := r.number("rope.scaling.attn_factor"); ok {
			f["attention_factor"] = n
		}
	case found > 0:
		r.errs = append(r.errs,
			fmt.Errorf("one of the tensors %s and %s is missing", longFactors[0].tensor, longFactors[1].tensor))
	case typ == "longrope":
		r.errorf("rope.scaling.type", "is %s, but the tensors %s and %s are missing", family.Show(typ),
			longFactors[0].tensor, longFactors[1].tensor)
	}
}

// badFactors returns an error about the tensor of factors.
func badFactors(format string, args ...any) error {
	return settings.NewError("rope_freqs", fmt.Errorf("tensor rope_freqs: "+format, args...).Error())
}

// factors turns the rope_freqs tensor into settings: divisors of the frequencies, or the share of leading pairs that
// turn (1, then 1e30).
func factors(p family.Settings, t tensor.Tensor, pairs int) error {
	f, err := divisors(t, pairs)
	if err != nil {
		return badFactors("%w", err)
	}
	turning, still := 0, 0
	for _, x := range f {
		switch v := x.(float64); {
		case v == 1 && still == 0:
			turning++
		case v >= 1e29:
			still++
		}
	}
	if turning+still == len(f) && turning > 0 && still > 0 {
		p["rope_type"], p["partial_rotary_factor"] = "proportional", float64(turning)/float64(len(f))
		return nil
	}
	p["rope_type"], p["factors"] = "factors", f
	return nil
}

// divisors returns the tensor's divisors for the frequencies of so many pairs.
func divisors(t tensor.Tensor, pairs int) ([]any, error) {
	if t.DType != tensor.F32 || !slices.Equal(t.Shape, tensor.Shape{pairs}) {
		return nil, fmt.Errorf("%v %v, expected F32 [%d], a value for each pair of a head", t.DType, []int(t.Shape),
			pairs)
	}
	f := make([]any, pairs)
	for i := range f {
		v := shortest(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		if !(v >= 1./64 && v <= 2e30) {
			return nil, fmt.Errorf("element %d is %v, expected 1/64 to 1e30", i, v)
		}
		f[i] = v
	}
	return f, nil
}

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
		if s.Type != "" && s.Type != "default" || s.Part != 0 && s.Part != 1 &&
			!(w.Family.Partial() && s.Part == p.Part) {
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
