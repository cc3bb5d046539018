package hf

import (
	"encoding/json"
	"errors"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/registry"
)

// towerSpelling are other names of a tower's settings.
var towerSpelling = map[string]string{
	"num_heads": "num_attention_heads", "depth": "num_hidden_layers", "hidden_activation": "hidden_act",
	"rms_norm_eps": "layer_norm_eps", "scale_factor": "spatial_merge_size", "downsample_factor": "spatial_merge_size",
	"pooling_kernel_size": "spatial_merge_size",
}

// outer are the settings of a tower outside the part for pictures.
var outer = []string{"spatial_merge_size", "scale_factor", "downsample_factor", "mm_tokens_per_image",
	"vision_feature_layer", "multimodal_projector_bias", "projector_hidden_size", "projector_hidden_act",
	"projector_use_layernorm", "projector_bias"}

// towerLimits bound the sizes of a tower.
var towerLimits = []family.Limit{
	{Key: "num_hidden_layers", Min: 1, Max: family.MaxLayers, Rule: family.Required | family.Whole},
	{Key: "hidden_size", Min: 1, Max: 1 << 17, Rule: family.Required | family.Whole},
	{Key: "intermediate_size", Min: 1, Max: 1 << 20, Rule: family.Required | family.Whole},
	{Key: "num_attention_heads", Min: 1, Max: 1 << 12, Rule: family.Required | family.Whole},
	{Key: "out_hidden_size", Min: 1, Max: 1 << 17, Rule: family.Required | family.Whole},
	{Key: "patch_size", Min: 1, Max: 1 << 10, Rule: family.Required | family.Whole},
	{Key: "temporal_patch_size", Min: 2, Max: 2, Rule: family.Whole},
	{Key: "num_channels", Min: 3, Max: 3, Rule: family.Whole},
	{Key: "in_channels", Min: 3, Max: 3, Rule: family.Whole},
	{Key: "spatial_merge_size", Min: 1, Max: 16, Rule: family.Whole},
	{Key: "image_size", Min: 1, Max: 1 << 16, Rule: family.Whole},
	{Key: "window_size", Min: 1, Max: 1 << 16, Rule: family.Whole},
	{Key: "head_dim", Min: 1, Max: 1 << 14, Rule: family.Whole},
	{Key: "num_key_value_heads", Min: 1, Max: 1 << 12, Rule: family.Whole},
	{Key: "rope_theta", Min: 1, Max: 1e12},
	{Key: "layer_norm_eps", Min: 0, Max: 1},
	{Key: "text_rms_norm_eps", Min: 0, Max: 1},
	{Key: "num_patches", Min: 1, Max: 1 << 20, Rule: family.Whole},
	{Key: "num_position_embeddings", Min: 1, Max: 1 << 20, Rule: family.Whole},
	{Key: "position_embedding_size", Min: 1, Max: 1 << 16, Rule: family.Whole},
	{Key: "mm_tokens_per_image", Min: 1, Max: 1 << 16, Rule: family.Whole},
	{Key: "projector_hidden_size", Min: 1, Max: 1 << 20, Rule: family.Whole},
}

// Tower returns the tower of a config.json, and its settings; nil for models that see nothing.
func Tower(path string, config []byte) (*family.Tower, *settings.Model, error) {
	var kind struct {
		Type   string          `json:"model_type"`
		Vision json.RawMessage `json:"vision_config"`
	}
	if err := json.Unmarshal(config, &kind); err != nil {
		return nil, nil, jsonerr.Plain(err, "")
	}
	t := registry.TowerOf(kind.Type)
	if t == nil || kind.Vision == nil {
		return nil, nil, nil
	}
	var whole, vision, text family.Settings
	if err := json.Unmarshal(config, &whole); err != nil {
		return nil, nil, jsonerr.Plain(err, "")
	}
	vision, _ = family.Object(whole["vision_config"])
	if text, _ = family.Object(whole["text_config"]); text == nil { // older files have its settings beside
		text = whole
	}
	m := settings.New(path)
	m.Arch = t.Name
	fill := func(key string, v any) {
		if other, ok := towerSpelling[key]; ok {
			m.Spelling[other] = key
			key = other
		}
		m.Values.Fill(key, v)
	}
	for key, v := range vision {
		if _, nested := family.Object(v); !nested {
			fill(key, v)
		}
	}
	if rope, ok := family.Object(vision["rope_parameters"]); ok {
		fill("rope_theta", rope["rope_theta"])
	}
	for _, key := range outer {
		fill(key, whole[key])
	}
	fill("out_hidden_size", text["hidden_size"])
	fill("text_rms_norm_eps", text["rms_norm_eps"])
	return t, m, CheckTower(t, m)
}

// CheckTower fills in the defaults of a tower's settings, and returns an error for numbers out of bounds.
func CheckTower(t *family.Tower, m *settings.Model) error {
	for key, v := range t.Defaults {
		m.Values.Fill(key, v)
	}
	var errs []error
	for _, l := range towerLimits {
		if what := settings.Violates(l, m.Values[l.Key]); what != "" {
			errs = append(errs, m.Bad(l.Key, "%s", what))
		}
	}
	return errors.Join(errs...)
}
