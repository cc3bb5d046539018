package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// What a configuration may say. The limits lie above every published model.
// Products of two sizes fit an int, and the graph of a hostile file stays small.
const (
	maxDimension = 1 << 24
	maxHeadDim   = 1 << 14
	maxExperts   = 1 << 16
	maxLayers    = 1 << 10
)

// The kinds of layers, as layer_types and rope_parameters name them.
const (
	full    = "full_attention"
	sliding = "sliding_attention"
)

var kinds = []string{full, sliding}

// limit says what the number under a key may be.
type limit struct {
	key      string
	min, max float64
	rule     rule
}

type rule uint8

const (
	required rule = 1 << iota
	whole
	orZero // allowed too, below min
)

var limits = []limit{
	{"vocab_size", 1, maxDimension, required | whole},
	{"hidden_size", 1, maxDimension, required | whole},
	{"intermediate_size", 1, maxDimension, required | whole},
	{"num_hidden_layers", 1, maxLayers, required | whole},
	{"num_attention_heads", 1, maxDimension, required | whole},
	{"num_key_value_heads", 1, maxDimension, required | whole},
	{"head_dim", 2, maxHeadDim, required | whole},
	{"rms_norm_eps", 1e-12, 1, required},
	{"sliding_window", 0, maxDimension, whole},
	{"max_position_embeddings", 0, math.MaxInt32, whole},
	{"query_pre_attn_scalar", 1e-3, maxDimension, 0},
	{"final_logit_softcapping", 1e-3, 1e6, orZero},
	{"num_kv_shared_layers", 0, maxLayers, whole},
	{"hidden_size_per_layer_input", 0, maxDimension, whole},
	{"vocab_size_per_layer_input", 0, maxDimension, whole},
	{"num_experts", 0, maxExperts, whole},
	{"top_k_experts", 0, maxExperts, whole},
	{"moe_intermediate_size", 0, maxDimension, whole},
}

// ropeLimits hold in every kind of rope_parameters. Package rope knows what
// its types need; a type that it does not know is its error.
var ropeLimits = []limit{
	{"rope_theta", 1, 1e30, required},
	{"factor", 1. / 64, 1e9, orZero},
	{"low_freq_factor", 0, 1e9, 0},
	{"high_freq_factor", 0, 1e9, 0},
	{"original_max_position_embeddings", 0, math.MaxInt32, 0},
	{"partial_rotary_factor", 1e-6, 1, 0},
}

// layerLimits are the keys that per_layer_config may have.
var layerLimits = []limit{
	{"head_dim", 2, maxHeadDim, whole},
	{"num_key_value_heads", 1, maxDimension, whole},
	{"intermediate_size", 1, maxDimension, whole},
}

// allows returns what is wrong with v, or "".
func (l limit) allows(v any) string {
	n, ok := v.(float64)
	switch {
	case v == nil && l.rule&required == 0, ok && n == 0 && l.rule&orZero != 0:
		return ""
	case v == nil:
		return "is missing"
	case ok && n >= l.min && n <= l.max && (l.rule&whole == 0 || n == math.Trunc(n)):
		return ""
	}
	what := "a number"
	if l.rule&whole != 0 {
		what = "a whole number"
	}
	return fmt.Sprintf("is %s, expected %s from %v to %v", show(v), what, l.min, int64Or(l.max))
}

// int64Or prints large whole limits without an exponent.
func int64Or(v float64) any {
	if v == math.Trunc(v) && v < 1<<32 {
		return int64(v)
	}
	return v
}

// KeyError is what is wrong with a setting.
type KeyError struct {
	Key  string // canonical where that is known, else as the file has it
	what string
}

func (e *KeyError) Error() string { return e.what }

// bad is an error about a canonical key, in the file's spelling.
func (c *Checkpoint) bad(key, format string, args ...any) error {
	return &KeyError{Key: key, what: fmt.Sprintf("checkpoint: %s: configuration key %s %s", c.Path, c.Key(key), fmt.Sprintf(format, args...))}
}

// validate checks the configuration before anything is allocated by it: first
// each number, then how they fit together.
func (c *Checkpoint) validate() error {
	var errs []error
	for _, l := range limits {
		if what := l.allows(c.settings[l.key]); what != "" {
			errs = append(errs, c.bad(l.key, "%s", what))
		}
	}
	for _, kind := range kinds {
		params, ok := object(c.ropeParameters()[kind])
		for _, l := range ropeLimits {
			if what := l.allows(params[l.key]); ok && what != "" {
				errs = append(errs, c.bad("rope_parameters."+kind+"."+l.key, "%s", what))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.validateHeads(), c.validateLayers(), c.validateOverrides(), c.validateExperts(), c.validateFlags())
	}
	return errors.Join(errs...)
}

func (c *Checkpoint) validateHeads() error {
	s := c.settings
	if dim := s.integer("head_dim"); dim%2 != 0 {
		return c.bad("head_dim", "is %d, expected an even number", dim)
	}
	heads, kv := s.integer("num_attention_heads"), s.integer("num_key_value_heads")
	if heads%kv != 0 {
		return c.bad("num_key_value_heads", "is %d, no divisor of %s, %d", kv, c.Key("num_attention_heads"), heads)
	}
	return nil
}

func (c *Checkpoint) validateLayers() error {
	s := c.settings
	layers := s.integer("num_hidden_layers")
	if layers > len(c.names) {
		return c.bad("num_hidden_layers", "is %d, but there are %d tensors", layers, len(c.names))
	}
	if n := s.integer("num_kv_shared_layers"); n >= layers {
		return c.bad("num_kv_shared_layers", "is %d, expected less than the %d layers", n, layers)
	}
	types, ok := s["layer_types"].([]any)
	if !ok || len(types) != layers {
		return c.bad("layer_types", "is %s, expected a list of %d kinds of layers", show(s["layer_types"]), layers)
	}
	for i, t := range types {
		switch {
		case t != full && t != sliding:
			return c.bad("layer_types", "is %s for layer %d, supported are %s and %s", show(t), i, full, sliding)
		case t == sliding && s.integer("sliding_window") < 1:
			return c.bad("sliding_window", "is %s, but layer %d slides", show(s["sliding_window"]), i)
		}
	}
	return nil
}

// validateOverrides checks per_layer_config, {"3": {"head_dim": 64}}.
func (c *Checkpoint) validateOverrides() error {
	v := c.settings["per_layer_config"]
	per, ok := object(v)
	if v != nil && !ok {
		return c.bad("per_layer_config", "is %s, expected an object of layers", show(v))
	}
	var errs []error
	for _, layer := range slices.Sorted(maps.Keys(per)) {
		i, err := strconv.Atoi(layer)
		if err != nil || strconv.Itoa(i) != layer || i < 0 || i >= c.settings.integer("num_hidden_layers") {
			errs = append(errs, c.bad("per_layer_config", "has a key %s, which is no layer", show(layer)))
			continue
		}
		errs = append(errs, c.validateOverride(layer, per[layer]))
	}
	// One setting of the file can stand for many layers.
	return errors.Join(slices.CompactFunc(errs, func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })...)
}

func (c *Checkpoint) validateOverride(layer string, v any) error {
	o, ok := object(v)
	if !ok {
		return c.bad("per_layer_config."+layer, "is %s, expected an object", show(v))
	}
	for _, k := range slices.Sorted(maps.Keys(o)) {
		path := "per_layer_config." + layer + "." + k
		i := slices.IndexFunc(layerLimits, func(l limit) bool { return l.key == k })
		if i < 0 {
			return c.bad(path, "is %s, but layers differ here only in head_dim, num_key_value_heads and intermediate_size", show(o[k]))
		}
		if what := layerLimits[i].allows(o[k]); what != "" {
			return c.bad(path, "%s", what)
		}
	}
	if dim := settings(o).integer("head_dim"); dim%2 != 0 {
		return c.bad("per_layer_config."+layer+".head_dim", "is %d, expected an even number", dim)
	}
	heads := c.settings.integer("num_attention_heads")
	if kv := settings(o).integer("num_key_value_heads"); kv > 0 && heads%kv != 0 {
		return c.bad("per_layer_config."+layer+".num_key_value_heads", "is %d, no divisor of %s, %d", kv, c.Key("num_attention_heads"), heads)
	}
	return nil
}

func (c *Checkpoint) validateExperts() error {
	s := c.settings
	if s["enable_moe_block"] != true {
		return nil
	}
	for _, k := range []string{"num_experts", "top_k_experts", "moe_intermediate_size"} {
		if s.integer(k) < 1 {
			return c.bad(k, "is %s in a model with experts, expected 1 or more", show(s[k]))
		}
	}
	if k, n := s.integer("top_k_experts"), s.integer("num_experts"); k > n {
		return c.bad("top_k_experts", "is %d, more than %s, %d", k, c.Key("num_experts"), n)
	}
	return nil
}

// validateFlags refuses what would change every logit. (Of Qwen 2 the library
// does not read attention_bias: it has its biases always.)
func (c *Checkpoint) validateFlags() error {
	flags := []string{"use_bidirectional_attention"}
	if c.Arch != "llama" && c.Arch != "qwen2" {
		flags = append(flags, "attention_bias")
	}
	if v := c.settings["attn_logit_softcapping"]; v != nil && v != 0. {
		return c.bad("attn_logit_softcapping", "is %s, which architecture %s does not support", show(v), c.Arch)
	}
	for _, k := range flags {
		if v := c.settings[k]; v == true || v == "all" {
			return c.bad(k, "is %s, which architecture %s does not support", show(v), c.Arch)
		}
	}
	return nil
}
