package arch_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/golden"
)

// TestRefused: settings of families that would change every logit, and that nobody computes.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		model string
		hf    config
		gguf  func(*file)
		want  string
	}{
		{model: "gpt2", hf: config{"scale_attn_weights": false}, want: "key scale_attn_weights is false"},
		{model: "gpt2", hf: config{"scale_attn_by_inverse_layer_idx": true}, want: "scale_attn_by_inverse_layer_idx true"},
		{model: "qwen3moe", hf: config{"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 0}, want: "sliding_window 4"},
		{model: "gemma2", hf: config{"query_pre_attn_scalar": nil}, want: "query_pre_attn_scalar is missing"},
		{model: "tiny-gemma3", hf: config{"query_pre_attn_scalar": nil}, want: "query_pre_attn_scalar is missing"},
		{model: "granite", gguf: key("rope.scaling.finetuned", false), want: "key granite.rope.scaling.finetuned is false"},
	} {
		t.Run(c.model+" "+c.want, func(t *testing.T) {
			path := t.TempDir() // golden folders may be shared: they are not written to
			if err := os.CopyFS(path, os.DirFS(golden.Model(t, c.model))); err != nil {
				t.Fatal(err)
			}
			if c.gguf != nil {
				fails(t, toGGUF(t, path, c.gguf), c.want)
				return
			}
			all := readConfig(t, path)
			maps.Copy(all, c.hf)
			text, err := json.Marshal(all)
			if name := filepath.Join(path, "config.json"); err == nil {
				err = errors.Join(os.Remove(name), os.WriteFile(name, text, 0o666))
			}
			if err != nil {
				t.Fatal(err)
			}
			fails(t, path, c.want)
		})
	}
}
