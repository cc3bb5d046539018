package karat_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// TestUnified reads the text of a model whose pictures need no tower, with the settings that the library writes: it is the
// model of text with the same weights.
func TestUnified(t *testing.T) {
	dirs := map[string]string{"text": pad(t, golden.Model(t, "tiny-gemma4-moe"), 0, nil)}
	dirs["unified"] = pad(t, dirs["text"], 0, nil)
	for kind, dir := range dirs {
		f, err := safetensors.Open(filepath.Join(golden.Model(t, "tiny-gemma4-moe"), "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var all []tensor.Tensor
		for _, x := range f.Tensors {
			if strings.Contains(x.Name, "router") || strings.Contains(x.Name, "experts") || strings.Contains(x.Name, "layernorm_") {
				continue // of experts, which the other lacks
			}
			if kind == "unified" {
				x.Name = "model.language_model." + strings.TrimPrefix(x.Name, "model.")
			}
			all = append(all, x)
		}
		if kind == "unified" {
			for _, name := range []string{"embed_vision.patch_dense.weight", "vision_embedder.patch_ln1.weight", "embed_audio.embedding_projection.weight"} {
				all = append(all, tensor.Tensor{Name: "model." + name, DType: tensor.F32, Shape: tensor.Shape{2}, Data: make([]byte, 8)})
			}
		}
		if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), all, nil); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(dir, "config.json"), func(m map[string]any) {
			m["enable_moe_block"] = false
			if kind != "unified" {
				return
			}
			for _, key := range []string{"enable_moe_block", "num_experts", "top_k_experts", "moe_intermediate_size", "architectures",
				"hidden_size_per_layer_input", "vocab_size_per_layer_input"} {
				delete(m, key)
			}
			text := map[string]any{}
			for key, v := range m {
				text[key] = v
				delete(m, key)
			}
			text["model_type"], text["use_bidirectional_attention"] = "gemma4_unified_text", "vision"
			m["model_type"], m["text_config"], m["vision_config"] = "gemma4_unified", text, map[string]any{"mm_embed_dim": 256}
			m["architectures"] = []string{"Gemma4UnifiedForConditionalGeneration"}
		})
	}
	ids := []int{2, 90, 311, 12, 12, 255, 8}
	want, err := open(t, dirs["text"], karat.Options{}).Logits(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dirs["unified"], karat.Options{}).Logits(t.Context(), ids)
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("other logits, %v", err)
	}
}

// TestSeeing takes a model of text for the part for text of a model with eyes: the logits are the same, bit for bit, in the
// folder, in its GGUF file, and in the folder of the file, which is one of text.
func TestSeeing(t *testing.T) {
	ids := []int{7, 90, 311, 12, 12, 255, 8}
	for _, c := range []struct{ model, kind, arch, text string }{
		{"tiny-qwen2", "qwen2_vl", "qwen2vl", "qwen2"}, {"tiny-qwen2", "qwen2_5_vl", "qwen2vl", "qwen2"},
		{"tiny-qwen3", "qwen3_vl_text", "qwen3vl", "qwen3"}, {"qwen3moe", "qwen3_vl_moe_text", "qwen3vlmoe", "qwen3moe"},
		{"glm4", "glm4v_text", "glm4", "glm4"}, {"glm4moe", "glm4v_moe_text", "glm4moe", "glm4moe"},
		{"exaone4", "exaone4_5", "exaone4", "exaone4"},
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
			if c.kind == "exaone4_5" { // its positions are plain
				text := maps.Clone(m)
				clear(m)
				text["model_type"], text["num_nextn_predict_layers"] = "exaone4_5_text", 1
				m["model_type"], m["text_config"], m["vision_config"] = c.kind, text, map[string]any{"depth": 1}
				return
			}
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

// TestHalves has the rows of heads by halves where llama.cpp does: in the part that turns of a model with sections.
// (Glm4Model.normal_to_neox in conversion/glm.py)
func TestHalves(t *testing.T) {
	from := golden.Model(t, "glm4") // 4 heads of 32, of which 16 turn
	folder, file := pad(t, from, 0, nil), filepath.Join(t.TempDir(), "halves.gguf")
	rewrite(t, filepath.Join(folder, "config.json"), func(m map[string]any) {
		m["model_type"] = "glm4v_text"
		delete(m, "architectures")
		m["rope_parameters"].(map[string]any)["mrope_section"] = []int{2, 3, 3}
	})
	if _, err := karat.Convert(t.Context(), folder, file, karat.ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	row := func(all []tensor.Tensor, name string, i int) []byte {
		t.Helper()
		for _, x := range all {
			if x.Name == name {
				x, err := x.Part(i, i+1)
				if err != nil {
					t.Fatal(err)
				}
				return x.Data
			}
		}
		t.Fatal(name)
		return nil
	}
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 128 {
		want := i
		if k := i % 32; k < 16 {
			want = i - k + k%8*2 + k/8
		}
		if !slices.Equal(row(f.Tensors(), "blk.0.attn_q.weight", i), row(s.Tensors, "model.layers.0.self_attn.q_proj.weight", want)) {
			t.Errorf("row %d is not row %d of the folder", i, want)
		}
	}
	if v, _ := f.Metadata.Lookup("glm4.rope.dimension_sections"); v.Len() != 4 {
		t.Error("the file has no sections")
	}
}
