package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"

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
		return errors.Join(append(r.errs, fmt.Errorf("config.json: model_type is %s, supported are %s", show(r.settings["model_type"]), registry.SupportedTypes()))...)
	}
	c.Arch, c.kind = c.family.Name, r.kind
	r.class()
	r.names()
	r.heads()
	r.layers()
	r.perLayer()
	if r.family.Normal != nil {
		r.family.Normal(r.settings)
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
		r.errorf("architectures", "is %s, expected a list of classes", show(given))
	}
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			r.errorf("architectures", "is %s, expected a list of classes", show(given))
			return
		}
		if f := registry.OfClass(name); f != nil && f != r.family && !f.Shares(r.family) {
			r.errorf("architectures", "is %s, a class of architecture %s, but model_type %s is one of %s", show(given), f.Name, show(r.settings["model_type"]), r.Arch)
		}
	}
}

// repeats refuses settings that contradict the settings they follow from.
func (r *hfReader) repeats() {
	for _, key := range slices.Sorted(maps.Keys(r.family.Repeats)) {
		v, want := r.settings[key], r.family.Repeats[key](r.settings)
		if v != nil && want != nil && !reflect.DeepEqual(v, want) {
			r.errorf(r.Key(key), "is %s, but %s follows from the other settings", show(v), show(want))
		}
	}
}

// fixed refuses other values of settings than all models of the family have, which nothing
// computes. Activations are computed whatever they are; GGUF alone has no key for them.
func (r *hfReader) fixed() {
	for _, key := range slices.Sorted(maps.Keys(r.family.Fixed)) {
		if v, want := r.settings[key], r.family.Fixed[key]; !r.asFixed(key) && key != "hidden_act" && key != "hidden_activation" {
			r.errorf(r.Key(key), "is %s: models of architecture %s have %s, and no other is supported", show(v), r.Arch, show(want))
		}
	}
}

func (r *hfReader) errorf(key, format string, args ...any) {
	r.errs = append(r.errs, &KeyError{key, fmt.Sprintf("config.json: key %s %s", key, fmt.Sprintf(format, args...))})
}

// object takes key, which is an object if it is there.
func (r *hfReader) object(key string) map[string]any {
	v := r.settings.take(key)
	m, ok := object(v)
	if v != nil && !ok {
		r.errorf(key, "is %s, expected an object", show(v))
	}
	return m
}

// flag takes key, which is true or false if it is there.
func (r *hfReader) flag(key string) bool {
	v := r.settings.take(key)
	b, ok := v.(bool)
	if v != nil && !ok {
		r.errorf(key, "is %s, expected true or false", show(v))
	}
	return b
}

// textConfig turns to the text part of a multimodal model.
func (r *hfReader) textConfig() {
	text := settings(r.object("text_config"))
	if text == nil {
		return
	}
	for _, k := range []string{"tie_word_embeddings", "model_type", "vocab_size"} {
		text.fill(k, r.settings[k])
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
				r.errorf(own, "is %s, but %s is %s", show(v), r.Key(key), show(w))
			}
			r.settings.fill(key, r.settings.take(own))
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
		s.fill(act, s.take("hidden_act"))
	}
	for _, k := range slices.Sorted(maps.Keys(assumed)) {
		if _, ok := s[k]; !ok {
			r.assumed = append(r.assumed, Entry{k, show(assumed[k])})
		}
		s.fill(k, assumed[k])
	}
	maps.DeleteFunc(s, func(_ string, v any) bool { return v == nil })
	r.repeats()
	s.fill(act, assumed[act])
	s.fill("num_key_value_heads", s["num_attention_heads"])
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
			r.unread = append(r.unread, fmt.Sprintf("configuration key sliding_window = %s is not read: a model of type %s has no window", show(w), r.kind.Name))
			delete(s, "sliding_window")
		}
		given := s.take("layer_types")
		s.fillLayers(func(int) bool { return s.integer("sliding_window") > 0 })
		if given != nil && !reflect.DeepEqual(given, s["layer_types"]) {
			r.errorf("layer_types", "is %s, but in a model of type %s all layers are alike", show(given), r.kind.Name)
		}
	case family.FromLayer:
		slides, from := r.flag("use_sliding_window"), s.take("max_window_layers")
		if !slides {
			delete(s, "sliding_window")
		}
		first, ok := from.(float64)
		if !ok && (slides || from != nil) {
			r.errorf("max_window_layers", "is %s, expected a number", show(from))
		}
		s.fillLayers(func(i int) bool { return s["sliding_window"] != nil && float64(i) >= first })
	case family.Periodic, family.PeriodicFirst:
		r.pattern()
	case family.Listed:
		r.listed()
	}
}

// listed brings the names of kinds of layers into one. Other names stay, and are
// refused later.
func (r *hfReader) listed() {
	types, _ := r.settings["layer_types"].([]any)
	own, key := r.olderTypes()
	if r.settings["layer_types"] == nil && own != nil {
		types = own
		r.settings["layer_types"] = types
	}
	if n := len(types); n > 0 {
		r.settings.fill("num_hidden_layers", float64(n))
	}
	for _, list := range [][]any{types, own} {
		for i, t := range list {
			if kind, ok := t.(string); ok && r.family.Kinds[kind] != "" {
				list[i] = r.family.Kinds[kind]
			}
		}
	}
	if own != nil && types != nil && !reflect.DeepEqual(own, types) {
		r.errorf(key, "is %s, but %s is %s", show(r.settings[key]), r.Key("layer_types"), show(types))
	}
	every := r.kind.Period
	if n := r.settings.integer("full_attention_interval"); every > 0 && n > 0 {
		every = n
	}
	r.settings.fillKinds(func(i int) string {
		if every > 0 && (i+1)%every == 0 {
			return full
		}
		return family.LinearAttention
	})
}

// olderTypes is what each layer does as the older setting key says it; nil where the file has none.
func (r *hfReader) olderTypes() (types []any, key string) {
	if v := r.settings[r.family.Letters]; v != nil {
		letters, _ := v.(string)
		for _, letter := range letters {
			types = append(types, string(letter))
		}
		if types == nil {
			r.errorf(r.family.Letters, "is %s, expected a letter for each layer", show(v))
		}
		return types, r.family.Letters
	}
	v := r.settings[r.family.Indexes]
	if v == nil {
		return nil, ""
	}
	list, ok := v.([]any)
	for i := range min(r.settings.integer("num_hidden_layers"), maxLayers) {
		kind := family.LinearAttention
		if slices.Contains(list, any(float64(i))) {
			kind = full
		}
		types = append(types, kind)
	}
	for _, i := range list {
		n, whole := i.(float64)
		ok = ok && whole && n >= 0 && n < float64(len(types)) && n == math.Trunc(n)
	}
	if !ok {
		r.errorf(r.family.Indexes, "is %s, expected the numbers of layers", show(v))
	}
	return types, r.family.Indexes
}

// pattern reads the period of full layers.
func (r *hfReader) pattern() {
	s := r.settings
	s.fill("sliding_window_pattern", s["_sliding_window_pattern"])
	if letters, ok := s["sliding_window_pattern"].(string); ok {
		s["sliding_window_pattern"] = r.letters(letters)
	}
	if s["sliding_window"] == nil && s["sliding_window_pattern"] == 0. { // as the library writes models without windows
		delete(s, "sliding_window_pattern")
	}
	s.fill("sliding_window_pattern", float64(r.kind.Period))
	l := family.Limit{Key: "sliding_window_pattern", Min: 1, Max: maxLayers, Rule: family.Whole}
	period := s.take(l.Key)
	if what := violates(l, period); what != "" {
		r.errorf(l.Key, "%s", what)
		return
	}
	s.fillLayers(func(i int) bool { return r.family.Slides(i, int(period.(float64))) })
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

// perLayer turns settings for all full layers into per_layer_config.
func (r *hfReader) perLayer() {
	s, own := r.settings, map[string]any{}
	for key, from := range r.family.Full {
		v := s.take(from)
		if cond := r.family.FullIf[key]; cond == "" || s[cond] == true { // the library reads it only then
			own[key] = v
		}
	}
	if len(r.family.Full) == 0 || s["per_layer_config"] != nil { // and either only without this
		return
	}
	per := map[string]any{}
	types, _ := s["layer_types"].([]any)
	for i, t := range types {
		if t != full {
			continue
		}
		o := settings{}
		layer := strconv.Itoa(i)
		for k, v := range own {
			o.fill(k, v)
		}
		per[layer] = o
		for key, from := range r.family.Full {
			r.spelling["per_layer_config."+layer+"."+key] = from
		}
	}
	s["per_layer_config"] = per
}
