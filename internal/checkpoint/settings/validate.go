package settings

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/family"
)

// Limits of a configuration, above every published model. Products of two sizes fit an int, and the graph of a hostile
// file stays small.
const (
	maxDimension = 1 << 24
	maxHeadDim   = 1 << 14
	maxExperts   = 1 << 16
)

var limits = []family.Limit{
	{Key: "vocab_size", Min: 1, Max: maxDimension, Rule: family.Required | family.Whole},
	{Key: "hidden_size", Min: 1, Max: maxDimension, Rule: family.Required | family.Whole},
	{Key: "intermediate_size", Min: 1, Max: maxDimension, Rule: family.Required | family.Whole},
	{Key: "num_hidden_layers", Min: 1, Max: family.MaxLayers, Rule: family.Required | family.Whole},
	{Key: "num_attention_heads", Min: 1, Max: maxDimension, Rule: family.Required | family.Whole},
	{Key: "num_key_value_heads", Min: 1, Max: maxDimension, Rule: family.Required | family.Whole},
	{Key: "head_dim", Min: 2, Max: maxHeadDim, Rule: family.Required | family.Whole},
	{Key: "rms_norm_eps", Min: 1e-12, Max: 1, Rule: family.Required},
	{Key: "layer_norm_eps", Min: 1e-12, Max: 1},
	{Key: "sliding_window", Min: 0, Max: maxDimension, Rule: family.Whole},
	{Key: "max_position_embeddings", Min: 1, Max: math.MaxInt32, Rule: family.Whole},
	{Key: "final_logit_softcapping", Min: 1e-3, Max: 1e6, Rule: family.OrZero},
	{Key: "num_kv_shared_layers", Min: 0, Max: family.MaxLayers, Rule: family.Whole},
	{Key: "hidden_size_per_layer_input", Min: 0, Max: maxDimension, Rule: family.Whole},
	{Key: "vocab_size_per_layer_input", Min: 0, Max: maxDimension, Rule: family.Whole},
	{Key: "num_experts", Min: 0, Max: maxExperts, Rule: family.Whole},
	{Key: "top_k_experts", Min: 0, Max: maxExperts, Rule: family.Whole},
	{Key: "moe_intermediate_size", Min: 0, Max: maxDimension, Rule: family.Whole},
	{Key: "n_group", Min: 1, Max: maxExperts, Rule: family.Whole},
	{Key: "topk_group", Min: 1, Max: maxExperts, Rule: family.Whole},
}

// ropeLimits hold in every kind of rope_parameters. The needs of single types are left to package rope, as are unknown
// types.
var ropeLimits = []family.Limit{
	{Key: "rope_theta", Min: 1, Max: 1e30, Rule: family.Required},
	{Key: "factor", Min: 1. / 64, Max: 1e9},
	{Key: "low_freq_factor", Min: 0, Max: 1e9},
	{Key: "high_freq_factor", Min: 0, Max: 1e9},
	{Key: "original_max_position_embeddings", Min: 1, Max: math.MaxInt32},
	{Key: "partial_rotary_factor", Min: 1e-6, Max: 1},
	{Key: "attention_factor", Min: 1e-6, Max: 1e6},
}

// layerLimits lists the keys of per_layer_config.
var layerLimits = []family.Limit{
	{Key: "head_dim", Min: 2, Max: maxHeadDim, Rule: family.Whole},
	{Key: "num_key_value_heads", Min: 1, Max: maxDimension, Rule: family.Whole},
	{Key: "intermediate_size", Min: 1, Max: maxDimension, Rule: family.Whole},
}

// latentLimits lists further settings of models that store latents.
var latentLimits = []family.Limit{
	{Key: "kv_lora_rank", Min: 1, Max: maxHeadDim, Rule: family.Required | family.Whole},
	{Key: "qk_nope_head_dim", Min: 1, Max: maxHeadDim, Rule: family.Required | family.Whole},
	{Key: "qk_rope_head_dim", Min: 2, Max: maxHeadDim, Rule: family.Required | family.Whole},
	{Key: "v_head_dim", Min: 1, Max: maxHeadDim, Rule: family.Required | family.Whole},
}

// Violates describes the fault of v, or returns "".
func Violates(l family.Limit, v any) string {
	n, ok := v.(float64)
	switch {
	case v == nil && l.Rule&family.Required == 0, ok && n == 0 && l.Rule&family.OrZero != 0:
		return ""
	case v == nil:
		return "is missing"
	case ok && n >= l.Min && n <= l.Max && (l.Rule&family.Whole == 0 || n == math.Trunc(n)):
		return ""
	}
	what := "a number"
	if l.Rule&family.Whole != 0 {
		what = "a whole number"
	}
	return fmt.Sprintf("is %s, expected %s from %v to %v", family.Show(v), what, l.Min, int64Or(l.Max))
}

// int64Or prints large whole limits without an exponent.
func int64Or(v float64) any {
	if v == math.Trunc(v) && v < 1<<32 {
		return int64(v)
	}
	return v
}

// Malformed describes the sizes that are given and wrong, for a configuration that is refused without Validate.
func (c *Model) Malformed() (errs []error) {
	for _, l := range slices.Concat(limits, latentLimits) {
		if what := Violates(l, c.Values[l.Key]); what != "" && c.Values[l.Key] != nil {
			errs = append(errs, c.Bad(l.Key, "%s", what))
		}
	}
	return errs
}

// Validate checks the configuration of files with so many tensors, before anything is allocated: each number, then
// relations between numbers.
func (c *Model) Validate(tensors int) error {
	var errs []error
	list := slices.Concat(limits, c.Family.Limits)
	if c.Family.Latent() {
		list = append(list, latentLimits...)
	}
	if c.Type().Padded { // a folder has a row for each token up to this id
		list = append(list, family.Limit{Key: "pad_token_id", Min: 0, Max: 1 << 10, Rule: family.Whole})
	}
	if next := c.Family.NextKey(); next != "" {
		list = append(list, family.Limit{Key: next, Min: 0, Max: family.MaxLayers, Rule: family.Whole})
	}
	for _, l := range list {
		if l.Key == "layer_norm_eps" && c.Family.Lacks("rms_norm_eps") { // else nothing would be added to a variance
			l.Rule |= family.Required
		}
		if c.Family.Lacks(l.Key) && c.Values[l.Key] == nil {
			continue
		}
		if what := Violates(l, c.Values[l.Key]); what != "" {
			errs = append(errs, c.Bad(l.Key, "%s", what))
		}
	}
	for _, kind := range Kinds {
		params, ok := family.Object(c.RopeParameters()[kind])
		part, _ := params["partial_rotary_factor"].(float64)
		whole := part == 0 || part == 1 || params["rope_type"] == "proportional"
		if !whole && !c.Family.Partial() && !c.Family.Latent() {
			errs = append(errs, c.Bad("rope_parameters."+kind+".partial_rotary_factor",
				"is %v: heads of architecture %s turn whole", part, c.Arch))
		}
		for _, l := range ropeLimits {
			if what := Violates(l, params[l.Key]); ok && what != "" {
				errs = append(errs, c.Bad("rope_parameters."+kind+"."+l.Key, "%s", what))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.validateHeads(), c.validateLayers(tensors), c.validateOverrides(), c.validateExperts(),
			c.validateFlags())
	}
	return errors.Join(errs...)
}

func (c *Model) validateHeads() error {
	s := c.Values
	if dim := s.Int("head_dim"); dim%2 != 0 {
		return c.Bad("head_dim", "is %d, expected an even number", dim)
	}
	heads, kv := s.Int("num_attention_heads"), s.Int("num_key_value_heads")
	if c.Family.Latent() && kv != heads {
		return c.Bad("num_key_value_heads", "is %d, expected %s, %d: all heads read one latent", kv,
			c.Key("num_attention_heads"), heads)
	}
	if kv > 0 && heads%kv != 0 {
		return c.Bad("num_key_value_heads", "is %d, no divisor of %s, %d", kv, c.Key("num_attention_heads"), heads)
	}
	return nil
}

func (c *Model) validateLayers(tensors int) error {
	s := c.Values
	layers := s.Int("num_hidden_layers")
	if layers > tensors && c.Path != "" {
		return c.Bad("num_hidden_layers", "is %d, but there are %d tensors", layers, tensors)
	}
	if n := s.Int("num_kv_shared_layers"); n >= layers {
		return c.Bad("num_kv_shared_layers", "is %d, expected less than the %d layers", n, layers)
	}
	types, ok := s["layer_types"].([]any)
	if !ok || len(types) != layers {
		return c.Bad("layer_types", "is %s, expected a list of %d kinds of layers", family.Show(s["layer_types"]),
			layers)
	}
	for i, t := range types {
		switch {
		case t != family.FullAttention && t != family.SlidingAttention && !c.listed(t):
			return c.Bad("layer_types", "is %s for layer %d, supported are %s and %s", family.Show(t), i,
				family.FullAttention, family.SlidingAttention)
		case t == family.SlidingAttention && s.Int("sliding_window") < 1:
			return c.Bad("sliding_window", "is %s, but layer %d slides", family.Show(s["sliding_window"]), i)
		}
	}
	return nil
}

// listed reports whether t is a kind of the family's own.
func (c *Model) listed(t any) bool {
	kind, _ := t.(string)
	return c.Family.Layers.Kinds[kind] == kind && kind != ""
}

// validateOverrides checks per_layer_config, {"3": {"head_dim": 64}}.
func (c *Model) validateOverrides() error {
	v := c.Values["per_layer_config"]
	per, ok := family.Object(v)
	if v != nil && !ok {
		return c.Bad("per_layer_config", "is %s, expected an object of layers", family.Show(v))
	}
	var errs []error
	for _, layer := range slices.Sorted(maps.Keys(per)) {
		i, err := strconv.Atoi(layer)
		if err != nil || strconv.Itoa(i) != layer || i < 0 || i >= c.Values.Int("num_hidden_layers") {
			errs = append(errs, c.Bad("per_layer_config", "has a key %s, which is no layer", family.Show(layer)))
			continue
		}
		errs = append(errs, c.validateOverride(layer, per[layer]))
	}
	// A setting of the file can stand for many layers.
	return errors.Join(slices.CompactFunc(errs, func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })...)
}

func (c *Model) validateOverride(layer string, v any) error {
	o, ok := family.Object(v)
	if !ok {
		return c.Bad("per_layer_config."+layer, "is %s, expected an object", family.Show(v))
	}
	for _, k := range slices.Sorted(maps.Keys(o)) {
		path := "per_layer_config." + layer + "." + k
		i := slices.IndexFunc(layerLimits, func(l family.Limit) bool { return l.Key == k })
		if i < 0 {
			return c.Bad(path,
				"is %s, but layers differ here only in head_dim, num_key_value_heads and intermediate_size",
				family.Show(o[k]))
		}
		if what := Violates(layerLimits[i], o[k]); what != "" {
			return c.Bad(path, "%s", what)
		}
	}
	if dim := family.Settings(o).Int("head_dim"); dim%2 != 0 {
		return c.Bad("per_layer_config."+layer+".head_dim", "is %d, expected an even number", dim)
	}
	heads := c.Values.Int("num_attention_heads")
	if kv := family.Settings(o).Int("num_key_value_heads"); kv > 0 && heads%kv != 0 {
		return c.Bad("per_layer_config."+layer+".num_key_value_heads", "is %d, no divisor of %s, %d", kv,
			c.Key("num_attention_heads"), heads)
	}
	return nil
}

func (c *Model) validateExperts() error {
	s := c.Values
	if !c.Family.Mixes(s) && !c.Family.Uses("num_experts") {
		return nil
	}
	for _, k := range []string{"num_experts", "top_k_experts", "moe_intermediate_size"} {
		if c.Family.Model.Reads(k) && s.Int(k) < 1 {
			return c.Bad(k, "is %s in a model with experts, expected 1 or more", family.Show(s[k]))
		}
	}
	if k, n := s.Int("top_k_experts"), s.Int("num_experts"); k > n {
		return c.Bad("top_k_experts", "is %d, more than %s, %d", k, c.Key("num_experts"), n)
	}
	groups, kept := s.Int("n_group"), s.Int("topk_group")
	if kept > max(groups, 1) {
		return c.Bad("topk_group", "is %d, more than %s, %d", kept, c.Key("n_group"), max(groups, 1))
	}
	if n := s.Int("num_experts"); groups > 1 && n%groups != 0 {
		return c.Bad("n_group", "is %d, no divisor of %s, %d", groups, c.Key("num_experts"), n)
	}
	return nil
}

// validateFlags refuses flags that would change every logit.
func (c *Model) validateFlags() error {
	var flags []string
	if c.Family.Fixed["use_bidirectional_attention"] != true {
		flags = append(flags, "use_bidirectional_attention")
	}
	if _, may := c.Family.Held["attention_bias"]; !may && !slices.Contains(c.Family.Idle, "attention_bias") {
		flags = append(flags, "attention_bias")
	}
	if c.Values["is_causal"] == false && !c.Family.Encodes() {
		return c.Bad("is_causal", "is false: texts are read both ways, which architecture %s does not support", c.Arch)
	}
	if v := c.Values["attn_logit_softcapping"]; v != nil && v != 0. && !c.Family.Uses("attn_logit_softcapping") {
		return c.Bad("attn_logit_softcapping", "is %s, which architecture %s does not support", family.Show(v), c.Arch)
	}
	known := tags(reflect.TypeOf(c.Family.Model.Config()).Elem())
	for k, v := range c.Values { // the model has no weights for other biases
		if v == true && strings.HasSuffix(k, "_bias") && !known[k] && !c.Idle(k) {
			flags = append(flags, k)
		}
	}
	slices.Sort(flags)
	for _, k := range flags {
		if v := c.Values[k]; v == true || v == "all" {
			return c.Bad(k, "is %s, which architecture %s does not support", family.Show(v), c.Arch)
		}
	}
	return nil
}
