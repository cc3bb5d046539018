package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// modelTypes maps Hugging Face's model_type to the architecture.
var modelTypes = map[string]string{
	"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
	"gemma3": "gemma3", "gemma3_text": "gemma3", "gemma4": "gemma4", "gemma4_text": "gemma4",
}

// parseHF reads config.json into one spelling and names the architecture.
func parseHF(config []byte) (settings, string, error) {
	var s settings
	d := json.NewDecoder(bytes.NewReader(config))
	if err := d.Decode(&s); err != nil {
		return nil, "", fmt.Errorf("config.json: %w", err)
	}
	if s == nil {
		return nil, "", fmt.Errorf("config.json: not an object")
	}
	if text, ok := s["text_config"].(map[string]any); ok { // text part of a multimodal model
		for _, k := range []string{"tie_word_embeddings", "model_type", "vocab_size"} {
			settings(text).fill(k, s[k])
		}
		s = text
	}
	kind, _ := s["model_type"].(string)
	arch, ok := modelTypes[kind]
	if !ok {
		return nil, "", fmt.Errorf("config.json: model_type %q is not supported (llama, mistral, qwen2, qwen3, gemma3 and gemma4 are)", kind)
	}
	if kind != "mistral" && arch == "llama" {
		delete(s, "sliding_window") // as the library does
	}
	s.fill("num_key_value_heads", s["num_attention_heads"])
	if heads := s.integer("num_attention_heads"); heads > 0 {
		s.fill("head_dim", math.Floor(float64(s.integer("hidden_size"))/float64(heads)))
	}
	s.fill("rms_norm_eps", 1e-6)
	s.activation(arch)
	if err := s.layerTypes(arch); err != nil {
		return nil, "", err
	}
	if arch == "gemma4" {
		s.perLayer()
	}
	if arch == "gemma3" {
		s.fill("query_pre_attn_scalar", 256.0)
	}
	s.fill("tie_word_embeddings", arch == "gemma3" || arch == "gemma4") // the library's default
	return s, arch, s.ropeParameters(arch)
}

// activation fills the key that the architecture reads.
func (s settings) activation(arch string) {
	if arch == "gemma3" || arch == "gemma4" {
		s.fill("hidden_activation", s.take("hidden_act"))
		s.fill("hidden_activation", "gelu_pytorch_tanh")
		return
	}
	s.fill("hidden_act", "silu")
}

// layerTypes writes out which layers slide: older files give a period, and
// Qwen's the first layer that slides.
func (s settings) layerTypes(arch string) error {
	period := s.take("sliding_window_pattern")
	if period == nil {
		period = s["_sliding_window_pattern"]
	}
	if slides, from := s.take("use_sliding_window"), s.take("max_window_layers"); arch == "qwen2" || arch == "qwen3" {
		n, _ := from.(float64)
		if slides != true {
			n = math.Inf(1)
		}
		s.fillLayers(func(i int) bool { return float64(i) >= n })
		return nil
	}
	if arch != "gemma3" && arch != "gemma4" {
		return nil
	}
	p, ok := period.(float64)
	if !ok {
		p = 6 // the family's default
		if arch == "gemma4" && s["layer_types"] == nil {
			return fmt.Errorf("config.json: layer_types is missing")
		}
	}
	if !(p >= 1 && p <= maxDimension) {
		return fmt.Errorf("config.json: sliding_window_pattern is %v, allowed are 1 to %d", period, maxDimension)
	}
	s.fillLayers(func(i int) bool { return (i+1)%int(p) != 0 })
	return nil
}

// fillLayers sets layer_types where it is absent.
func (s settings) fillLayers(slides func(i int) bool) {
	n := s.integer("num_hidden_layers")
	if s["layer_types"] != nil || n < 1 || n > 1<<16 {
		return
	}
	types := make([]any, n)
	for i := range types {
		types[i] = "full_attention"
		if slides(i) {
			types[i] = "sliding_attention"
		}
	}
	s["layer_types"] = types
}

// perLayer turns Gemma 4's settings for full layers into per_layer_config.
func (s settings) perLayer() {
	dim, heads := s.take("global_head_dim"), s.take("num_global_key_value_heads")
	per, ok := s["per_layer_config"].(map[string]any)
	if !ok {
		per = map[string]any{}
	}
	s["per_layer_config"] = per
	types, _ := s["layer_types"].([]any)
	for i, t := range types {
		if t != "full_attention" || dim == nil && heads == nil {
			continue
		}
		o, ok := per[strconv.Itoa(i)].(map[string]any)
		if !ok {
			o = map[string]any{}
		}
		settings(o).fill("head_dim", dim)
		if s["attention_k_eq_v"] == true { // the library reads it only then
			settings(o).fill("num_key_value_heads", heads)
		}
		per[strconv.Itoa(i)] = o
	}
}

// ropeParameters brings the spellings of rotary settings into one: rope_theta
// with rope_scaling (and Gemma 3's rope_local_base_freq), rope_parameters for
// all layers, and rope_parameters by kind of layer.
func (s settings) ropeParameters(arch string) error {
	base, local, part := s.take("rope_theta"), s.take("rope_local_base_freq"), s.take("partial_rotary_factor")
	scaling, _ := s.take("rope_scaling").(map[string]any)
	params, _ := s["rope_parameters"].(map[string]any)
	kinds := settings{}
	for _, kind := range []string{"full_attention", "sliding_attention"} {
		if p, ok := params[kind].(map[string]any); ok {
			kinds[kind] = settings(p)
		}
	}
	if len(kinds) == 0 {
		full := settings{}
		for _, m := range []map[string]any{params, scaling} {
			for k, v := range m {
				full.fill(k, v)
			}
		}
		full.fill("rope_theta", base)
		full.fill("partial_rotary_factor", part)
		kinds["full_attention"] = full
		if arch == "gemma3" {
			kinds["sliding_attention"] = settings{"rope_theta": local}
		}
	}
	for kind, p := range kinds {
		theta := 10000.0 // the library's default
		if arch == "gemma3" && kind == "full_attention" {
			theta = 1e6
		}
		p.(settings).fill("rope_theta", theta)
	}
	s["rope_parameters"] = kinds
	return nil
}
