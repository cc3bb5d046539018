package karat_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/safetensors"
)

// pad copies a folder with more rows of the embedding than its tokenizer has tokens.
func pad(t *testing.T, from string, rows int, value func() float32) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(t, filepath.Join(to, "config.json"), func(c map[string]any) { c["vocab_size"] = c["vocab_size"].(float64) + float64(rows) })
	f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, x := range f.Tensors {
		if x.Name == "model.embed_tokens.weight" {
			data := append([]byte{}, x.Data...)
			for range rows * x.Shape[1] {
				b := float16.ToBF16(value())
				data = append(data, byte(b), byte(b>>8))
			}
			f.Tensors[i].Data, f.Tensors[i].Shape = data, []int{x.Shape[0] + rows, x.Shape[1]}
		}
	}
	if err := safetensors.WriteFile(filepath.Join(to, "model.safetensors"), f.Tensors, nil); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestPaddedRows draws from a model with rows beyond its vocabulary. Their ids stand for no token and are never drawn,
// from the folder and from its GGUF file. Rows of zeros, as publishers pad, are no finding of Check.
func TestPaddedRows(t *testing.T) {
	from := golden.Model(t, "tiny-qwen3")
	r := rand.New(rand.NewPCG(1, 2))
	folder := pad(t, from, 64, func() float32 { return float32(r.NormFloat64()) / 8 })
	file := filepath.Join(t.TempDir(), "padded.gguf")
	if _, err := karat.Convert(t.Context(), folder, file, karat.ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, file} {
		m := open(t, path, karat.Options{Context: 512})
		for seed := range uint64(6) {
			s := karat.Sampling{Temperature: 1.5, Seed: &seed}
			switch seed {
			case 4:
				s.LogitBias = map[int]float32{2100: 100}
			case 5:
				s = karat.Sampling{LogitBias: map[int]float32{2100: 100}}
			}
			for x, err := range m.Generate(t.Context(), "Hello", karat.GenerateOptions{MaxTokens: 200, Sampling: &s}) {
				if err != nil || x.ID >= 2048 {
					t.Fatalf("%s, seed %d: %d, %v", filepath.Base(path), seed, x.ID, err)
				}
			}
		}
	}
	zeros := pad(t, from, 64, func() float32 { return float32(math.Copysign(0, 1)) })
	if _, err := karat.Convert(t.Context(), zeros, file, karat.ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{zeros, file} {
		report, err := karat.Check(t.Context(), path, karat.CheckOptions{})
		if err != nil || !report.Clean() {
			t.Errorf("%s: %+v, %v", filepath.Base(path), report, err)
		}
	}
}

// TestConvertEnd converts an embedding model whose texts end with another token than its turns, such as Qwen3-Embedding.
// The GGUF file makes the same ids and vectors.
func TestConvertEnd(t *testing.T) {
	folder := pad(t, golden.Model(t, "tiny-qwen3"), 0, nil)
	rewrite(t, filepath.Join(folder, "tokenizer.json"), func(f map[string]any) {
		f["post_processor"] = map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}, map[string]any{"SpecialToken": map[string]any{"id": "<|endoftext|>", "type_id": 0}}},
			"pair":           []any{},
			"special_tokens": map[string]any{"<|endoftext|>": map[string]any{"id": "<|endoftext|>", "ids": []int{2045}, "tokens": []string{"<|endoftext|>"}}}}
	})
	for name, text := range map[string]string{
		"modules.json": `[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
			{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
			{"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]`,
		"1_Pooling/config.json": `{"word_embedding_dimension": 256, "pooling_mode_lasttoken": true}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "e.gguf")
	if _, err := karat.Convert(t.Context(), folder, file, karat.ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	var all [2][][]float32
	for i, path := range []string{folder, file} {
		m := open(t, path, karat.Options{})
		ids, err := m.Tokenize(t.Context(), "test", karat.TokenizeOptions{})
		if err != nil || ids[len(ids)-1] != 2045 {
			t.Errorf("%s: ids %v, %v", filepath.Base(path), ids, err)
		}
		if all[i], err = m.Embed(t.Context(), []string{"test", "The sky"}, karat.EmbedOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Error("the vectors of the two differ")
	}
}

// rewrite changes a JSON file.
func rewrite(t *testing.T, path string, edit func(map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(path)
	var f map[string]any
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err == nil {
		edit(f)
		b, err = json.Marshal(f)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSuppressed: a publisher's recommendation bans the tokens of its list, and an id outside the vocabulary is none.
func TestSuppressed(t *testing.T) {
	dir := pad(t, golden.Model(t, "smollm3"), 0, nil)
	if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"suppress_tokens": [3, 100000000]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	m := open(t, dir, karat.Options{})
	if banned := m.Sampling().LogitBias; len(banned) != 1 || !math.IsInf(float64(banned[3]), -1) {
		t.Errorf("banned: %v", banned)
	}
	for _, err := range m.Generate(t.Context(), "a", karat.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			t.Error(err)
		}
	}
}
