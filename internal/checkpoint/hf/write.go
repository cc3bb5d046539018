package hf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/rope"
)

// Config returns config.json. dtype is transformers' name of the tensors' type.
func Config(c *settings.Model, dtype string) (map[string]any, error) {
	kind := c.Type()
	config := map[string]any{"model_type": kind.Name, "architectures": []string{kind.Class}, "dtype": dtype,
		"torch_dtype": dtype}
	maps.Copy(config, map[string]any(c.Values))
	delete(config, "rope_parameters")
	if !c.Family.Lacks("rope_parameters") {
		if err := ropeHF(c, config); err != nil {
			return nil, err
		}
	}
	for _, key := range kind.Lacks {
		if config[key] == true {
			return nil,
				fmt.Errorf("a model of type %s has a window and biases, which no model class of transformers has",
					c.Arch)
		}
		delete(config, key)
	}
	if _, assumed := kind.Defaults["sliding_window"]; c.Values.Int("sliding_window") == 0 &&
		(assumed && c.Family.Periodic() || kind.Window == family.Everywhere) { // the library may assume a window
		config["sliding_window"] = nil
	}
	switch kind.Window {
	case family.NoWindow, family.Everywhere:
		delete(config, "layer_types")
	case family.FromLayer:
		config["use_sliding_window"] = false
	}
	for key := range c.Family.Numbers {
		delete(config, key)
	}
	if n := c.Padding(); n > 0 {
		config["max_position_embeddings"] = c.Values.Int("max_position_embeddings") + n
	}
	if c.Family.ToConfig != nil {
		c.Family.ToConfig(config)
	}
	for _, key := range c.Family.Without {
		delete(config, key)
	}
	if next := c.Family.NextKey(); c.Values.Int(next) == 0 {
		delete(config, next)
	}
	for key, own := range c.Family.Spelling {
		if v, ok := config[key]; ok {
			delete(config, key)
			config[own[0]] = v
		}
	}
	return config, nil
}

// ropeHF spells rotary settings as most versions of transformers do: rope_theta with rope_scaling, or rope_parameters
// by kind of layer.
func ropeHF(c *settings.Model, config map[string]any) error {
	params := c.RopeParameters()
	f, _ := family.Object(params[family.FullAttention])
	s, _ := family.Object(params[family.SlidingAttention])
	f, s = maps.Clone(f), maps.Clone(s)
	if f["rope_type"] == "factors" {
		p, err := bands(f)
		if err != nil {
			return err
		}
		f = p
	}
	theta := f["rope_theta"]
	if c.Family.Rope.ByKind {
		for _, p := range []map[string]any{f, s} {
			if p["rope_type"] == nil {
				p["rope_type"] = "default"
			}
		}
		config["rope_parameters"] = map[string]any{family.FullAttention: f, family.SlidingAttention: s}
		return nil
	}
	config["rope_theta"] = theta
	if local := c.Family.Rope.Local; local != "" {
		config[local] = s["rope_theta"]
	}
	if c.Family.Rope.OneBase && s["rope_theta"] != theta {
		return fmt.Errorf("rope.freq_base_swa is %v and rope.freq_base %v: config.json has one base",
			family.Show(s["rope_theta"]), family.Show(theta))
	}
	delete(f, "rope_theta")
	if c.Family.Partial() {
		part, _ := f["partial_rotary_factor"].(float64)
		config["partial_rotary_factor"] = cmp.Or(part, 1)
		delete(f, "partial_rotary_factor")
	}
	for _, key := range c.Family.Rope.With {
		if v := config[key]; !settings.Neutral(v) {
			f[key] = v
			if f["rope_type"] == nil {
				f["rope_type"] = "default"
			}
		}
		delete(config, key)
	}
	if f["rope_type"] != nil {
		config["rope_scaling"] = f
	}
	return nil
}

// bands finds the settings behind the divisors of rope_freqs.
func bands(f map[string]any) (map[string]any, error) {
	list, _ := f["factors"].([]any)
	factors := make([]float32, len(list))
	for i, v := range list {
		n, _ := v.(float64)
		factors[i] = float32(n)
	}
	theta, _ := f["rope_theta"].(float64)
	p, ok := rope.BandsFrom(theta, factors)
	if !ok {
		return nil, fmt.Errorf("tensor rope_freqs: its divisors %v are no published rope_type llama3, and "+
			"config.json has no key for them",
			strings.TrimSuffix(fmt.Sprint(slices.Compact(factors[:min(len(factors), 16)])), "]")+" ...]")
	}
	f = maps.Clone(f)
	delete(f, "factors")
	maps.Copy(f, map[string]any{"rope_type": p.Type, "factor": p.Factor, "low_freq_factor": p.Low,
		"high_freq_factor": p.High, "original_max_position_embeddings": p.Context})
	return f, nil
}

// Describe adds the recommendation under generation_config.json's keys.
func Describe(g settings.Generation, to map[string]any) {
	if g.Sample {
		to["do_sample"] = true
	}
	for key, v := range map[string]float64{"temperature": g.Temperature, "top_k": float64(g.TopK), "top_p": g.TopP,
		"min_p": g.MinP, "repetition_penalty": g.Repeat} {
		if v != 0 {
			to[key] = v
		}
	}
}

// Marshal returns v as JSON for people, without the escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}
