package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tokenizer"
)

// FolderHF returns the files of a Hugging Face folder that say what a GGUF file
// says of its model besides the tensors, by their names. dtype is transformers'
// name of the tensors' type.
func (c *Checkpoint) FolderHF(dtype string) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	t, err := c.Tokenizer()
	if err != nil {
		return nil, err
	}
	g, _, err := c.text.gguf()
	if err == nil {
		err = c.tokenizerToHF(g, files)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	ids := map[string]any{}
	for name, id := range map[string]*int{"bos": g.BOS, "eos": g.EOS, "pad": g.PAD} {
		if id != nil {
			ids[name+"_token_id"] = *id
		}
	}
	config, err := c.configHF(dtype)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	if err := c.modulesHF(files); err != nil {
		return nil, err
	}
	maps.Copy(config, ids)
	if files["config.json"], err = marshal(config); err != nil {
		return nil, err
	}
	if ends := c.EndOfTurn(t); len(ends) > 0 {
		ids["eos_token_id"] = ends
	}
	c.text.generation.describe(ids)
	files["generation_config.json"], err = marshal(ids)
	return files, err
}

// describe adds the recommendation under generation_config.json's keys.
func (g Generation) describe(to map[string]any) {
	if g.Sample {
		to["do_sample"] = true
	}
	for key, v := range map[string]float64{"temperature": g.Temperature, "top_k": float64(g.TopK), "top_p": g.TopP, "min_p": g.MinP, "repetition_penalty": g.Repeat} {
		if v != 0 {
			to[key] = v
		}
	}
}

// marshal is v as JSON for people, without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

func (c *Checkpoint) tokenizerToHF(g tokenizer.GGUF, files map[string][]byte) error {
	f, err := tokenizer.ToJSON(g)
	if err != nil {
		return err
	}
	files["tokenizer.json"], files["tokenizer_config.json"] = f.JSON, f.Config
	if c.text.template != "" {
		files["chat_template.jinja"] = []byte(c.text.template)
	}
	return nil
}

// configHF is config.json.
func (c *Checkpoint) configHF(dtype string) (map[string]any, error) {
	kind := c.typeHF()
	config := map[string]any{"model_type": kind.Name, "architectures": []string{kind.Class}, "dtype": dtype, "torch_dtype": dtype}
	maps.Copy(config, map[string]any(c.settings))
	delete(config, "rope_parameters")
	if !c.family.Lacks("rope_parameters") {
		if err := c.ropeHF(config); err != nil {
			return nil, err
		}
	}
	for _, key := range kind.Lacks {
		if config[key] == true {
			return nil, fmt.Errorf("a model of type %s has a window and biases, which no model class of transformers has", c.Arch)
		}
		delete(config, key)
	}
	if _, assumed := kind.Defaults["sliding_window"]; c.settings.Int("sliding_window") == 0 &&
		(assumed && c.family.Periodic() || kind.Window == family.Everywhere) { // the library may assume one
		config["sliding_window"] = nil
	}
	switch kind.Window {
	case family.NoWindow, family.Everywhere:
		delete(config, "layer_types")
	case family.FromLayer:
		config["use_sliding_window"] = false
	}
	c.rankHF(config)
	if n := c.padding(); n > 0 {
		config["max_position_embeddings"] = c.settings.Int("max_position_embeddings") + n
	}
	if c.family.ToConfig != nil {
		c.family.ToConfig(config)
	}
	for _, key := range c.family.Without {
		delete(config, key)
	}
	delete(config, c.family.Next())
	for key, own := range c.family.Spelling {
		if v, ok := config[key]; ok {
			delete(config, key)
			config[own[0]] = v
		}
	}
	return config, nil
}

// typeHF is the type of a folder, or the one that a GGUF file is written as: the first of the family that has a window
// if the model has one, experts if it has any, a reranker's head if it is one, and no needs that the model lacks.
func (c *Checkpoint) typeHF() family.Type {
	if c.kind != nil {
		return *c.kind
	}
	for _, t := range c.family.Types {
		if t.Ranks != c.ranks() {
			continue
		}
		window := c.settings.Int("sliding_window") == 0 || t.Window != family.NoWindow
		for key, want := range t.Only {
			window = window && c.settings[key] == want
		}
		experts := c.settings.Int("num_experts") == 0 || !slices.Contains(t.Lacks, "num_experts")
		if lacks := func(key string) bool { return Neutral(c.settings[key]) }; window && experts && !slices.ContainsFunc(t.Needs, lacks) {
			return t
		}
	}
	return c.family.Types[0]
}

// ropeHF spells the rotary settings as most versions of transformers read them:
// rope_theta with rope_scaling, or rope_parameters by kind of layer.
func (c *Checkpoint) ropeHF(config map[string]any) error {
	params := c.ropeParameters()
	f, _ := family.Object(params[full])
	s, _ := family.Object(params[sliding])
	f, s = maps.Clone(f), maps.Clone(s)
	if f["rope_type"] == "factors" {
		p, err := c.llama3(f)
		if err != nil {
			return err
		}
		f = p
	}
	theta := f["rope_theta"]
	if c.family.Rope.ByKind {
		for _, p := range []map[string]any{f, s} {
			if p["rope_type"] == nil {
				p["rope_type"] = "default"
			}
		}
		config["rope_parameters"] = map[string]any{full: f, sliding: s}
		return nil
	}
	config["rope_theta"] = theta
	if local := c.family.Rope.Local; local != "" {
		config[local] = s["rope_theta"]
	}
	if c.family.Rope.Yarn && s["rope_theta"] != theta {
		return fmt.Errorf("rope.freq_base_swa is %v and rope.freq_base %v: config.json has one base", family.Show(s["rope_theta"]), family.Show(theta))
	}
	delete(f, "rope_theta")
	if c.family.Partial() {
		part, _ := f["partial_rotary_factor"].(float64)
		config["partial_rotary_factor"] = cmp.Or(part, 1)
		delete(f, "partial_rotary_factor")
	}
	for _, key := range c.family.Rope.With {
		if v := config[key]; !Neutral(v) {
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

// llama3 finds the settings that the divisors of rope_freqs come from.
func (c *Checkpoint) llama3(f map[string]any) (map[string]any, error) {
	list, _ := f["factors"].([]any)
	factors := make([]float32, len(list))
	for i, v := range list {
		n, _ := v.(float64)
		factors[i] = float32(n)
	}
	theta, _ := f["rope_theta"].(float64)
	p, ok := rope.Llama3From(theta, factors)
	if !ok {
		return nil, fmt.Errorf("tensor rope_freqs: its divisors %v are no published rope_type llama3, and config.json has no key for them",
			strings.TrimSuffix(fmt.Sprint(slices.Compact(factors[:min(len(factors), 16)])), "]")+" ...]")
	}
	return map[string]any{"rope_type": p.Type, "rope_theta": theta, "factor": p.Factor, "low_freq_factor": p.Low, "high_freq_factor": p.High,
		"original_max_position_embeddings": p.Context}, nil
}
