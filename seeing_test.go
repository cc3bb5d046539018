package karat_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestSeeing takes a model of text for the part for text of a model with eyes: the logits are the same, bit for bit, in the
// folder, in its GGUF file, and in the folder of the file, which is one of text.
func TestSeeing(t *testing.T) {
	ids := []int{7, 90, 311, 12, 12, 255, 8}
	for _, c := range []struct{ model, kind, arch, text string }{
		{"tiny-qwen2", "qwen2_vl", "qwen2vl", "qwen2"}, {"tiny-qwen2", "qwen2_5_vl", "qwen2vl", "qwen2"},
		{"tiny-qwen3", "qwen3_vl_text", "qwen3vl", "qwen3"}, {"qwen3moe", "qwen3_vl_moe_text", "qwen3vlmoe", "qwen3moe"},
	} {
		from := golden.Model(t, c.model)
		want, err := open(t, from, karat.Options{}).Logits(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		folder := pad(t, from, 0, nil)
		rewrite(t, filepath.Join(folder, "config.json"), func(m map[string]any) {
			m["model_type"] = c.kind
			delete(m, "architectures")
			dim, ok := m["head_dim"].(float64)
			if !ok {
				dim = m["hidden_size"].(float64) / m["num_attention_heads"].(float64)
			}
			part := int(dim) / 8
			scaling := map[string]any{"type": "mrope", "mrope_section": []int{int(dim)/2 - 2*part, part, part},
				"mrope_interleaved": true}
			if p, ok := m["rope_parameters"].(map[string]any); ok {
				p["mrope_section"] = scaling["mrope_section"]
			} else {
				m["rope_scaling"] = scaling
			}
		})
		file, back := filepath.Join(t.TempDir(), "seeing.gguf"), filepath.Join(t.TempDir(), "back")
		for _, c := range [][2]string{{folder, file}, {file, back}} {
			if _, err := karat.Convert(t.Context(), c[0], c[1], karat.ConvertOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for path, arch := range map[string]string{folder: c.arch, file: c.arch, back: c.text} {
			m := open(t, path, karat.Options{})
			got, err := m.Logits(t.Context(), ids)
			if err != nil {
				t.Fatal(err)
			}
			if a := m.Info().Architecture; a != arch {
				t.Errorf("%s: architecture %s, want %s", filepath.Base(path), a, arch)
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("%s, %s: token %d: other logits", c.kind, filepath.Base(path), i)
				}
			}
			if report, err := karat.Check(t.Context(), path, karat.CheckOptions{}); err != nil || !report.Clean() {
				t.Errorf("%s, %s: %+v, %v", c.kind, filepath.Base(path), report, err)
			}
		}
	}
}
