package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/rope"
)

// settings is a configuration in one spelling, whatever the file's: Hugging
// Face's keys, with rope_parameters always by kind of layer
// ({"full_attention": {...}, "sliding_attention": {...}}), layer_types always
// written out, and per_layer_config for what differs between layers.
type settings map[string]any

// Config decodes the configuration into the struct that dst points to, whose
// json tags are canonical keys, and returns a note for every key that dst
// does not read though its name and value suggest that the forward pass
// depends on it.
func (c *Checkpoint) Config(dst any) ([]string, error) {
	b, err := json.Marshal(c.settings)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", c.Path, err)
	}
	if err := json.Unmarshal(b, dst); err != nil {
		var t *json.UnmarshalTypeError
		if errors.As(err, &t) {
			return nil, fmt.Errorf("checkpoint: %s: configuration key %s: %s does not fit", c.Path, c.spell(t.Field), t.Value)
		}
		return nil, fmt.Errorf("checkpoint: %s: configuration: %w", c.Path, err)
	}
	return append(slices.Clone(c.unread), c.unreadKeys(dst)...), nil
}

// unreadKeys lists the keys of c.settings that no json tag of dst takes and
// that are likely to matter.
func (c *Checkpoint) unreadKeys(dst any) []string {
	var notes []string
	known := map[string]bool{"rope_parameters": true}
	tags(reflect.TypeOf(dst).Elem(), known)
	for _, k := range slices.Sorted(maps.Keys(c.settings)) {
		if v := c.settings[k]; !known[k] && matters(k, v) {
			notes = append(notes, fmt.Sprintf("configuration key %s = %v is not read by architecture %s", c.spell(k), v, c.Arch))
		}
	}
	params := map[string]bool{}
	tags(reflect.TypeFor[rope.Params](), params)
	kinds, _ := c.settings["rope_parameters"].(settings)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for k, v := range kinds[kind].(settings) {
			if !params[k] && !neutral(v) {
				notes = append(notes, fmt.Sprintf("rope setting %s = %v of %s is not read", k, v, kind))
			}
		}
	}
	return notes
}

// tags adds the json names of t's fields to known.
func tags(t reflect.Type, known map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			tags(f.Type, known)
		} else if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			known[name] = true
		}
	}
}

// telling are parts of the names of settings that change logits.
var telling = []string{"rope", "scal", "window", "softcap", "factor", "multiplier", "bias", "bidirectional", "norm", "clip", "temperature"}

func matters(key string, v any) bool {
	if strings.HasPrefix(key, "_") || neutral(v) {
		return false
	}
	return slices.ContainsFunc(telling, func(s string) bool { return strings.Contains(key, s) })
}

// neutral values switch nothing on.
func neutral(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0
	case string:
		return v == "" || v == "none"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// number is the numeric value of key, and whether there is one.
func (s settings) number(key string) (float64, bool) {
	v, ok := s[key].(float64)
	return v, ok
}

// integer is the value of key as an int; 0 where it is absent or no whole number.
func (s settings) integer(key string) int {
	v, _ := s[key].(float64)
	if v != float64(int32(v)) {
		return 0
	}
	return int(v)
}

// take removes key and returns its value.
func (s settings) take(key string) any {
	v := s[key]
	delete(s, key)
	return v
}

// fill sets key where it is absent or null.
func (s settings) fill(key string, v any) {
	if s[key] == nil {
		s[key] = v
	}
}

// maxDimension bounds every size of a configuration, so that products of two
// fit an int everywhere and a hostile one allocates nothing large.
const maxDimension = 1 << 24

// validate checks the sizes that every architecture has, before anything is
// allocated by them.
func (c *Checkpoint) validate() error {
	s := c.settings
	for _, k := range []string{"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
		"num_attention_heads", "num_key_value_heads", "head_dim"} {
		v, ok := s.number(k)
		if !ok {
			return fmt.Errorf("checkpoint: %s: configuration key %s is missing or no number", c.Path, c.spell(k))
		}
		if v < 1 || v > maxDimension || v != float64(int(v)) {
			return fmt.Errorf("checkpoint: %s: configuration key %s is %v, allowed are 1 to %d", c.Path, c.spell(k), v, maxDimension)
		}
	}
	layers, heads, kv := s.integer("num_hidden_layers"), s.integer("num_attention_heads"), s.integer("num_key_value_heads")
	if layers > len(c.names) {
		return fmt.Errorf("checkpoint: %s: configuration key %s is %d, but the file holds %d tensors", c.Path, c.spell("num_hidden_layers"), layers, len(c.names))
	}
	if heads%kv != 0 {
		return fmt.Errorf("checkpoint: %s: configuration key %s is %d, no divisor of %s, %d", c.Path,
			c.spell("num_key_value_heads"), kv, c.spell("num_attention_heads"), heads)
	}
	if dim := s.integer("head_dim"); dim%2 != 0 {
		return fmt.Errorf("checkpoint: %s: configuration key %s is %d, allowed are even numbers", c.Path, c.spell("head_dim"), dim)
	}
	if eps, ok := s.number("rms_norm_eps"); !ok || eps < 0 || eps > 1 {
		return fmt.Errorf("checkpoint: %s: configuration key %s is %v, allowed are 0 to 1", c.Path, c.spell("rms_norm_eps"), s["rms_norm_eps"])
	}
	if types, ok := s["layer_types"].([]any); ok {
		return c.validateLayers(types, layers)
	}
	return nil
}

func (c *Checkpoint) validateLayers(types []any, layers int) error {
	if len(types) != layers {
		return fmt.Errorf("checkpoint: %s: configuration key %s has %d entries for %d layers", c.Path, c.spell("layer_types"), len(types), layers)
	}
	for i, t := range types {
		switch t {
		case "full_attention":
		case "sliding_attention":
			if w := c.settings.integer("sliding_window"); w < 1 || w > maxDimension {
				return fmt.Errorf("checkpoint: %s: layer %d slides, but configuration key %s is %v", c.Path, i, c.spell("sliding_window"), c.settings["sliding_window"])
			}
		default:
			return fmt.Errorf("checkpoint: %s: configuration key %s: layer %d is %q, supported are full_attention and sliding_attention", c.Path, c.spell("layer_types"), i, t)
		}
	}
	return nil
}
