package hf

import (
	"fmt"
	"reflect"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
)

// layers writes out the kinds of layers: all slide, or all from a layer on, or all except every n-th.
func (r *reader) layers() {
	s := r.Values
	switch r.Kind.Window {
	case family.NoWindow, family.Everywhere:
		if w := s["sliding_window"]; r.Kind.Window == family.NoWindow && w != nil {
			r.Ignored = append(r.Ignored,
				fmt.Sprintf("configuration key sliding_window = %s is not read: a model of type %s has no window",
					family.Show(w), r.Kind.Name))
			delete(s, "sliding_window")
		}
		r.nameKinds(s.List("layer_types"))
		given := s.Take("layer_types")
		settings.FillLayers(s, func(int) bool { return s.Int("sliding_window") > 0 })
		if given != nil && !reflect.DeepEqual(given, s["layer_types"]) {
			r.errorf("layer_types", "is %s, but in a model of type %s all layers are alike", family.Show(given),
				r.Kind.Name)
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
		settings.FillLayers(s, func(i int) bool { return s["sliding_window"] != nil && float64(i) >= first })
	case family.Periodic, family.PeriodicFirst:
		if r.Family.Layers.Older != nil {
			r.named()
		}
		r.pattern()
	case family.Listed:
		r.listed()
	}
}

// named makes the names of kinds of layers canonical. Unknown names stay, and are refused later.
func (r *reader) named() {
	types := r.Values.List("layer_types")
	var own []any // by an older setting
	var key string
	if r.Family.Layers.Older != nil {
		own, key = r.Family.Layers.Older(r.Values, r.file())
	}
	if r.Values["layer_types"] == nil && own != nil {
		types = own
		r.Values["layer_types"] = types
	}
	if n := len(types); n > 0 {
		r.Values.Fill("num_hidden_layers", float64(n))
	}
	r.nameKinds(types)
	r.nameKinds(own)
	if own != nil && types != nil && !reflect.DeepEqual(own, types) {
		r.errorf(key, "is %s, but %s is %s", family.Show(r.Values[key]), r.Key("layer_types"), family.Show(types))
	}
}

// listed reads the kinds of layers, with the library's assumption.
func (r *reader) listed() {
	r.named()
	every := r.Kind.Period
	if n := r.Values.Int("full_attention_interval"); every > 0 && n > 0 {
		every = n
	}
	r.Values.FillKinds(func(i int) string {
		if every > 0 && (i+1)%every == 0 {
			return family.FullAttention
		}
		return family.LinearAttention
	})
}

// nameKinds makes the names of a list canonical.
func (r *reader) nameKinds(list []any) {
	for i, t := range list {
		if kind, ok := t.(string); ok && r.Family.Layers.Kinds[kind] != "" {
			list[i] = r.Family.Layers.Kinds[kind]
		}
	}
}

// pattern reads the period of full layers.
func (r *reader) pattern() {
	s := r.Values
	if own := "_sliding_window_pattern"; s["sliding_window_pattern"] == nil && s[own] != nil {
		s["sliding_window_pattern"], r.Spelling["sliding_window_pattern"] = s[own], own
	}
	if letters, ok := s["sliding_window_pattern"].(string); ok {
		s["sliding_window_pattern"] = r.letters(letters)
	}
	if s["sliding_window"] == nil && s["sliding_window_pattern"] == 0. { // as the library writes models without windows
		delete(s, "sliding_window_pattern")
	}
	s.Fill("sliding_window_pattern", float64(r.Kind.Period))
	l := family.Limit{Key: "sliding_window_pattern", Min: 1, Max: family.MaxLayers, Rule: family.Whole}
	period := s.Take(l.Key)
	if what := settings.Violates(l, period); what != "" {
		r.errorf(r.Key(l.Key), "%s", what)
		return
	}
	settings.FillLayers(s, func(i int) bool {
		return r.Family.Slides(i, int(period.(float64))) && !(r.Kind.FirstFull && i == 0)
	})
	types, _ := s["layer_types"].([]any)
	if n := len(types); r.Kind.LastFull && n > 0 && types[n-1] == family.SlidingAttention { // as the library does
		r.Notes = append(r.Notes, "layer_types lets the last layer slide: assuming a full one")
		types[n-1] = family.FullAttention
	}
}

// letters returns the period of a pattern such as LLLG, three local layers and a global layer.
func (r *reader) letters(pattern string) any {
	n := len(pattern)
	for i, c := range pattern {
		if want := map[bool]rune{true: 'L', false: 'G'}[r.Family.Slides(i, n)]; c != want {
			return pattern
		}
	}
	if n == 0 {
		return pattern
	}
	return float64(n)
}
