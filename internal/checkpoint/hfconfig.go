package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// modelTypes maps Hugging Face's model_type to the architecture.
var modelTypes = map[string]string{
	"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
	"gemma3": "gemma3", "gemma3_text": "gemma3", "gemma4": "gemma4", "gemma4_text": "gemma4",
}

// defaults are what the library assumes of keys that a file leaves out, by
// architecture: published files of Gemma 3 do not even give their heads.
// Sizes that every published file gives are not among them.
//
// Source: transformers 5.17, models/*/configuration_*.py.
var defaults = map[string]settings{
	"llama": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 2048.},
	"mistral": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 131072.,
		"num_key_value_heads": 8., "sliding_window": 4096.},
	"qwen2": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 32768.,
		"sliding_window": 4096., "max_window_layers": 28.},
	"qwen3": {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "max_position_embeddings": 32768.,
		"sliding_window": 4096., "max_window_layers": 28., "head_dim": 128.},
	"gemma3": {"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "max_position_embeddings": 131072.,
		"vocab_size": 262208., "num_attention_heads": 8., "num_key_value_heads": 4., "head_dim": 256., "query_pre_attn_scalar": 256.,
		"sliding_window": 4096.},
	"gemma4": {"rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "max_position_embeddings": 131072.,
		"vocab_size": 262144., "num_attention_heads": 8., "num_key_value_heads": 4., "head_dim": 256., "global_head_dim": 512.,
		"hidden_size_per_layer_input": 256., "vocab_size_per_layer_input": 262144., "sliding_window": 512.},
}

// hfReader translates config.json.
type hfReader struct {
	*Checkpoint
	errs []error
}

// parseHF reads config.json into one spelling and names the architecture.
func (c *Checkpoint) parseHF(config []byte) error {
	r := &hfReader{Checkpoint: c}
	if err := json.Unmarshal(config, &r.settings); err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	if r.settings == nil {
		return errors.New("config.json: null, expected an object")
	}
	r.textConfig()
	kind, _ := r.settings["model_type"].(string)
	var ok bool
	if c.Arch, ok = modelTypes[kind]; !ok {
		return errors.Join(append(r.errs, fmt.Errorf("config.json: model_type is %s, supported are llama, mistral, qwen2, qwen3, gemma3 and gemma4", show(r.settings["model_type"])))...)
	}
	r.heads(kind)
	r.layers(kind)
	if c.Arch == "gemma4" {
		r.perLayer()
	}
	r.rope()
	if r.settings["use_bidirectional_attention"] == "vision" { // of the tokens of images
		delete(r.settings, "use_bidirectional_attention")
	}
	return errors.Join(r.errs...)
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

// heads fills in what the library assumes, drops what is null, and brings the
// names of the activation into one.
func (r *hfReader) heads(kind string) {
	s := r.settings
	act := "hidden_act"
	if r.Arch == "gemma3" || r.Arch == "gemma4" {
		act = "hidden_activation"
		s.fill(act, s.take("hidden_act"))
	}
	assumed := defaults[r.Arch]
	if kind == "mistral" {
		assumed = defaults[kind]
	}
	for _, k := range slices.Sorted(maps.Keys(assumed)) {
		if _, ok := s[k]; !ok {
			r.assumed = append(r.assumed, Entry{k, show(assumed[k])})
		}
		s.fill(k, assumed[k])
	}
	maps.DeleteFunc(s, func(_ string, v any) bool { return v == nil })
	s.fill(act, assumed[act])
	s.fill("num_key_value_heads", s["num_attention_heads"])
	if err := r.fillHeadDim(s); err != nil {
		r.errs = append(r.errs, err)
	}
}

// layers writes out which layers slide: Mistral's all do, Qwen's from one on,
// and Gemma's but for every n-th.
func (r *hfReader) layers(kind string) {
	s := r.settings
	switch r.Arch {
	case "llama":
		if w := s["sliding_window"]; kind != "mistral" && w != nil {
			r.unread = append(r.unread, fmt.Sprintf("configuration key sliding_window = %s is not read: a model of type llama has no window", show(w)))
			delete(s, "sliding_window")
		}
		given := s.take("layer_types")
		s.fillLayers(func(int) bool { return s.integer("sliding_window") > 0 })
		if given != nil && !reflect.DeepEqual(given, s["layer_types"]) {
			r.errorf("layer_types", "is %s, but in a model of type %s all layers are alike", show(given), kind)
		}
	case "qwen2", "qwen3":
		slides, from := r.flag("use_sliding_window"), s.take("max_window_layers")
		if !slides {
			delete(s, "sliding_window")
		}
		first, ok := from.(float64)
		if !ok && (slides || from != nil) {
			r.errorf("max_window_layers", "is %s, expected a number", show(from))
		}
		s.fillLayers(func(i int) bool { return s["sliding_window"] != nil && float64(i) >= first })
	default:
		r.pattern()
	}
}

// pattern reads Gemma's period of full layers.
func (r *hfReader) pattern() {
	s := r.settings
	s.fill("sliding_window_pattern", s["_sliding_window_pattern"])
	s.fill("sliding_window_pattern", 6.)
	l := limit{"sliding_window_pattern", 1, maxLayers, whole}
	period := s.take(l.key)
	if what := l.allows(period); what != "" {
		r.errorf(l.key, "%s", what)
		return
	}
	s.fillLayers(func(i int) bool { return (i+1)%int(period.(float64)) != 0 })
	types, _ := s["layer_types"].([]any)
	if n := len(types); r.Arch == "gemma4" && n > 0 && types[n-1] == sliding { // the library does so, too
		r.Notes = append(r.Notes, "layer_types lets the last layer slide: assuming a full one")
		types[n-1] = full
	}
}

// perLayer turns Gemma 4's older settings for full layers into per_layer_config.
func (r *hfReader) perLayer() {
	s := r.settings
	own := map[string]any{"head_dim": s.take("global_head_dim"), "num_key_value_heads": s.take("num_global_key_value_heads")}
	if s["attention_k_eq_v"] != true { // the library reads it only then
		delete(own, "num_key_value_heads")
	}
	if s["per_layer_config"] != nil { // and either only without this
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
		r.spelling["per_layer_config."+layer+".head_dim"] = "global_head_dim"
		r.spelling["per_layer_config."+layer+".num_key_value_heads"] = "num_global_key_value_heads"
	}
	s["per_layer_config"] = per
}
