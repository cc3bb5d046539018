// Package settings is the configuration of a model in one spelling, whatever its files' format: what both formats'
// readers fill in and their writers read.
//
// Files in reading order: model.go, unread.go, validate.go, generation.go.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/tensor"
)

// Model is what a model's files say of it besides tensors and text.
type Model struct {
	Path   string
	Arch   string         // name of the family: general.architecture
	Family *family.Family // nil where it is unknown
	Kind   *family.Type   // of a folder
	Notes  []string       // assumptions, tensors set aside

	// Values is the configuration in one spelling: Hugging Face's keys, with rope_parameters always by kind of layer
	// ({"full_attention": {...}, "sliding_attention": {...}}), layer_types always written out, and per_layer_config for
	// what differs between layers. No value is null.
	Values   family.Settings
	Spelling map[string]string // the file's own names of canonical keys, where they differ
	Assumed  []Entry           // settings that the file leaves out, in its spelling, with the defaults that hold
	Left     []Entry           // settings of the file that have no canonical key, whether they matter or not
	Ignored  []string          // notes on these settings

	DerivedDim bool     // the file does not say the head size
	Ranks      bool     // a GGUF file has a reranker's whole head
	Pooling    *float64 // pooling_type of a GGUF file; nil where there is none
}

// New returns an empty model.
func New(path string) *Model {
	return &Model{Path: path, Values: family.Settings{}, Spelling: map[string]string{}}
}

// Entry is a setting as a file has it.
type Entry struct{ Key, Value string }

// Key implements bind.Source: the file's own name of a canonical setting.
func (c *Model) Key(name string) string {
	if own, ok := c.Spelling[name]; ok {
		return own
	}
	return name
}

// Setting returns the value of a canonical setting, nil where there is none: a
// float64, string, bool, []any or map[string]any, or a map of the like.
func (c *Model) Setting(key string) any { return c.Values[key] }

// ContextLength returns the number of positions the model was made for; 0 if unknown.
func (c *Model) ContextLength() int { return c.Values.Int("max_position_embeddings") }

// Rope returns a number of the rotary settings of a kind of layer (full_attention or
// sliding_attention); 0 where it is absent.
func (c *Model) Rope(kind, key string) float64 {
	params, _ := family.Object(c.RopeParameters()[kind])
	v, _ := params[key].(float64)
	return v
}

// RopeParameters returns the canonical key, whose values both formats' readers make.
func (c *Model) RopeParameters() map[string]any {
	m, _ := family.Object(c.Values["rope_parameters"])
	return m
}

// Config decodes the configuration into the struct that dst points to, whose
// json tags are canonical keys, and returns a note for every key that dst
// does not read though its name and value suggest that the forward pass
// depends on it.
func (c *Model) Config(dst any) ([]string, error) {
	if err := c.Decode(reflect.ValueOf(dst).Elem(), map[string]any(c.Values), ""); err != nil {
		return nil, err
	}
	return append(slices.Clone(c.Ignored), c.unreadKeys(dst)...), nil
}

// Decode sets dst from src, the value at path. Unlike encoding/json it takes a
// key only in the exact case of its tag: validate has seen no other.
func (c *Model) Decode(dst reflect.Value, src any, path string) error {
	m, isObject := family.Object(src)
	switch {
	case isObject && dst.Kind() == reflect.Struct:
		for i := range dst.NumField() {
			tag := dst.Type().Field(i).Tag.Get("json")
			if v, ok := m[tag]; ok {
				if err := c.Decode(dst.Field(i), v, joinPath(path, tag)); err != nil {
					return err
				}
			}
		}
		return nil
	case isObject && dst.Kind() == reflect.Map:
		dst.Set(reflect.MakeMap(dst.Type()))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			v := reflect.New(dst.Type().Elem()).Elem()
			if err := c.Decode(v, m[k], joinPath(path, k)); err != nil {
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

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// FillHeadDim sets head_dim where it is absent to the width that each head has
// if all together are as wide as the model.
func (c *Model) FillHeadDim(s family.Settings) error {
	if c.Family.Latent() { // what turns is a head of its own there
		s.Fill("head_dim", s["qk_rope_head_dim"])
		return nil
	}
	heads, hidden := s.Int("num_attention_heads"), s.Int("hidden_size")
	if s["head_dim"] != nil || heads < 1 || hidden < 1 {
		return nil
	}
	if hidden%heads != 0 {
		return c.Bad("num_attention_heads", "is %d, no divisor of %s, %d, and %s is missing", heads, c.Key("hidden_size"), hidden, c.Key("head_dim"))
	}
	s["head_dim"], c.DerivedDim = float64(hidden/heads), true
	return nil
}

// FillLayers sets layer_types where it is absent. A number of layers that is
// not allowed is left to validate.
func FillLayers(s family.Settings, slides func(i int) bool) {
	s.FillKinds(func(i int) string {
		if slides(i) {
			return family.SlidingAttention
		}
		return family.FullAttention
	})
}

// Type returns the type of a folder, or the one that a GGUF file is written as: the first of the family that has a window
// if the model has one, experts if it has any, a reranker's head if it is one, and no needs that the model lacks.
func (c *Model) Type() family.Type {
	if c.Kind != nil {
		return *c.Kind
	}
	for _, t := range c.Family.Types {
		if t.Ranks != c.Ranks {
			continue
		}
		window := c.Values.Int("sliding_window") == 0 || t.Window != family.NoWindow
		for key, want := range t.Only {
			window = window && c.Values[key] == want
		}
		experts := c.Values.Int("num_experts") == 0 || !slices.Contains(t.Lacks, "num_experts")
		if lacks := func(key string) bool { return Neutral(c.Values[key]) }; window && experts && !slices.ContainsFunc(t.Needs, lacks) {
			return t
		}
	}
	return c.Family.Types[0]
}

// Padding returns how many rows a table of positions begins with in config.json's format that are no position's: as many as
// there are tokens up to the one that pads. (create_position_ids_from_input_ids of RoBERTa)
func (c *Model) Padding() int {
	pad, ok := c.Values["pad_token_id"].(float64)
	if !ok || !c.Type().Padded {
		return 0
	}
	return int(pad) + 1
}

// AsFixed reports whether a setting is as all models of the family have it.
func (c *Model) AsFixed(key string) bool {
	v, want := c.Values[key], c.Family.Fixed[key]
	if name, ok := v.(string); ok {
		if alias, ok := map[string]string{"swish": "silu", "gelu_tanh": "gelu_pytorch_tanh"}[name]; ok {
			v = alias
		}
	}
	return v == nil || reflect.DeepEqual(v, want)
}

// SetAside drops the tensors of layers from one on, in the list that begins with prefix. Such a layer
// has a tensor whose name goes on with mark: the result is the first one that has others alone, -1
// for none.
func (c *Model) SetAside(set *tensor.Set, prefix, mark string, from int) (own int) {
	before, marked := len(set.Names), map[int]bool{} // by the layers that have tensors
	set.Names = slices.DeleteFunc(set.Names, func(name string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		number, rest, _ := strings.Cut(rest, ".")
		i, err := strconv.Atoi(number)
		if !ok || err != nil || i < from {
			return false
		}
		marked[i] = marked[i] || strings.HasPrefix(rest, mark)
		delete(set.ByName, name)
		return true
	})
	if n := before - len(set.Names); n > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d tensors of layers that predict further tokens are set aside", n))
	}
	for _, i := range slices.Sorted(maps.Keys(marked)) {
		if !marked[i] {
			return i
		}
	}
	return -1
}

// Rows returns the number of rows of a tensor, as a setting; nil without the tensor.
func Rows(set *tensor.Set, name string) any {
	t, ok := set.ByName[name]
	switch {
	case !ok || len(t.Shape) == 0:
		return nil
	case len(t.Shape) == 1:
		return 1.
	}
	return float64(t.Shape[0])
}
