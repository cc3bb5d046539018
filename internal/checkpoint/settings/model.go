// Package settings holds the configuration of a model in canonical keys, whatever the format of its files. The readers
// of both formats fill in the configuration, and the writers read it.
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
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/tensor"
)

// Model holds the settings of a model's files, without tensors and text.
type Model struct {
	Path   string
	Arch   string         // name of the family: general.architecture
	Family *family.Family // nil if unknown
	Kind   *family.Type   // of a folder
	Notes  []string       // assumptions, tensors set aside

	// Values has the configuration under Hugging Face's keys, with rope_parameters always by kind of layer
	// ({"full_attention": {...}, "sliding_attention": {...}}), layer_types always written out, and per_layer_config for
	// the differences between layers. No value is null.
	Values   family.Settings
	Spelling map[string]string // the file's own names of canonical keys, where different
	Assumed  []Entry           // the library's defaults for settings that the file leaves out, in the file's spelling
	Left     []Entry           // settings of the file without a canonical key, important or not
	Ignored  []string          // notes on settings in Left

	DerivedDim bool     // the file does not say the head size
	Ranks      bool     // a GGUF file has a reranker's whole head
	Pooling    *float64 // pooling_type of a GGUF file; nil where there is none
}

// New returns an empty model.
func New(path string) *Model {
	return &Model{Path: path, Values: family.Settings{}, Spelling: map[string]string{}}
}

// Entry is a setting in the spelling of a file.
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

// Rope returns a number among the rotary settings of a kind of layer (full_attention or sliding_attention); 0 if
// absent.
func (c *Model) Rope(kind, key string) float64 {
	params, _ := family.Object(c.RopeParameters()[kind])
	v, _ := params[key].(float64)
	return v
}

// RopeParameters returns the canonical setting that both formats' readers make.
func (c *Model) RopeParameters() map[string]any {
	m, _ := family.Object(c.Values["rope_parameters"])
	return m
}

// Decode sets dst from src, the value at path. Unlike encoding/json, Decode matches the exact case of tags, as Validate
// does.
func (c *Model) Decode(dst reflect.Value, src any, path string) error {
	m, isObject := family.Object(src)
	switch {
	case isObject && dst.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(dst.Type()) { // of embedded structs, their fields
			tag := f.Tag.Get("json")
			if v, ok := m[tag]; ok && tag != "" {
				if err := c.Decode(dst.FieldByIndex(f.Index), v, joinPath(path, tag)); err != nil {
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
	if list, _ := src.([]any); dst.Kind() == reflect.Slice && dst.Type().Elem().Kind() != reflect.Pointer &&
		slices.Contains(list, nil) { // JSON's decoder makes zeros of nulls
		return fmt.Errorf("configuration key %s is %s, expected no null", c.Key(path), family.Show(src))
	}
	b, err := json.Marshal(src)
	if err == nil {
		err = json.Unmarshal(b, dst.Addr().Interface())
	}
	if mismatch, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return fmt.Errorf("configuration key %s is %s, expected %s", c.Key(path), family.Show(src),
			jsonerr.Kind(mismatch.Type))
	}
	if err != nil {
		return fmt.Errorf("configuration key %s: %w", c.Key(path), err)
	}
	return nil
}

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// FillHeadDim sets head_dim, if absent, to an even share of the model's width.
func (c *Model) FillHeadDim(s family.Settings) error {
	if c.Family.Latent() { // the turning part is a separate head there
		s.Fill("head_dim", s["qk_rope_head_dim"])
		return nil
	}
	heads, hidden := s.Int("num_attention_heads"), s.Int("hidden_size")
	if s["head_dim"] != nil || heads < 1 || hidden < 1 {
		return nil
	}
	if hidden%heads != 0 {
		return c.Bad("num_attention_heads", "is %d, no divisor of %s, %d, and %s is missing", heads,
			c.Key("hidden_size"), hidden, c.Key("head_dim"))
	}
	s["head_dim"], c.DerivedDim = float64(hidden/heads), true
	return nil
}

// FillLayers sets layer_types if absent. A bad number of layers is left to Validate.
func FillLayers(s family.Settings, slides func(i int) bool) {
	s.FillKinds(func(i int) string {
		if slides(i) {
			return family.SlidingAttention
		}
		return family.FullAttention
	})
}

// Type returns the type of a folder, or the type to which a GGUF file is converted: the first of the family with a
// window, experts and a reranker's head as far as the model has them, and without needs that the model lacks.
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
		if lacks := func(key string) bool { return Neutral(c.Values[key]) }; window && experts &&
			!slices.ContainsFunc(t.Needs, lacks) {
			return t
		}
	}
	return c.Family.Types[0]
}

// Padding returns the number of rows for no position at the start of a table of positions in config.json's format: a
// row for each token up to the padding token. (create_position_ids_from_input_ids of RoBERTa)
func (c *Model) Padding() int {
	pad, ok := c.Values["pad_token_id"].(float64)
	if !ok || !c.Type().Padded {
		return 0
	}
	return int(pad) + 1
}

// AsFixed reports whether a setting has the value shared by all models of the family.
func (c *Model) AsFixed(key string) bool {
	v, want := c.Values[key], c.Family.Fixed[key]
	if name, ok := v.(string); ok {
		if alias, ok := map[string]string{"swish": "silu", "gelu_tanh": "gelu_pytorch_tanh"}[name]; ok {
			v = alias
		}
	}
	return v == nil || reflect.DeepEqual(v, want)
}

// CountBehind counts the layers from a number on with tensors in the list with the given prefix. Each such layer should
// have a tensor whose name goes on with mark; own is the first layer without, -1 for none.
func CountBehind(set *tensor.Set, prefix, mark string, from int) (n, own int) {
	marked := map[int]bool{} // layers with tensors, and whether mark was found
	for _, name := range set.Names {
		rest, ok := strings.CutPrefix(name, prefix)
		number, rest, _ := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(number); ok && err == nil && i >= from {
			marked[i] = marked[i] || strings.HasPrefix(rest, mark)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(marked)) {
		if !marked[i] {
			return 0, i
		}
	}
	return len(marked), -1
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

var Kinds = []string{family.FullAttention, family.SlidingAttention}

// KeyError is a fault of a setting.
type KeyError struct {
	Key  string // canonical if known, else the file's key
	what string
}

func (e *KeyError) Error() string { return e.what }

// NewError returns a fault of a setting.
func NewError(key, what string) error { return &KeyError{key, what} }

// Bad returns an error about a canonical key, in the file's spelling.
func (c *Model) Bad(key, format string, args ...any) error {
	return &KeyError{Key: key,
		what: fmt.Sprintf("%s: configuration key %s %s", c.Path, c.Key(key), fmt.Sprintf(format, args...))}
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

func Words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}
