// Package hf reads the texts of Hugging Face folders into settings, and writes them.
//
// Files in reading order: text.go, config.go, tower.go, layers.go, rope.go, reader.go, write.go, weights.go.
package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/registry"
)

// Read reads config.json into canonical settings and finds the family.
func Read(c *settings.Model, config []byte) error {
	r := &reader{Model: c}
	if err := json.Unmarshal(config, &r.Values); err != nil {
		return fmt.Errorf("config.json: %w", jsonerr.Plain(err, ""))
	}
	if r.Values == nil {
		return errors.New("config.json: null, expected an object")
	}
	whole, _ := r.Values["model_type"].(string)
	r.textConfig()
	kind, _ := r.Values["model_type"].(string)
	if c.Family, c.Kind = registry.OfConfig(kind, whole, r.Values); c.Family == nil {
		return errors.Join(append(r.errs, fmt.Errorf("config.json: model_type is %s, supported are %s",
			family.Show(r.Values["model_type"]), registry.SupportedTypes()))...)
	}
	c.Arch = c.Family.Name
	r.class()
	r.names()
	r.heads()
	r.layers()
	if r.Family.FromConfig != nil {
		r.Family.FromConfig(r.Values, r.file())
	}
	if n, ok := r.Values["max_position_embeddings"].(float64); ok {
		r.Values["max_position_embeddings"] = n - float64(r.Padding())
	}
	r.rope()
	if r.Values["use_bidirectional_attention"] == "vision" { // of the tokens of images
		delete(r.Values, "use_bidirectional_attention")
	}
	r.fixed()
	if len(r.errs) > 0 { // perhaps they follow from a number that is none
		r.errs = append(r.Malformed(), r.errs...)
	}
	return errors.Join(r.errs...)
}

// textConfig turns to the text part of a multimodal model.
func (r *reader) textConfig() {
	text := family.Settings(r.object("text_config"))
	if text == nil {
		return
	}
	for _, k := range []string{"tie_word_embeddings", "model_type", "vocab_size"} {
		text.Fill(k, r.Values[k])
	}
	if deep := family.Settings(r.object("vision_config")).List("deepstack_visual_indexes"); len(deep) > 0 {
		text["n_deepstack_layers"] = float64(len(deep))
	}
	r.Values = text
}

// class refuses a file that names a class of another family than its model_type. Classes that no family has are left to
// the tensors, which show the kind of head.
func (r *reader) class() {
	given := r.Values["architectures"]
	list, ok := given.([]any)
	if given != nil && !ok {
		r.errorf("architectures", "is %s, expected a list of classes", family.Show(given))
	}
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			r.errorf("architectures", "is %s, expected a list of classes", family.Show(given))
			return
		}
		if strings.Contains(name, "Bidirectional") && !r.Family.Encodes() {
			r.errorf("architectures", "is %s, a class that reads texts both ways, which architecture %s does not "+
				"support", family.Show(given), r.Arch)
		}
		if f := registry.OfClass(name); f != nil && f != r.Family && !f.Shares(r.Family) {
			r.errorf("architectures", "is %s, a class of architecture %s, but model_type %s is one of %s",
				family.Show(given), f.Name, family.Show(r.Values["model_type"]), r.Arch)
		}
	}
}

// names replaces the family's own names of settings by the canonical names.
func (r *reader) names() {
	for _, key := range slices.Sorted(maps.Keys(r.Family.Spelling)) {
		for _, own := range r.Family.Spelling[key] {
			v := r.Values[own]
			if v == nil || own == key {
				continue
			}
			if w, ok := r.Values[key]; ok && !reflect.DeepEqual(v, w) {
				r.errorf(own, "is %s, but %s is %s", family.Show(v), r.Key(key), family.Show(w))
			}
			r.Values.Fill(key, r.Values.Take(own))
			r.Spelling[key] = own
		}
	}
}

// heads fills in the library's assumptions, drops null values, and makes the name of the activation canonical.
func (r *reader) heads() {
	s, assumed, act := r.Values, r.Kind.Defaults, "hidden_act"
	if _, ok := r.Family.Fixed["hidden_activation"]; ok {
		act = "hidden_activation"
		if s[act] == nil {
			r.Spelling[act] = "hidden_act"
		}
		s.Fill(act, s.Take("hidden_act"))
	}
	for _, k := range slices.Sorted(maps.Keys(assumed)) {
		if _, ok := s[k]; !ok {
			r.Assumed = append(r.Assumed, settings.Entry{Key: k, Value: family.Show(assumed[k])})
		}
		s.Fill(k, assumed[k])
	}
	maps.DeleteFunc(s, func(_ string, v any) bool { return v == nil })
	s.Fill(act, assumed[act])
	s.Fill("num_key_value_heads", s["num_attention_heads"])
	if err := r.FillHeadDim(s); err != nil {
		r.errs = append(r.errs, err)
	}
}

// fixed refuses settings that differ from the value of all models of the family, since nothing computes others. Models
// that read an activation compute any; GGUF alone has no key for activations.
func (r *reader) fixed() {
	reads := settings.Tags(r.Family.Model.Config())
	for _, key := range slices.Sorted(maps.Keys(r.Family.Fixed)) {
		if v, want := r.Values[key], r.Family.Fixed[key]; !r.AsFixed(key) &&
			!(reads[key] && strings.HasPrefix(key, "hidden_act")) {
			r.errorf(r.Key(key), "is %s: models of architecture %s have %s, and no other is supported", family.Show(v),
				r.Arch, family.Show(want))
		}
	}
}

// Finite makes strict JSON of Python's JSON: infinities and NaN become objects, as transformers 5 writes them.
// (Published files have "time_step_limit": [0.0, Infinity].)
func Finite(config []byte) []byte {
	var out []byte
	quoted := false
	for i := 0; i < len(config); i++ {
		switch c := config[i]; {
		case quoted && c == '\\' && i+1 < len(config):
			out = append(out, c)
			i++
		case c == '"':
			quoted = !quoted
		case !quoted:
			if word := notFinite(config[i:]); word != "" {
				out = append(out, `{"__float__":"`+word+`"}`...)
				i += len(word) - 1
				continue
			}
		}
		out = append(out, config[i])
	}
	return out
}

// notFinite returns the number of Python's JSON at the start of b, "" for none.
func notFinite(b []byte) string {
	for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
		if bytes.HasPrefix(b, []byte(word)) {
			return word
		}
	}
	return ""
}
