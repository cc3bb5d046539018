package karat_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// withMLPs copies Nemotron-H's golden, whose logits PyTorch recorded, with routed experts that give nothing; dense makes
// a model with MLPs of it, of the same answers: the experts for all tokens become MLPs.
func withMLPs(t *testing.T, dense bool) string {
	t.Helper()
	from, to := golden.Model(t, "nemotronh"), t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	experts := 0
	for i, x := range f.Tensors {
		if strings.Contains(x.Name, ".experts") && strings.Contains(x.Name, "down_proj") {
			f.Tensors[i].Data = make([]byte, len(x.Data))
			experts++
		}
		if dense {
			f.Tensors[i].Name = strings.Replace(x.Name, ".mixer.shared_experts.", ".mixer.", 1)
		}
	}
	if experts == 0 {
		t.Fatal("no experts")
	}
	if dense {
		f.Tensors = slices.DeleteFunc(f.Tensors, func(x tensor.Tensor) bool {
			return strings.Contains(x.Name, ".mixer.experts") || strings.Contains(x.Name, ".mixer.gate.")
		})
		rewrite(t, filepath.Join(to, "config.json"), func(c map[string]any) {
			c["intermediate_size"] = c["moe_shared_expert_intermediate_size"]
			c["hybrid_override_pattern"] = strings.ReplaceAll(c["hybrid_override_pattern"].(string), "E", "-")
			for key := range c {
				if strings.Contains(key, "moe") || strings.Contains(key, "expert") || strings.Contains(key, "topk") || strings.HasPrefix(key, "mtp") ||
					key == "n_group" || key == "routed_scaling_factor" || key == "layers_block_type" {
					delete(c, key)
				}
			}
		})
	}
	if err := safetensors.WriteFile(filepath.Join(to, "model.safetensors"), f.Tensors, nil); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestMLPLayers compares logits of both models, bit for bit: of the folder, of its GGUF file, and of the folder of the file.
func TestMLPLayers(t *testing.T) {
	dense := withMLPs(t, true)
	file, back := filepath.Join(t.TempDir(), "dense.gguf"), filepath.Join(t.TempDir(), "back")
	for _, c := range [][2]string{{dense, file}, {file, back}} {
		if _, err := karat.Convert(t.Context(), c[0], c[1], karat.ConvertOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ids := []int{504, 7, 90, 311, 12, 12, 255, 8}
	want, err := open(t, withMLPs(t, false), karat.Options{}).Logits(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dense, file, back} {
		m := open(t, path, karat.Options{})
		got, err := m.Logits(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		if a := m.Info().Architecture; a != "nemotron_h" {
			t.Errorf("%s: architecture %s", filepath.Base(path), a)
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("%s: token %d: other logits", filepath.Base(path), i)
			}
		}
		if report, err := karat.Check(t.Context(), path, karat.CheckOptions{}); err != nil || !report.Clean() {
			t.Errorf("%s: %+v, %v", filepath.Base(path), report, err)
		}
	}
}
