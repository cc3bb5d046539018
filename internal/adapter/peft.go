package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/safetensors"
)

// Bounds of adapter_config.json. PEFT writes about a KiB, and patterns for some modules.
const (
	maxConfig   = 1 << 20
	maxPatterns = 4096
)

// openPEFT opens a folder written by PEFT's save_pretrained.
//
// Source: peft, tuners/lora/config.py, tuners/lora/layer.py (update_layer) and utils/save_and_load.py.
func openPEFT(dir string) (*File, error) {
	if err := hf.CheckLinks(dir); err != nil {
		return nil, err
	}
	text, err := readConfig(filepath.Join(dir, "adapter_config.json"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "adapter_model.safetensors")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("adapter_model.safetensors is missing (a pickle, adapter_model.bin, is never opened: " +
			"its reading runs code)")
	}
	tensors, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := fromPEFT(text, tensors)
	if err != nil {
		return nil, errors.Join(err, tensors.Close())
	}
	f.close = append(f.close, tensors)
	return f, nil
}

func readConfig(path string) ([]byte, error) {
	b, err := mmap.ReadFile(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil,
			errors.New("no adapter: adapter_config.json is missing (PEFT writes it beside adapter_model.safetensors)")
	}
	return b, err
}

func fromPEFT(config []byte, tensors *safetensors.File) (*File, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("adapter_config.json: %w", err)
	}
	f := &File{format: checkpoint.HuggingFace, scale: c.scale}
	f.pairs, err = joinPairs(tensors.Tensors, func(name string) (string, bool, error) {
		module, isA, err := halfPEFT(name)
		if err == nil && !c.targets(module) {
			err = errors.New("its module is none of adapter_config.json's target_modules")
		} else if err == nil && !c.transforms(module) {
			err = errors.New("its layer is none of adapter_config.json's layers_to_transform")
		}
		return module, isA, err
	})
	return f, err
}

// halfPEFT reads a tensor's name, as base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight.
func halfPEFT(name string) (module string, isA bool, err error) {
	for _, k := range []struct{ part, what string }{
		{".lora_magnitude_vector", "DoRA"}, {".lora_embedding_", "a pair for embeddings"},
		{".modules_to_save.", "a layer of the adapter's own"}, {".lora_B.bias", "a bias"},
	} {
		if strings.Contains(name, k.part) {
			return "", false, fmt.Errorf("%s is not supported", k.what)
		}
	}
	module, ok := strings.CutPrefix(name, "base_model.model.")
	if ok {
		for _, half := range []string{".lora_A.weight", ".lora_B.weight"} {
			if m, ok := strings.CutSuffix(module, half); ok {
				return m, half == ".lora_A.weight", nil
			}
		}
	}
	return "", false, errors.New("it is no half of a pair (base_model.model.MODULE.lora_A.weight or lora_B.weight), " +
		"and nothing else is supported")
}

// config has the arithmetic of an adapter_config.json.
type config struct {
	Type         string             `json:"peft_type"`
	Rank         int                `json:"r"`
	Alpha        float64            `json:"lora_alpha"`
	RankStable   bool               `json:"use_rslora"` // alpha/√rank (Kalajdzievski 2023, arXiv:2312.03732)
	Bias         string             `json:"bias"`
	Init         any                `json:"init_lora_weights"`
	Modules      any                `json:"target_modules"`
	RankPattern  map[string]float64 `json:"rank_pattern"`
	AlphaPattern map[string]float64 `json:"alpha_pattern"`
	Layers       any                `json:"layers_to_transform"` // a number or a list; nil is all

	ranks, alphas []pattern
}

// pattern is a value for all modules whose names end in its name.
type pattern struct {
	name  string
	whole bool // the name is all of the module's
	value float64
}

// matches implements get_pattern_key of peft/utils/other.py, except for expressions beyond plain names.
func (p *pattern) matches(module string) bool {
	return module == p.name || !p.whole && strings.HasSuffix(module, "."+p.name)
}

// read lists the keys of config; idle lists keys without an effect on the forward pass: fan_in_fan_out describes the
// base's weight, and A and B are the same either way.
var (
	read = settings.Words(`peft_type r lora_alpha use_rslora bias init_lora_weights target_modules rank_pattern
		alpha_pattern layers_to_transform`)
	idle = settings.Words(`task_type inference_mode auto_mapping base_model_name_or_path revision peft_version
		fan_in_fan_out lora_dropout exclude_modules layers_pattern megatron_core megatron_config runtime_config
		ensure_weight_tying loftq_config eva_config corda_config lora_ga_config qalora_group_size`)
)

// parseConfig reads an adapter_config.json. An unknown setting that is switched on is an error.
func parseConfig(text []byte) (*config, error) {
	c := &config{Rank: 8, Alpha: 8, Bias: "none", Init: true} // PEFT's defaults
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, jsonerr.Plain(err, "")
	}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, jsonerr.Plain(err, "")
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		for own := range read { // encoding/json would accept other cases of the key
			if key != own && strings.EqualFold(key, own) {
				return nil, fmt.Errorf("key %s is not spelled %s", key, own)
			}
		}
		if !read[key] && !idle[key] && !settings.Neutral(all[key]) {
			return nil, fmt.Errorf("key %s is %.80s: not supported", key, fmt.Sprint(all[key]))
		}
	}
	initial, named := c.Init.(string)
	switch {
	case c.Type != "LORA":
		return nil, fmt.Errorf("key peft_type is %q, want \"LORA\"", c.Type)
	case c.Bias != "none":
		return nil, fmt.Errorf("key bias is %q: biases of an adapter's own are not supported", c.Bias)
	case named && !slices.Contains([]string{"gaussian", "eva", "orthogonal"}, initial):
		return nil,
			fmt.Errorf("key init_lora_weights is %q: it changes the base model's weights, which is not supported",
				initial)
	}
	var err error
	if c.ranks, err = patterns(c.RankPattern); err != nil {
		return nil, fmt.Errorf("key rank_pattern: %w", err)
	}
	if c.alphas, err = patterns(c.AlphaPattern); err != nil {
		return nil, fmt.Errorf("key alpha_pattern: %w", err)
	}
	return c, nil
}

// patterns checks the names of values for some modules.
func patterns(values map[string]float64) (list []pattern, err error) {
	if len(values) > maxPatterns {
		return nil, fmt.Errorf("%d names, at most %d are allowed", len(values), maxPatterns)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		p := pattern{value: values[name]}
		p.name, p.whole = strings.CutPrefix(strings.ReplaceAll(name, `\.`, "."), "^")
		if p.name == "" || strings.ContainsAny(p.name, `\*+?|()[]{}^$`) {
			return nil, fmt.Errorf("%.80q: an expression is not supported, but a module's name or its end", name)
		}
		list = append(list, p)
	}
	return list, nil
}

// valueOf returns the value of the patterns that match a module's name, or other. Where several match, PEFT takes the
// first; here they must agree.
func valueOf(list []pattern, module string, other float64) (float64, error) {
	var found *pattern
	for i := range list {
		p := &list[i]
		if !p.matches(module) {
			continue
		}
		if found != nil && found.value != p.value {
			return 0,
				fmt.Errorf("adapter_config.json's patterns %q and %q have different values for it", found.name, p.name)
		}
		found, other = p, p.value
	}
	return other, nil
}

// scale returns the scale of a module's pair. The file and the configuration must agree on the rank.
func (c *config) scale(module string, rank int) (float64, error) {
	want, err := valueOf(c.ranks, module, float64(c.Rank))
	if err != nil {
		return 0, err
	}
	if want != float64(rank) {
		return 0, fmt.Errorf("rank %d, adapter_config.json says %v", rank, want)
	}
	alpha, err := valueOf(c.alphas, module, c.Alpha)
	if err != nil {
		return 0, err
	}
	if c.RankStable {
		return alpha / math.Sqrt(float64(rank)), nil
	}
	return alpha / float64(rank), nil
}

// targets reports whether module is among the target_modules, as far as these are a list.
func (c *config) targets(module string) bool {
	list, ok := c.Modules.([]any)
	return !ok || slices.ContainsFunc(list, func(v any) bool {
		name, ok := v.(string)
		return ok && (module == name || strings.HasSuffix(module, "."+name))
	})
}

// transforms reports whether module's layer is among the layers_to_transform. The layer of a module is its first
// number, as in model.layers.0.self_attn.q_proj.
func (c *config) transforms(module string) bool {
	list, ok := c.Layers.([]any)
	if one, is := c.Layers.(float64); is {
		list, ok = []any{one}, true
	}
	if !ok || len(list) == 0 {
		return true
	}
	for part := range strings.SplitSeq(module, ".") {
		if layer, err := strconv.Atoi(part); err == nil {
			return slices.Contains(list, any(float64(layer)))
		}
	}
	return false
}
