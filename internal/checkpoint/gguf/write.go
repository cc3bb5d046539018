package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	file "github.com/karat-run/karat/internal/gguf"
)

// Write translates the configuration of a Hugging Face folder into the keys of llama.cpp's converter
// (set_gguf_parameters in its conversion folder), and rotary settings into tensors of divisors. Keys of windows, and
// keys marked by the family, are written although the converter lacks them. Settings without a key are errors, except
// settings in aside.
func Write(c *settings.Model, aside []string) (keys []file.KeyValue, factors []Factors, err error) {
	own := *c
	if c = &own; c.Family.ToGGUF != nil {
		c.Values = maps.Clone(c.Values)
		c.Family.ToGGUF(c.Values)
	}
	w := &writer{Model: c}
	w.refuse(aside)
	w.put("block_count", uint32(w.Values.Int("num_hidden_layers")+w.Values.Int(w.Family.NextKey())))
	w.count("max_position_embeddings")
	w.count("hidden_size")
	if !c.Family.Lacks("intermediate_size") || !c.Family.Uses("num_experts") { // else all layers have experts
		w.writePerLayer("intermediate_size", "feed_forward_length")
	}
	w.count("num_attention_heads")
	switch {
	case c.Family.Latent():
		w.writePerLayer("", "attention.head_count_kv")
		w.writeLatentHeads()
	case !c.Family.Lacks("num_key_value_heads"):
		w.writePerLayer("num_key_value_heads", "attention.head_count_kv")
	}
	if !c.Family.Lacks("rope_parameters") {
		factors = w.writeRope()
	}
	w.float("rms_norm_eps")
	w.float("layer_norm_eps")
	if c.Family.Mixes(c.Values) {
		w.count("num_experts")
		w.count("top_k_experts")
	}
	dim := uint32(w.fullDim())
	separate := !c.DerivedDim && !c.Family.Latent() && !c.Family.Lacks("num_key_value_heads")
	if separate && dim > 0 { // else heads share the width evenly
		w.put("attention.key_length", dim)
		w.put("attention.value_length", cmp.Or(uint32(w.Values.Int("v_head_dim")), dim))
	}
	window := c.Values.Int("sliding_window") > 0 && slices.Contains(w.slides(), true)
	if !c.Family.Uses("sliding_window") && (window || c.Family.Absent["sliding_window"] != nil) {
		w.count("sliding_window")
	}
	for _, k := range c.Family.Keys {
		w.writeFamilyKey(k, dim)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Family.Numbers)) {
		var list []float32
		for _, x := range c.Values.List(key) {
			v, _ := x.(float64)
			list = append(list, float32(v))
		}
		w.out = append(w.out, file.KeyValue{Key: key, Value: list})
	}
	return w.out, factors, errors.Join(w.errs...)
}

// read lists the canonical settings that have no key of their own: the presence of tensors, or other keys, express
// them.
var read = settings.Words(`tie_word_embeddings attention_bias mlp_bias per_layer_config rope_parameters
	hidden_act hidden_activation`)

// latentSizes lists the sizes of heads of models that store latents, or values smaller than keys.
var latentSizes = settings.Words(`qk_nope_head_dim qk_rope_head_dim v_head_dim`)

// isWritten reports whether a setting is taken to GGUF.
func (w *writer) isWritten(key string) bool {
	f := w.Family
	return keys[key] != "" || moreKeys[key] != "" || f.Uses(key) || read[key] || f.Fixed[key] != nil ||
		f.Held[key] != "" || f.Numbers[key].End != "" || f.Model.Reads(key) && latentSizes[key]
}

// refuse reports the settings without a key.
func (w *writer) refuse(aside []string) {
	s := w.Values
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !w.isWritten(key) && !w.Idle(key) && !settings.Neutral(s[key]) && !slices.Contains(aside, w.Key(key)) {
			w.errorf(key, "is %s: no rule of architecture %s takes it to GGUF", family.Show(s[key]), w.Arch)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.Family.Fixed)) {
		if !w.AsFixed(key) {
			w.errorf(key, "is %s: GGUF has no key for it, and %s models have %s", family.Show(s[key]), w.Arch,
				family.Show(w.Family.Fixed[key]))
		}
	}
	if i := slices.Index(w.slides(), true); i >= 0 && w.Family.Windows() == family.FromLayer {
		w.errorf("layer_types", "lets layer %d slide: GGUF has no key that says which layers of %s slide", i, w.Arch)
	}
}

// writeFamilyKey writes a key of this family; dim is the head size of full layers.
func (w *writer) writeFamilyKey(k family.Key, dim uint32) {
	if slices.ContainsFunc(w.out, func(kv file.KeyValue) bool { return kv.Key == w.Arch+"."+ownKey(k) }) {
		return // a scaling of the rotation has said more
	}
	v, there := w.Values[k.Setting].(float64)
	switch k.Kind {
	case family.Count, family.Rank:
		if there && !w.isAssumed(k) {
			w.put(ownKey(k), uint32(w.Values.Int(k.Setting)))
		}
	case family.Truth:
		if b := w.Values[k.Setting] == true; k.Unusual && !w.isAssumed(k) || b && !k.Unusual {
			w.put(ownKey(k), b)
		}
	case family.Choice:
		w.writeChoice(k)
	case family.Number:
		if k.Scale != nil {
			if k.Unusual && v == k.Scale.Absent(w.Values) {
				return
			}
			v = 1 / math.Sqrt(v)
		}
		if (v != 0 || w.Family.Absent[k.Setting] != nil) && !w.isAssumed(k) {
			w.put(ownKey(k), float32(v))
		}
	case family.FullDim:
		w.put(k.GGUF, dim)
	case family.SlidingDim:
		w.put(k.GGUF, uint32(w.Values.Int("head_dim")))
	case family.Turning:
		p, _ := family.Object(w.RopeParameters()[family.FullAttention])
		part, _ := p["partial_rotary_factor"].(float64)
		w.put(k.GGUF, uint32(float64(dim)*cmp.Or(part, 1)))
	case family.Never:
		w.put(k.GGUF, false)
	case family.Word:
		w.put(k.GGUF, k.Text)
	case family.Product:
		w.put(k.GGUF, uint32(w.Values.Int(k.Setting)*w.Values.Int(k.Of)))
	case family.Switch:
		w.put(k.GGUF, w.Values[k.Setting] == k.Text)
	case family.Flags:
		if !k.Unusual || slices.Contains(w.slides(), true) {
			w.put(k.GGUF, w.slides())
		}
	case family.Period:
		w.writePeriod(k)
	case family.Interval:
		w.writeInterval(k)
	case family.NextLayers:
		if v > 0 {
			w.put(k.GGUF, uint32(v))
		}
	case family.EachLayer:
		var n []float32
		var flags []bool
		for _, v := range w.Values.List(k.Setting) {
			x, _ := v.(float64)
			n, flags = append(n, float32(x)), append(flags, v == k.Named(true))
		}
		if k.Words == nil {
			w.put(k.GGUF, n)
		} else if flags != nil {
			w.put(k.GGUF, flags)
		}
	case family.Sections:
		list, _ := w.Values[k.Setting].([]any)
		if list == nil {
			return
		}
		n := make([]int32, 4)
		for i := range min(3, len(list)) {
			v, _ := list[i].(float64)
			n[i] = int32(v)
		}
		w.put(k.GGUF, n)
	}
}

// isAssumed reports whether an Unusual key can be left out: readers find the same setting without the key.
func (w *writer) isAssumed(k family.Key) bool {
	if !k.Unusual || k.Scale != nil {
		return false
	}
	s := maps.Clone(w.Values)
	delete(s, k.Setting)
	s.Fill(k.Setting, w.Family.Absent[k.Setting])
	if w.Family.FromGGUF != nil {
		w.Family.FromGGUF(s, &family.File{})
	}
	return s[k.Setting] == w.Values[k.Setting]
}

// writeChoice writes a setting from a list of words. Readers assume the first word.
func (w *writer) writeChoice(k family.Key) {
	word, _ := w.Values[k.Setting].(string)
	switch i := slices.Index(k.Words, word); {
	case i < 1:
		w.errorf(k.Setting, "is %s: GGUF knows %q", family.Show(w.Values[k.Setting]), k.Words)
	case i > 1 || !k.Unusual:
		w.put(ownKey(k), uint32(i))
	}
}

// writer translates settings into metadata.
type writer struct {
	*settings.Model
	out  []file.KeyValue
	errs []error
}

// Factors is a tensor of divisors of rotary frequencies, in GGUF alone.
type Factors struct {
	Name   string
	Values []float32
}

func (w *writer) put(key string, v any) {
	w.out = append(w.out, file.KeyValue{Key: w.Arch + "." + key, Value: v})
}

func (w *writer) count(key string) { w.put(keys[key], uint32(w.Values.Int(key))) }

func (w *writer) float(key string) {
	if v, ok := w.Values[key].(float64); ok && v != 0 {
		w.put(keys[key], float32(v))
	}
}

func (w *writer) errorf(key, format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("configuration key %s %s", w.Key(key), fmt.Sprintf(format, args...)))
}

// slides reports which layers have a window.
func (w *writer) slides() []bool {
	types, _ := w.Values["layer_types"].([]any)
	out := make([]bool, len(types))
	for i, t := range types {
		out[i] = t == family.SlidingAttention
	}
	return out
}

// kind returns the kind of layer i.
func (w *writer) kind(i int) string {
	types, _ := w.Values["layer_types"].([]any)
	kind, _ := types[i].(string)
	return kind
}

// layer returns a setting of layer i.
func (w *writer) layer(i int, key string) int {
	per, _ := family.Object(w.Values["per_layer_config"])
	own, _ := family.Object(per[strconv.Itoa(i)])
	if n := family.Settings(own).Int(key); n > 0 {
		return n
	}
	return w.Values.Int(key)
}
