package hub

import (
	"strings"
	"testing"
)

// TestFindWeights finds the weights of folders under the usual names first, and under another where there is one alone.
func TestFindWeights(t *testing.T) {
	for files, want := range map[string]string{
		"model.safetensors":                                                "model.safetensors",
		"a.safetensors model.safetensors":                                  "model.safetensors",
		"a.safetensors model.safetensors.index.json b.safetensors":         "model.safetensors.index.json",
		"model.safetensors.index.json model.safetensors":                   "model.safetensors",
		"config.json gptq_model-4bit-128g.safetensors adapter.safetensors": "gptq_model-4bit-128g.safetensors",
		"a.safetensors b.safetensors":                                      "",
		"a.safetensors b.gguf":                                             "",
		"model.safetensors b.gguf":                                         "model.safetensors",
		"1_Dense/model.safetensors adapter_model.safetensors":              "",
	} {
		var list []entry
		for _, f := range strings.Fields(files) {
			list = append(list, entry{Path: f})
		}
		if got := findWeights(list); got != want {
			t.Errorf("%s: %q, want %q", files, got, want)
		}
	}
}
