// Package gguf translates the metadata of GGUF files into settings, and back.
//
// Files in reading order: tokenizer.go, read.go, layers.go, rope.go, reader.go, write.go, keys.go.
package gguf

import (
	"fmt"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
)

// keys maps canonical settings that families share to GGUF's keys without the architecture's prefix. The settings of
// moreKeys need more than copying.
var keys = map[string]string{
	"vocab_size":                  "vocab_size",
	"num_hidden_layers":           "block_count",
	"max_position_embeddings":     "context_length",
	"hidden_size":                 "embedding_length",
	"num_attention_heads":         "attention.head_count",
	"rms_norm_eps":                "attention.layer_norm_rms_epsilon",
	"layer_norm_eps":              "attention.layer_norm_epsilon",
	"sliding_window":              "attention.sliding_window",
	"num_kv_shared_layers":        "attention.shared_kv_layers",
	"hidden_size_per_layer_input": "embedding_length_per_layer_input",
	"final_logit_softcapping":     "final_logit_softcapping",
	"num_experts":                 "expert_count",
	"top_k_experts":               "expert_used_count",
	"moe_intermediate_size":       "expert_feed_forward_length",
}

var moreKeys = map[string]string{
	"intermediate_size":   "feed_forward_length",
	"num_key_value_heads": "attention.head_count_kv",
	"head_dim":            "attention.key_length",
	"layer_types":         "attention.sliding_window_pattern",

	"rope_parameters.full_attention.rope_theta":                       "rope.freq_base",
	"rope_parameters.full_attention.rope_type":                        "rope.scaling.type",
	"rope_parameters.full_attention.factor":                           "rope.scaling.factor",
	"rope_parameters.full_attention.original_max_position_embeddings": "rope.scaling.original_context_length",
	"rope_parameters.sliding_attention.rope_theta":                    "rope.freq_base_swa",
}

// yarnKeys are the numbers of a yarn.
var yarnKeys = []struct {
	setting, gguf string
	whole         bool
}{
	{"factor", "rope.scaling.factor", false},
	{"original_max_position_embeddings", "rope.scaling.original_context_length", true},
	{"attention_factor", "rope.scaling.yarn_attn_factor", false},
	{"beta_fast", "rope.scaling.yarn_beta_fast", false},
	{"beta_slow", "rope.scaling.yarn_beta_slow", false},
}

// yarnMultiplier is a tenth of both multipliers of a yarn, where latents are stored.
const yarnMultiplier = "rope.scaling.yarn_log_multiplier"

// ownKey returns the name in GGUF of a key of a family.
func ownKey(k family.Key) string {
	if k.GGUF == "" {
		return keys[k.Setting]
	}
	return k.GGUF
}

// canonicalKey returns the canonical name of GGUF's key, or the key.
func canonicalKey(f *family.Family, own string) string {
	for _, k := range f.Keys {
		if k.GGUF == own && k.Setting != "" {
			return k.Setting
		}
	}
	for _, list := range []map[string]string{keys, moreKeys} {
		for key, name := range list {
			if name == own {
				return key
			}
		}
	}
	return own
}

// longFactors lists the tensors of longrope's divisors, in the converter's order, with their settings.
var longFactors = []struct{ tensor, setting string }{
	{"rope_factors_long", "long_factor"}, {"rope_factors_short", "short_factor"},
}

// recurrent is the key with a flag for each layer, for files whose full layers are at no interval.
const recurrent = "attention.recurrent_layers"

// readFamilyKeys reads the keys of this family alone.
func (r *reader) readFamilyKeys() {
	products := map[string]float64{} // products by setting
	for _, k := range r.Family.Keys {
		if k.Kind == family.Never {
			if v := r.value(k.GGUF); v != nil && v != false {
				r.errorf(k.GGUF, "is %s, and false in models of architecture %s", family.Show(v), r.Arch)
			}
		}
		if k.Kind == family.Word && !strings.HasPrefix(k.GGUF, "rope.") { // others are read by rope
			if v := r.value(k.GGUF); v != nil && v != k.Text {
				r.errorf(k.GGUF, "is %s, and %q in models of architecture %s", family.Show(v), k.Text, r.Arch)
			}
		}
		if k.Kind == family.Experts {
			r.Values[k.Setting] = r.Values.Int("num_experts") > 0
		}
		if k.Setting == "" || keys[k.Setting] != "" || k.Kind == family.Experts || k.Kind == family.NextLayers {
			continue
		}
		if k.Kind == family.Truth {
			r.readTruth(k)
			continue
		}
		if k.Kind == family.Sections {
			r.readSections(k)
			continue
		}
		if k.Kind == family.EachLayer {
			readEach(r, k)
			continue
		}
		if k.Kind == family.Switch {
			r.readSwitch(k)
			continue
		}
		n, ok := r.number(ownKey(k))
		switch {
		case k.Scale != nil:
			r.readScale(k, n, ok)
		case ok && k.Kind == family.Choice:
			r.readChoice(k, n)
		case ok && k.Kind == family.Product:
			products[k.Setting] = n // the divisor's key may come later
		case ok && (n != 0 || !k.Nil):
			r.Values[k.Setting] = n
		}
	}
	for _, k := range r.Family.Keys {
		if n, ok := products[k.Setting]; ok && k.Kind == family.Product {
			r.readProduct(k, n)
		}
	}
	for key := range r.Family.Numbers {
		readPerLayer(r, key)
	}
	if r.Family.FromGGUF != nil {
		r.Family.FromGGUF(r.Values, &family.File{Tensors: func(name string) (any, bool) {
			_, ok := r.set.ByName[name]
			return settings.Rows(r.set, name), ok
		}})
	}
}

// readPerLayer reads a number of each layer, or one of all.
func readPerLayer(r *reader, key string) {
	v, ok := r.metadata.Lookup(key)
	x, err := v.Any()
	list, numeric := numbers(x)
	layers := r.Values.Int("num_hidden_layers")
	if !ok || err != nil || !numeric || len(list) != 1 && len(list) != layers || layers > family.MaxLayers {
		r.errs = append(r.errs, fmt.Errorf("key %s: expected a number of each of the %d layers", key, layers))
		return
	}
	var all []any
	for i := range layers {
		all = append(all, list[min(i, len(list)-1)])
	}
	r.Values[key] = all
}

// readEach reads a number for each layer.
func readEach(r *reader, k family.Key) {
	v := r.value(k.GGUF)
	var list []any
	switch n := v.(type) {
	case []float32: // also infinite ones
		for _, x := range n {
			list = append(list, float64(x))
		}
	case []bool:
		for _, is := range n {
			list = append(list, k.Named(is))
		}
	}
	layers := r.Values.Int("num_hidden_layers")
	if _, flags := v.([]bool); v != nil && (len(list) != layers || flags != (k.Words != nil)) {
		r.errorf(k.GGUF, "is %s, expected a number for each of %d layers", family.Show(v), layers)
		return
	}
	if list != nil {
		r.Values[k.Setting] = list
	}
}

// readSections reads three numbers, and a fourth, 0.
func (r *reader) readSections(k family.Key) {
	n := r.numbers(k.GGUF)
	if len(n) == 0 {
		return
	}
	if len(n) != 4 || n[3] != 0 {
		r.errorf(k.GGUF, "is %s, expected three numbers and a 0", family.Show(n))
		return
	}
	r.Values[k.Setting] = []any{n[0], n[1], n[2]}
}

// readTruth reads a setting that is true or false, false by default.
func (r *reader) readTruth(k family.Key) {
	v := r.value(ownKey(k))
	b, ok := v.(bool)
	if v != nil && !ok {
		r.errorf(ownKey(k), "is %s, expected true or false", family.Show(v))
	}
	if v != nil || !k.Unusual {
		r.Values[k.Setting] = b
	}
}

// readChoice reads a setting from a list of words.
func (r *reader) readChoice(k family.Key, n float64) {
	for i, word := range k.Words {
		if float64(i) == n && word != "" {
			r.Values[k.Setting] = word
			return
		}
	}
	r.errorf(ownKey(k), "is %v, expected one of %q by its index", n, k.Words)
}

// readScale reads the attention's scale, the inverse root of the setting.
func (r *reader) readScale(k family.Key, scale float64, ok bool) {
	own := ownKey(k)
	if !ok {
		x := k.Scale.Absent(r.Values)
		r.Values[k.Setting] = x
		r.Notes = append(r.Notes, fmt.Sprintf("the file has no key %s.%s: assuming 1/sqrt(%v)", r.Arch, own, x))
		return
	}
	if !(scale >= k.Scale.Min && scale <= k.Scale.Max) {
		r.errorf(own, "is %v, expected %v to %v", scale, k.Scale.Min, k.Scale.Max)
		return
	}
	q := 1 / (scale * scale)
	if n := math.Round(q); math.Abs(q-n) < 1e-5*n { // the key is a rounded root of a whole number
		q = n
	}
	r.Values[k.Setting] = q
}

// readSwitch reads a Switch.
func (r *reader) readSwitch(k family.Key) {
	switch v := r.value(k.GGUF).(type) {
	case nil:
		r.Values[k.Setting] = k.Text
	case bool:
		if v {
			r.Values[k.Setting] = k.Text
		}
	default:
		r.errorf(k.GGUF, "is %s, expected true or false", family.Show(v))
	}
}

// readProduct reads a Product.
func (r *reader) readProduct(k family.Key, n float64) {
	of, _ := r.Values[k.Of].(float64)
	if !(of >= 1) || n/of != math.Trunc(n/of) {
		r.errorf(k.GGUF, "is %v, no multiple of %s, %s", n, r.Key(k.Of), family.Show(r.Values[k.Of]))
		return
	}
	r.Values[k.Setting] = n / of
}
