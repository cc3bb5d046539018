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
	if f["factor"] == nil {
		if n, ok := r.number("rope.scale_linear"); ok && n != 0 { // key of early files
			f["factor"] = n
		}
	}
	if f["rope_theta"] == nil && !r.Family.Rope.Silent {
		r.Notes = append(r.Notes, "the file has no key "+r.Arch+".rope.freq_base: assuming 10000")
		r.Assumed = append(r.Assumed, settings.Entry{Key: r.Arch + ".rope.freq_base", Value: "10000"})
	}
	if s["rope_theta"] == nil && r.Family.Rope.Sliding != nil {
		r.Assumed = append(r.Assumed, settings.Entry{Key: r.Arch + ".rope.freq_base_swa", Value: "10000"})
	}
	f.Fill("rope_theta", 1e4)
	if r.Family.Rope.OneBase {
		s.Fill("rope_theta", f["rope_theta"])
	}
	s.Fill("rope_theta", 1e4)
	r.readScaling(f)
	if r.Family.Rope.Sliding != nil {
		s.Fill("partial_rotary_factor", f["partial_rotary_factor"])
	}
	r.readLongrope(f)
	if n, ok := r.number("rope.scaling.attn_factor"); ok && n != 1 && f["rope_type"] != "longrope" {
		r.errorf("rope.scaling.attn_factor", "is %v, supported is 1 without divisors of the type longrope", n)
	}
	if t, ok := r.set.ByName["rope_freqs"]; ok {
		r.set.Drop("rope_freqs")
		if f["rope_type"] != nil {
			r.errorf("rope.scaling.type", "is %v, but the file also has a tensor rope_freqs", f["rope_type"])
		} else if err := factors(f, t, pairs(r.fullDim, f)); err != nil {
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
	switch typ := r.str("rope.scaling.type"); {
	case typ == "" && r.value("rope.scaling.type") == "":
		r.errorf("rope.scaling.type", `is "", supported are none, linear, yarn and longrope`)
	case typ == "yarn":
		f["rope_type"] = typ
		for _, k := range yarnKeys {
			if n, ok := r.number(k.gguf); ok && (n != 0 || k.setting != "factor") {
				f[k.setting] = n
				r.Spelling["rope_parameters."+family.FullAttention+"."+k.setting] = r.Arch + "." + k.gguf
			}
		}
		if n, ok := r.number("rope.scaling.yarn_ext_factor"); ok && n >= 0 && n != 1 { // below 0 is unset
			r.errorf("rope.scaling.yarn_ext_factor", "is %v, supported is 1", n)
		}
		f.Fill("factor", 1.)
		f.Fill("original_max_position_embeddings", r.Values["max_position_embeddings"])
		maps.Copy(f, r.Family.Rope.Fixed)
		if r.Family.Latent() {
			if n, ok := r.number(yarnMultiplier); ok {
				f["mscale"] = shortest(float32(10 * n)) // GGUF has a tenth of the multiplier, and no key for a second
				f["mscale_all_dim"] = f["mscale"]
			}
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
		if r.Family.Rope.Full["rope_type"] != nil {
			f["rope_type"] = "default"
		}
	case typ == "", typ == "linear": // a factor without a type is linear, as in llama.cpp
		if n, ok := f["factor"].(float64); typ != "" || ok && n != 0 && n != 1 {
			f["rope_type"] = "linear"
		} else {
			delete(f, "factor")
		}
	case typ == "longrope": // the tensors say so
	default:
		r.errorf("rope.scaling.type", "is %s, supported are none, linear, yarn and longrope", family.Show(typ))
	}
}

// readLongrope reads the magnitude, and the divisors for contexts up to the original and beyond.
func (r *reader) readLongrope(f family.Settings) {
	found := 0
	for _, k := range longFactors {
		t, ok := r.set.ByName[k.tensor]
		if !ok {
			continue
		}
		found++
		r.set.Drop(k.tensor)
		list, err := divisors(t, pairs(r.fullDim, f))
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
			r.errorf("rope.scaling.type", "is %v, but the file also has tensors %s and %s", f["rope_type"],
				longFactors[0].tensor, longFactors[1].tensor)
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

// pairs returns how many pairs turn of a head of dim features in full layers.
func pairs(dim float64, f family.Settings) int {
	part, _ := f["partial_rotary_factor"].(float64)
	return int(dim*cmp.Or(part, 1)) / 2
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
	var kinds rope.Kinds
	if err := w.Decode(reflect.ValueOf(&kinds).Elem(), w.RopeParameters(), "rope_parameters"); err != nil {
		w.errs = append(w.errs, err)
	}
	kinds.Open(w.ContextLength(), 0)
	p, s := kinds.Full, kinds.Sliding
	r, err := rope.Resolve(w.fullDim(), p)
	if err != nil {
		w.errs = append(w.errs, err)
		return nil
	}
	switch {
	case w.Family.Rope.Full["rope_type"] != nil && (p.Type == "default" || p.Type == "dynamic"): // not as usual
		w.put("rope.scaling.type", "none")
	case p.Type == "linear":
		w.put("rope.scaling.type", "linear")
		w.put("rope.scaling.factor", float32(p.Factor))
	case p.Type == "yarn":
		w.writeYarn(p, r)
		p.Type = "default" // divisors without scaling
	case p.Type == "longrope":
		tensors = w.writeLongrope(p, r)
		p.Type = "default"
	}
	if !w.Family.Rope.Silent || p.Theta != 1e4 {
		w.put("rope.freq_base", float32(p.Theta))
	}
	if w.Family.Rope.Sliding != nil && (!w.Family.Rope.OneBase || slices.Contains(w.slides(), true)) {
		w.put("rope.freq_base_swa", float32(s.Theta))
		if s.Type != "" && s.Type != "default" || s.Part != 0 && s.Part != 1 &&
			!(w.Family.Partial() && s.Part == p.Part) {
			w.errorf("rope_parameters."+family.SlidingAttention,
				"scales the rotation: GGUF has keys for that of full layers only")
		}
	}
	dim := w.fullDim()
	if w.Family.Partial() {
		dim, p.Part = cmp.Or(r.Dim, dim), 0
	}
	factors, err := p.GGUF(dim)
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if factors != nil {
		tensors = append(tensors, Factors{"rope_freqs", factors})
	}
	return tensors
}

// writeLongrope writes the magnitude, 1 included, and returns both lists of divisors. Families with a key of their own
// for the original context are longrope by their tensors; readers of others go by the type.
func (w *writer) writeLongrope(p rope.Params, r rope.Rotation) []Factors {
	const original = "rope.scaling.original_context_length"
	own := slices.ContainsFunc(w.Family.Keys, func(k family.Key) bool { return k.GGUF == original })
	if !own {
		w.put("rope.scaling.type", "longrope")
	}
	if p.Context > 0 && (!own || w.Values["original_max_position_embeddings"] == nil) {
		w.put(original, uint32(p.Context))
	}
	w.put("rope.scaling.attn_factor", float32(cmp.Or(r.Magnitude, 1)))
	return []Factors{{longFactors[0].tensor, p.Long}, {longFactors[1].tensor, p.Short}}
}

// writeYarn writes the numbers of a yarn. Settings without a key must be as readers assume; two multipliers are written
// as the magnitude that follows from them, and a factor that follows from the contexts as a number.
func (w *writer) writeYarn(p rope.Params, r rope.Rotation) {
	params, _ := family.Object(w.RopeParameters()[family.FullAttention])
	params = maps.Clone(params)
	if p.Factor == 0 && p.Context > 0 {
		params["factor"] = float64(w.ContextLength()) / p.Context
	}
	if truncate := p.Truncate == nil || *p.Truncate; truncate != (w.Family.Rope.Fixed["truncate"] != false) {
		w.errorf("rope_parameters."+family.FullAttention, "has truncate %v: GGUF has no key for it in architecture %s",
			truncate, w.Arch)
	}
	switch own := w.Family.KeyOf(family.Multiplier).GGUF; {
	case w.Family.Latent() && (p.Mscale == p.MscaleAllDim || p.MscaleAllDim == 0): // one alone is not read
		if p.MscaleAllDim != 0 {
			w.put(yarnMultiplier, float32(0.1*p.MscaleAllDim))
		}
	case !w.Family.Latent() && (p.Mscale == 0 || p.MscaleAllDim == 0): // the library reads neither
	case own != "" && p.Mscale == 1:
		w.put(own, float32(p.MscaleAllDim))
	case !w.Family.Latent():
		params["attention_factor"] = cmp.Or(r.Magnitude, 1)
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
