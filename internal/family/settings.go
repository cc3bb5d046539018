package family

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// MaxLayers bounds the layers of a model, before anything is allocated for layers.
const MaxLayers = 1 << 10

// Settings is a configuration in canonical names, with values of encoding/json's types.
type Settings map[string]any

// The kinds of layers, as in layer_types and rope_parameters; except for the second, all need Listed. In GGUF
// attention.head_count_kv is 0 for layers without attention, and feed_forward_length for layers without an MLP, where
// the family has such kinds.
const (
	FullAttention    = "full_attention"
	SlidingAttention = "sliding_attention"
	LinearAttention  = "linear_attention" // a convolution and a scan
	MLPAlone         = "mlp"
	ExpertsAlone     = "moe"
)

// Number returns the value of key; 0 if absent or no number.
func (s Settings) Number(key string) float64 {
	v, _ := s[key].(float64)
	return v
}

// Int returns the value of key as an int; 0 if absent or no whole number.
func (s Settings) Int(key string) int {
	v := s.Number(key)
	if v != float64(int32(v)) {
		return 0
	}
	return int(v)
}

// List returns the value of key; nil if absent or no list.
func (s Settings) List(key string) []any {
	list, _ := s[key].([]any)
	return list
}

// Each changes the numbers of a list.
func (s Settings) Each(key string, change func(x float64) float64) {
	list := slices.Clone(s.List(key))
	for i, v := range list {
		if x, ok := v.(float64); ok {
			list[i] = change(x)
		}
	}
	if list != nil {
		s[key] = list
	}
}

// Take removes key and returns its value.
func (s Settings) Take(key string) any {
	v := s[key]
	delete(s, key)
	return v
}

// Fill sets key, if absent, to v, unless v is nil.
func (s Settings) Fill(key string, v any) {
	if _, ok := s[key]; !ok && v != nil {
		s[key] = v
	}
}

// Say sets keys that are absent or null, to values that may be null.
func (s Settings) Say(values map[string]any) {
	for key, v := range values {
		if s[key] == nil {
			s[key] = v
		}
	}
}

// FillKinds sets layer_types if absent. A bad number of layers is reported later.
func (s Settings) FillKinds(kind func(i int) string) {
	n := s.Int("num_hidden_layers")
	if s["layer_types"] != nil || n < 1 || n > MaxLayers {
		return
	}
	types := make([]any, n)
	for i := range types {
		types[i] = kind(i)
	}
	s["layer_types"] = types
}

// NameKinds gives kinds of layers other names.
func (s Settings) NameKinds(names map[any]string) {
	types := slices.Clone(s.List("layer_types"))
	for i, kind := range types {
		if name, ok := names[kind]; ok {
			types[i] = name
		}
	}
	s["layer_types"] = types
}

// Object returns v as an object of settings.
func Object(v any) (Settings, bool) {
	switch v := v.(type) {
	case Settings:
		return v, true
	case map[string]any:
		return v, true
	}
	return nil, false
}

// Show returns v for an error, as JSON if possible, cut to a readable length.
func Show(v any) string {
	if v == nil {
		return "missing"
	}
	b, err := json.Marshal(v)
	if err != nil { // NaN
		b = fmt.Append(nil, v)
	}
	if len(b) > 60 {
		return string(b[:60]) + "…"
	}
	return string(b)
}

// File serves a family's hook for questions and reports about the file besides its settings. Without a file, hooks get
// the zero File.
type File struct {
	Spelling map[string]string                        // the file's own names of settings, for errors
	Report   func(key, format string, args ...any)    // notes an error of a key of config.json
	Tensors  func(name string) (rows any, found bool) // of a GGUF file: the rows of a tensor, as a setting
}

// Has reports whether a GGUF file holds a tensor.
func (f *File) Has(name string) bool {
	if f.Tensors == nil {
		return false
	}
	_, found := f.Tensors(name)
	return found
}

// Rows returns the number of rows of a tensor of a GGUF file as a setting, nil where there is none.
func (f *File) Rows(name string) any {
	if f.Tensors == nil {
		return nil
	}
	rows, _ := f.Tensors(name)
	return rows
}

// Follows reports a setting that contradicts the value derived from others; want is nil if nothing follows.
func (f *File) Follows(s Settings, key string, want any) {
	if v := s[key]; v != nil && want != nil && !reflect.DeepEqual(v, want) {
		f.Report(key, "is %s, but %s follows from the other settings", Show(v), Show(want))
	}
}

// LeadingDense makes first_k_dense_replace of mlp_layer_types, a list of "dense" layers and then "sparse" ones; without
// either it is usual.
func LeadingDense(s Settings, f *File, usual float64) {
	const number, list = "first_k_dense_replace", "mlp_layer_types"
	if s[list] == nil {
		s.Fill(number, usual)
		return
	}
	n, types := 0., []any{}
	for i := range min(s.Int("num_hidden_layers"), MaxLayers) {
		kind := "sparse"
		if given := s.List(list); float64(i) == n && i < len(given) && given[i] == "dense" {
			kind, n = "dense", n+1
		}
		types = append(types, kind)
	}
	f.Follows(s, list, types)
	f.Follows(s, number, n)
	s.Take(list)
	s.Fill(number, n)
}

// CountDense sets first_k_dense_replace in GGUF files without a key for it.
func CountDense(s Settings, f *File) {
	n := 0
	for f.Has(fmt.Sprintf("blk.%d.ffn_gate", n)) {
		n++
	}
	s["first_k_dense_replace"] = float64(n)
}

// Enlarge takes the alpha of a "dynamic" rotation, which depends on no length, into the base:
// base·alpha^(dim/(dim-2)), in GGUF's precision. (Hunyuan)
func Enlarge(s Settings, f *File) {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		p, _ := Object(s[key])
		dim, alpha := s.Number("head_dim"), p.Number("alpha")
		if heads := s.Int("num_attention_heads"); dim == 0 && heads > 0 {
			dim = float64(s.Int("hidden_size") / heads)
		}
		if p["type"] != "dynamic" && p["rope_type"] != "dynamic" || !(alpha >= 1 && alpha <= 1e9 && dim > 2) {
			continue
		}
		s.Fill("rope_theta", p["rope_theta"])
		s.Fill("rope_theta", 1e4)
		f.Follows(p, "rope_theta", s["rope_theta"])
		f.Follows(p, "factor", 1.)
		base, ok := s["rope_theta"].(float64)
		if !ok {
			f.Report("rope_theta", "is %s, expected a number", Show(s["rope_theta"]))
		}
		delete(s, key)
		s["rope_theta"] = float64(float32(base * math.Pow(alpha, dim/(dim-2))))
		s["max_position_embeddings"] = 262144.
	}
}

// Letters returns an Older that reads a letter for each layer.
func Letters(key string) func(Settings, *File) ([]any, string) {
	return func(s Settings, f *File) (types []any, _ string) {
		v := s[key]
		if v == nil {
			return nil, ""
		}
		letters, _ := v.(string)
		for _, letter := range letters {
			types = append(types, string(letter))
		}
		if types == nil {
			f.Report(key, "is %s, expected a letter for each layer", Show(v))
		}
		return types, key
	}
}

// Indexes returns an Older that reads the numbers of full layers; the others are LinearAttention.
func Indexes(key string) func(Settings, *File) ([]any, string) {
	return func(s Settings, f *File) (types []any, _ string) {
		v := s[key]
		if v == nil {
			return nil, ""
		}
		list, ok := v.([]any)
		for i := range min(s.Int("num_hidden_layers"), MaxLayers) {
			kind := LinearAttention
			if slices.Contains(list, any(float64(i))) {
				kind = FullAttention
			}
			types = append(types, kind)
		}
		for _, i := range list {
			n, isNumber := i.(float64)
			ok = ok && isNumber && n >= 0 && n < float64(len(types)) && n == float64(int(n))
		}
		if !ok {
			f.Report(key, "is %s, expected the numbers of layers", Show(v))
		}
		return types, key
	}
}

// Discard returns a Rename that drops tensors with such endings, which hold no weights.
func Discard(ends ...string) func(name string, has func(string) bool) string {
	return func(name string, _ func(string) bool) string {
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return ""
		}
		return name
	}
}

// Endless serves as ToGGUF of families whose models see no positions: GGUF's context_length is 2^20.
func Endless(s Settings) { s["max_position_embeddings"] = float64(1 << 20) }
