package arch_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/registry"
)

// FuzzTower lays any object over the part for pictures in a config.json of every kind.
func FuzzTower(f *testing.F) {
	f.Add([]byte(`{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 112, "patch_size": 14}`))
	f.Add([]byte(`{"deepstack_visual_indexes": [0, 1], "depth": 2, "num_heads": 4, "hidden_size": 64, "rope_parameters": {"rope_theta": 1e4}}`))
	f.Add([]byte(`{"use_clipped_linears": true, "standardize": true, "head_dim": 16, "pooling_kernel_size": 3}`))
	f.Fuzz(func(t *testing.T, vision []byte) {
		if !json.Valid(vision) {
			return
		}
		for _, kind := range registry.Towers {
			config := fmt.Appendf(nil, `{"model_type": %q, "text_config": {"hidden_size": 96}, "vision_config": %s}`, kind.Types[0], vision)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x, err := checkpoint.ConfiguredTower(config)
			if err == nil && x != nil {
				_, _, err = arch.Tower(x)
			}
			if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 128<<20 {
				t.Errorf("%s: %d bytes: %v", kind.Name, after.TotalAlloc-before.TotalAlloc, err)
			}
		}
	})
}

// TestTowerErrors wants the setting in the error.
func TestTowerErrors(t *testing.T) {
	for change, want := range map[string]string{
		`"model_type": "qwen3_vl", "vision_config": {"patch_size": 0}`:                           "patch_size",
		`"model_type": "qwen3_vl", "vision_config": {"depth": 1e9}`:                              "depth is",
		`"model_type": "qwen3_vl", "vision_config": {"in_channels": 4}`:                          "in_channels",
		`"model_type": "qwen3_vl", "vision_config": {"deepstack_visual_indexes": [1, 1]}`:        "deepstack_visual_indexes",
		`"model_type": "qwen3_vl", "vision_config": {"hidden_act": "quick_gelu"}`:                "quick_gelu",
		`"model_type": "qwen2_5_vl", "vision_config": {"window_size": 7}`:                        "window_size",
		`"model_type": "gemma3", "mm_tokens_per_image": 7, "vision_config": {}`:                  "mm_tokens_per_image",
		`"model_type": "gemma4", "vision_config": {"head_dim": 6}`:                               "head_dim",
		`"model_type": "mistral3", "vision_feature_layer": -2, "vision_config": {}`:              "vision_feature_layer",
		`"model_type": "lfm2_vl", "vision_config": {"num_patches": 7, "hidden_act": "gelu"}`:     "there are no places",
		`"model_type": "smolvlm", "vision_config": {"num_attention_heads": 5}, "scale_factor":2`: "number of heads",
		`"model_type": "smolvlm", "vision_config": {}`:                                           "missing",
	} {
		x, err := checkpoint.ConfiguredTower([]byte(`{"text_config": {"hidden_size": 96}, ` + change + `}`))
		if err == nil {
			_, _, err = arch.Tower(x)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
	if x, err := checkpoint.ConfiguredTower([]byte(`{"model_type": "llama"}`)); x != nil || err != nil {
		t.Errorf("a model that sees nothing: %v, %v", x, err)
	}
}
