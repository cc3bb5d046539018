package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/rope"
)

// Config decodes the configuration into the struct that dst points to, whose
// json tags are canonical keys, and returns a note for every key that dst
// does not read though its name and value suggest that the forward pass
// depends on it.
func (c *Checkpoint) Config(dst any) ([]string, error) {
	if err := c.decode(reflect.ValueOf(dst).Elem(), map[string]any(c.settings), ""); err != nil {
		return nil, err
	}
	return append(slices.Clone(c.unread), c.unreadKeys(dst)...), nil
}

// decode sets dst from src, the value at path. Unlike encoding/json it takes a
// key only in the exact case of its tag: validate has seen no other.
func (c *Checkpoint) decode(dst reflect.Value, src any, path string) error {
	m, isObject := family.Object(src)
	switch {
	case isObject && dst.Kind() == reflect.Struct:
		for i := range dst.NumField() {
			tag := dst.Type().Field(i).Tag.Get("json")
			if v, ok := m[tag]; ok {
				if err := c.decode(dst.Field(i), v, join(path, tag)); err != nil {
					return err
				}
			}
		}
		return nil
	case isObject && dst.Kind() == reflect.Map:
		dst.Set(reflect.MakeMap(dst.Type()))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			v := reflect.New(dst.Type().Elem()).Elem()
			if err := c.decode(v, m[k], join(path, k)); err != nil {
				return err
			}
			dst.SetMapIndex(reflect.ValueOf(k), v)
		}
		return nil
	}
	b, err := json.Marshal(src)
	if err == nil {
		err = json.Unmarshal(b, dst.Addr().Interface())
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("configuration key %s is %s, expected %v", c.Key(path), family.Show(src), dst.Type())
	}
	if err != nil {
		return fmt.Errorf("configuration key %s: %w", c.Key(path), err)
	}
	return nil
}

func join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// Unread lists the settings that neither the reading of the files nor a Config
// of this model asked for, and that switch something on.
func (c *Checkpoint) Unread(dst any) []Entry {
	list := slices.Clone(c.left)
	known := tags(reflect.TypeOf(dst).Elem())
	for _, k := range slices.Sorted(maps.Keys(c.settings)) {
		if v := c.settings[k]; !known[k] && k != "rope_parameters" && !Neutral(v) {
			list = append(list, Entry{c.Key(k), family.Show(v)})
		}
	}
	return list
}

// unreadKeys lists the keys of c.settings that no json tag of dst takes and
// that are likely to matter.
func (c *Checkpoint) unreadKeys(dst any) []string {
	var notes []string
	known := tags(reflect.TypeOf(dst).Elem())
	for _, k := range slices.Sorted(maps.Keys(c.settings)) {
		if v := c.settings[k]; !known[k] && k != "rope_parameters" && matters(k, v) && !c.Idle(k) {
			notes = append(notes, fmt.Sprintf("configuration key %s = %s is not read by architecture %s", c.Key(k), family.Show(v), c.Arch))
		}
	}
	known = tags(reflect.TypeFor[rope.Params]())
	for _, kind := range kinds {
		params, _ := family.Object(c.ropeParameters()[kind])
		scaling, _ := cmp.Or(params["rope_type"], params["type"]).(string)
		for _, k := range slices.Sorted(maps.Keys(params)) {
			if v := params[k]; !(known[k] && rope.Reads(scaling, k)) && !Neutral(v) {
				notes = append(notes, fmt.Sprintf("rope setting %s = %s of %s is not read", k, family.Show(v), kind))
			}
		}
	}
	return notes
}

// ropeParameters is the canonical key, whose values both formats' readers make.
func (c *Checkpoint) ropeParameters() map[string]any {
	m, _ := family.Object(c.settings["rope_parameters"])
	return m
}

// tags is the set of the json names of t's fields.
func tags(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		names[t.Field(i).Tag.Get("json")] = true
	}
	return names
}

// telling are parts of the names of settings that change logits.
var telling = []string{"nextn", "rope", "scal", "window", "softcap", "factor", "multiplier", "bias", "bidirectional", "norm", "clip", "temperature"}

func matters(key string, v any) bool {
	if strings.HasPrefix(key, "_") || Neutral(v) {
		return false
	}
	return slices.ContainsFunc(telling, func(s string) bool { return strings.Contains(key, s) })
}

// Neutral reports whether a setting's value switches nothing on.
func Neutral(v any) bool {
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

// fillHeadDim sets head_dim where it is absent to the width that each head has
// if all together are as wide as the model.
func (c *Checkpoint) fillHeadDim(s family.Settings) error {
	if c.family.Latent() { // what turns is a head of its own there
		s.Fill("head_dim", s["qk_rope_head_dim"])
		return nil
	}
	heads, hidden := s.Int("num_attention_heads"), s.Int("hidden_size")
	if s["head_dim"] != nil || heads < 1 || hidden < 1 {
		return nil
	}
	if hidden%heads != 0 {
		return c.bad("num_attention_heads", "is %d, no divisor of %s, %d, and %s is missing", heads, c.Key("hidden_size"), hidden, c.Key("head_dim"))
	}
	s["head_dim"], c.derivedDim = float64(hidden/heads), true
	return nil
}

// fillLayers sets layer_types where it is absent. A number of layers that is
// not allowed is left to validate.
func fillLayers(s family.Settings, slides func(i int) bool) {
	s.FillKinds(func(i int) string {
		if slides(i) {
			return sliding
		}
		return full
	})
}
