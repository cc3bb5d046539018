package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/registry"
)

// hfReader translates config.json.
type hfReader struct {
	*Checkpoint
	kind *family.Type
	errs []error
}

// parseHF reads config.json into one spelling and names the architecture.
func (c *Checkpoint) parseHF(config []byte) error {
	r := &hfReader{Checkpoint: c}
	if err := json.Unmarshal(config, &r.settings); err != nil {
		return fmt.Errorf("config.json: %w", jsonerr.Plain(err, ""))
	}
	if r.settings == nil {
		return errors.New("config.json: null, expected an object")
	}
	r.textConfig()
	kind, _ := r.settings["model_type"].(string)
	if c.family, r.kind = registry.OfConfig(kind, r.settings); c.family == nil {
		return errors.Join(append(r.errs, fmt.Errorf("config.json: model_type is %s, supported are %s", family.Show(r.settings["model_type"]), registry.SupportedTypes()))...)
	}
	c.Arch, c.kind = c.family.Name, r.kind
	r.class()
	r.names()
	r.heads()
	r.layers()
	if r.family.FromConfig != nil {
		r.family.FromConfig(r.settings, r.file())
	}
	if n, ok := r.settings["max_position_embeddings"].(float64); ok {
		r.settings["max_position_embeddings"] = n - float64(r.padding())
	}
	r.rope()
	if r.settings["use_bidirectional_attention"] == "vision" { // of the tokens of images
		delete(r.settings, "use_bidirectional_attention")
	}
	r.fixed()
	return errors.Join(r.errs...)
}

// class refuses a file that names a class of another family than its model_type. A class that
// no family has is left to the tensors, which tell of its head.
func (r *hfReader) class() {
	given := r.settings["architectures"]
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
		if f := registry.OfClass(name); f != nil && f != r.family && !f.Shares(r.family) {
			r.errorf("architectures", "is %s, a class of architecture %s, but model_type %s is one of %s", family.Show(given), f.Name, family.Show(r.settings["model_type"]), r.Arch)
		}
	}
}

// file returns what a hook of the family may ask of the file.
func (r *hfReader) file() *family.File {
	return &family.File{Spelling: r.spelling, Report: func(key, format string, args ...any) { r.errorf(r.Key(key), format, args...) }}
}

// fixed refuses other values of settings than all models of the family have, which nothing
// computes. Activations are computed whatever they are; GGUF alone has no key for them.
func (r *hfReader) fixed() {
	for _, key := range slices.Sorted(maps.Keys(r.family.Fixed)) {
		if v, want := r.settings[key], r.family.Fixed[key]; !r.asFixed(key) && key != "hidden_act" && key != "hidden_activation" {
			r.errorf(r.Key(key), "is %s: models of architecture %s have %s, and no other is supported", family.Show(v), r.Arch, family.Show(want))
		}
	}
}

func (r *hfReader) errorf(key, format string, args ...any) {
	r.errs = append(r.errs, &KeyError{key, fmt.Sprintf("config.json: key %s %s", key, fmt.Sprintf(format, args...))})
}

// object takes key, which is an object if it is there.
func (r *hfReader) object(key string) map[string]any {
	v := r.settings.Take(key)
	m, ok := family.Object(v)
	if v != nil && !ok {
		r.errorf(key, "is %s, expected an object", family.Show(v))
	}
	return m
}

// flag takes key, which is true or false if it is there.
func (r *hfReader) flag(key string) bool {
	v := r.settings.Take(key)
	b, ok := v.(bool)
	if v != nil && !ok {
		r.errorf(key, "is %s, expected true or false", family.Show(v))
	}
	return b
}

// textConfig turns to the text part of a multimodal model.
func (r *hfReader) textConfig() {
	text := family.Settings(r.object("text_config"))
	if text == nil {
		return
	}
	for _, k := range []string{"tie_word_embeddings", "model_type", "vocab_size"} {
		text.Fill(k, r.settings[k])
	}
	r.settings = text
}

// names turns the family's own names of settings into the canonical ones.
func (r *hfReader) names() {
	for _, key := range slices.Sorted(maps.Keys(r.family.Spelling)) {
		for _, own := range r.family.Spelling[key] {
			v := r.settings[own]
			if v == nil || own == key {
				continue
			}
			if w, ok := r.settings[key]; ok && !reflect.DeepEqual(v, w) {
				r.errorf(own, "is %s, but %s is %s", family.Show(v), r.Key(key), family.Show(w))
			}
			r.settings.Fill(key, r.settings.Take(own))
			r.spelling[key] = own
		}
	}
}

// heads fills in what the library assumes, drops null values, and brings the
// names of the activation into one.
func (r *hfReader) heads() {
	s, assumed, act := r.settings, r.kind.Defaults, "hidden_act"
	if _, ok := r.family.Fixed["hidden_activation"]; ok {
		act = "hidden_activation"
		s.Fill(act, s.Take("hidden_act"))
	}
	for _, k := range slices.Sorted(maps.Keys(assumed)) {
		if _, ok := s[k]; !ok {
			r.assumed = append(r.assumed, Entry{k, family.Show(assumed[k])})
		}
		s.Fill(k, assumed[k])
	}
	maps.DeleteFunc(s, func(_ string, v any) bool { return v == nil })
	s.Fill(act, assumed[act])
	s.Fill("num_key_value_heads", s["num_attention_heads"])
	if err := r.fillHeadDim(s); err != nil {
		r.errs = append(r.errs, err)
	}
}

// layers writes out which layers slide: all, from one on, or all but every n-th.
func (r *hfReader) layers() {
	s := r.settings
	switch r.kind.Window {
	case family.NoWindow, family.Everywhere:
		if w := s["sliding_window"]; r.kind.Window == family.NoWindow && w != nil {
			r.unread = append(r.unread, fmt.Sprintf("configuration key sliding_window = %s is not read: a model of type %s has no window", family.Show(w), r.kind.Name))
			delete(s, "sliding_window")
		}
		given := s.Take("layer_types")
		fillLayers(s, func(int) bool { return s.Int("sliding_window") > 0 })
		if given != nil && !reflect.DeepEqual(given, s["layer_types"]) {
			r.errorf("layer_types", "is %s, but in a model of type %s all layers are alike", family.Show(given), r.kind.Name)
		}
	case family.FromLayer:
		slides, from := r.flag("use_sliding_window"), s.Take("max_window_layers")
		if !slides {
			delete(s, "sliding_window")
		}
		first, ok := from.(float64)
		if !ok && (slides || from != nil) {
			r.errorf("max_window_layers", "is %s, expected a number", family.Show(from))
		}
		fillLayers(s, func(i int) bool { return s["sliding_window"] != nil && float64(i) >= first })
	case family.Periodic, family.PeriodicFirst:
		r.pattern()
	case family.Listed:
		r.listed()
	}
}

// listed brings the names of kinds of layers into one. Other names stay, and are
// refused later.
func (r *hfReader) listed() {
	types := r.settings.List("layer_types")
	var own []any // by an older setting
	var key string
	if r.family.Layers.Older != nil {
		own, key = r.family.Layers.Older(r.settings, r.file())
	}
	if r.settings["layer_types"] == nil && own != nil {
		types = own
		r.settings["layer_types"] = types
	}
	if n := len(types); n > 0 {
		r.settings.Fill("num_hidden_layers", float64(n))
	}
	for _, list := range [][]any{types, own} {
		for i, t := range list {
			if kind, ok := t.(string); ok && r.family.Layers.Kinds[kind] != "" {
				list[i] = r.family.Layers.Kinds[kind]
			}
		}
	}
	if own != nil && types != nil && !reflect.DeepEqual(own, types) {
		r.errorf(key, "is %s, but %s is %s", family.Show(r.settings[key]), r.Key("layer_types"), family.Show(types))
	}
	every := r.kind.Period
	if n := r.settings.Int("full_attention_interval"); every > 0 && n > 0 {
		every = n
	}
	r.settings.FillKinds(func(i int) string {
		if every > 0 && (i+1)%every == 0 {
			return full
		}
		return family.LinearAttention
	})
}

// pattern reads the period of full layers.
func (r *hfReader) pattern() {
	s := r.settings
	s.Fill("sliding_window_pattern", s["_sliding_window_pattern"])
	if letters, ok := s["sliding_window_pattern"].(string); ok {
		s["sliding_window_pattern"] = r.letters(letters)
	}
	if s["sliding_window"] == nil && s["sliding_window_pattern"] == 0. { // as the library writes models without windows
		delete(s, "sliding_window_pattern")
	}
	s.Fill("sliding_window_pattern", float64(r.kind.Period))
	l := family.Limit{Key: "sliding_window_pattern", Min: 1, Max: family.MaxLayers, Rule: family.Whole}
	period := s.Take(l.Key)
	if what := violates(l, period); what != "" {
		r.errorf(l.Key, "%s", what)
		return
	}
	fillLayers(s, func(i int) bool { return r.family.Slides(i, int(period.(float64))) })
	types, _ := s["layer_types"].([]any)
	if n := len(types); r.kind.LastFull && n > 0 && types[n-1] == sliding { // the library does so, too
		r.Notes = append(r.Notes, "layer_types lets the last layer slide: assuming a full one")
		types[n-1] = full
	}
}

// letters is the period of a pattern such as LLLG, three local layers and a global one.
func (r *hfReader) letters(pattern string) any {
	n := len(pattern)
	for i, c := range pattern {
		if want := map[bool]rune{true: 'L', false: 'G'}[r.family.Slides(i, n)]; c != want {
			return pattern
		}
	}
	if n == 0 {
		return pattern
	}
	return float64(n)
}
