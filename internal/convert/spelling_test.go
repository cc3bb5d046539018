package convert_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/check"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

type config = map[string]any

// configured copies a model's folder and changes its configuration.
func configured(t *testing.T, name string, edit func(config) config) string {
	t.Helper()
	return spoil(t, name, "config.json", func(b []byte) []byte {
		var c config
		err := json.Unmarshal(b, &c)
		if err == nil {
			b, err = json.Marshal(edit(c))
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

func with(more config) func(config) config {
	return func(c config) config { maps.Copy(c, more); return c }
}

// TestPublishedSettings spells configurations as published files do, with all that
// they hold besides: the GGUF file is the same.
func TestPublishedSettings(t *testing.T) {
	multimodal := func(kind string) func(config) config {
		return func(c config) config {
			return config{"model_type": kind, "architectures": []string{"AForConditionalGeneration"}, "text_config": c, "vision_config": config{"hidden_size": 1152},
				"image_token_index": 262144, "boi_token_index": 255999, "mm_tokens_per_image": 256, "bos_token_id": 2, "eos_token_id": []int{1, 6}, "pad_token_id": 0, "initializer_range": 0.02}
		}
	}
	for name, c := range map[string]struct {
		model string
		edit  func(config) config
	}{
		"Llama 2": {"tiny-llama", with(config{"_name_or_path": "meta-llama/Llama-2-7b-hf", "pad_token_id": nil, "pretraining_tp": 1, "torch_dtype": "float16", "use_cache": true})},
		"SmolLM":  {"tiny-llama", with(config{"is_llama_config": true, "rope_interleaved": false, "transformers.js_config": config{"dtype": "q4"}})},
		"a tune":  {"tiny-llama", with(config{"unsloth_fixed": true, "unsloth_version": "2025.1", "bos_token_id": 2040})},
		"all that transformers 4 writes": {"tiny-llama", with(config{"length_penalty": 1.0, "max_length": 20, "num_beams": 1, "top_k": 50, "top_p": 1.0, "temperature": 1.0, "typical_p": 1.0,
			"return_dict": true, "id2label": config{"0": "LABEL_0"}, "label2id": config{"LABEL_0": 0}, "num_return_sequences": 1, "chunk_size_feed_forward": 0})},
		"Qwen 2.5":            {"tiny-qwen2", with(config{"use_mrope": false, "max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": false})},
		"Gemma 3 1B":          {"tiny-gemma3", with(config{"cache_implementation": "hybrid", "sliding_window_pattern": 3, "layer_types": nil})},
		"Gemma 3, multimodal": {"tiny-gemma3", multimodal("gemma3")},
		"Gemma 4, multimodal": {"tiny-gemma4", multimodal("gemma4")},
		"Gemma 4, older": {"tiny-gemma4-moe", func(c config) config {
			delete(c, "per_layer_config")
			return with(config{"global_head_dim": 64, "num_global_key_value_heads": 1})(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path, plain := out(t), out(t)
			run(t, golden.Model(t, c.model), plain, convert.Options{})
			run(t, configured(t, c.model, c.edit), path, convert.Options{})
			if got, want := read(t, path), read(t, plain); !reflect.DeepEqual(got, want) {
				for key, v := range got.Metadata {
					if want.Metadata[key] != v {
						t.Errorf("key %s: %s, want %s", key, v, want.Metadata[key])
					}
				}
				if !reflect.DeepEqual(got.Tensors, want.Tensors) {
					t.Error("the tensors differ")
				}
			}
		})
	}
}

// TestFilled takes a folder with fewer rows in the table of layers than tokens, as published ones of Gemma 3n, to a GGUF
// file, which has rows of zeros behind, as llama.cpp's, and back.
func TestFilled(t *testing.T) {
	const rows, all = 2032, 2048
	src := configured(t, "gemma3n", with(config{"vocab_size_per_layer_input": rows}))
	own := slices.Collect(maps.Values(folder(t, src)))
	for i, x := range own {
		if x.Name == "model.embed_tokens_per_layer.weight" {
			own[i].Shape, own[i].Data = tensor.Shape{rows, x.Shape[1]}, bytes.Clone(x.Data[:len(x.Data)/all*rows])
		} else {
			own[i].Data = bytes.Clone(x.Data)
		}
	}
	if err := safetensors.WriteFile(filepath.Join(src, "model.safetensors"), own, nil); err != nil {
		t.Fatal(err)
	}
	file, back := filepath.Join(t.TempDir(), "model.gguf"), filepath.Join(t.TempDir(), "back")
	run(t, src, file, convert.Options{})
	run(t, file, back, convert.Options{})
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors() {
		if x.Name == "per_layer_token_embd.weight" && (x.Shape[0] != all ||
			bytes.ContainsFunc(x.Data[len(x.Data)/all*rows:], func(r rune) bool { return r != 0 })) {
			t.Errorf("%v, or the rows behind are not of zeros", x.Shape)
		}
	}
	r := golden.Record(t, "gemma3n")
	want, _ := logits(t, golden.Model(t, "gemma3n"), r)
	for _, path := range []string{src, file, back} {
		if got, _ := logits(t, path, r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other logits", filepath.Base(path))
		}
	}
	report, err := check.Run(t.Context(), file, check.Options{Against: src})
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("%v, %v", report.Findings, err)
	}
}

// TestWithoutBase takes a model whose config.json has null for a base, so that nothing turns, to GGUF and back.
func TestWithoutBase(t *testing.T) {
	src := configured(t, "olmohybrid", with(config{"rope_parameters": config{"rope_theta": nil}}))
	file, back := filepath.Join(t.TempDir(), "model.gguf"), filepath.Join(t.TempDir(), "back")
	run(t, src, file, convert.Options{})
	run(t, file, back, convert.Options{})
	b, err := os.ReadFile(filepath.Join(back, "config.json"))
	var c config
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if _, top := c["rope_theta"]; err != nil || top || !reflect.DeepEqual(c["rope_parameters"], config{"rope_theta": nil}) {
		t.Errorf("rope_parameters %v, %v", c["rope_parameters"], err)
	}
	r := golden.Record(t, "olmohybrid")
	turned, _ := logits(t, golden.Model(t, "olmohybrid"), r)
	want, _ := logits(t, src, r)
	if distance(want[0], turned[0]) < 1e-3 {
		t.Error("the base of null changes nothing")
	}
	for _, path := range []string{file, back} {
		if got, _ := logits(t, path, r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other logits", filepath.Base(path))
		}
	}
}

// TestMistral keeps a window, which llama.cpp's converter loses, and the kind of
// model that has one.
func TestMistral(t *testing.T) {
	src := configured(t, "tiny-llama", with(config{"model_type": "mistral", "sliding_window": 4}))
	file, back := filepath.Join(t.TempDir(), "m.gguf"), filepath.Join(t.TempDir(), "back")
	run(t, src, file, convert.Options{})
	if got := read(t, file).Metadata["llama.attention.sliding_window"]; got != "uint32 4" {
		t.Errorf("the window is %q", got)
	}
	run(t, file, back, convert.Options{})
	b, err := os.ReadFile(filepath.Join(back, "config.json"))
	var c config
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c["model_type"] != "mistral" || c["sliding_window"] != 4. {
		t.Errorf("%v: %s", err, b)
	}
	r := golden.Record(t, "tiny-llama")
	here, _ := logits(t, src, r)
	there, _ := logits(t, back, r)
	plain, _ := logits(t, golden.Model(t, "tiny-llama"), r)
	moved := 0.
	for i := range here {
		if d := distance(here[i], there[i]); d > 0 {
			t.Errorf("prompt %d: logits are %g off", i, d)
		}
		moved = max(moved, distance(here[i], plain[i]))
	}
	if moved < 0.1 {
		t.Errorf("the window moves logits by %g", moved)
	}
}

// TestEndOfTurn keeps ids that end a turn and are not known by their names.
func TestEndOfTurn(t *testing.T) {
	src := spoil(t, "tiny-qwen3", "generation_config.json", func([]byte) []byte {
		return []byte(`{"eos_token_id": [2047, 7, 9], "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.5}`)
	})
	file, back := filepath.Join(t.TempDir(), "m.gguf"), filepath.Join(t.TempDir(), "back")
	run(t, src, file, convert.Options{})
	run(t, file, back, convert.Options{})
	b, err := os.ReadFile(filepath.Join(back, "generation_config.json"))
	var c config
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	want := config{"eos_token_id": []any{7., 9., 2045., 2047.}, "pad_token_id": 2045., "do_sample": true, "temperature": 0.6, "top_k": 20., "top_p": 0.95, "repetition_penalty": 1.5}
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("%v: %s, want %v", err, b, want)
	}
}
