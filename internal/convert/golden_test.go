package convert_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
)

var update = flag.Bool("update", false, "write testdata/llamacpp.json from llama.cpp's files in the shared folder")

func run(t *testing.T, src, dst string, o convert.Options) *convert.Result {
	t.Helper()
	r, err := convert.Convert(context.Background(), src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contents are what a GGUF file holds: a line for each tensor, in order, with the
// SHA-256 of its bytes, and a line for each key.
type contents struct {
	Tensors  []string          `json:"tensors"`
	Metadata map[string]string `json:"metadata"`
}

func read(t *testing.T, path string) contents {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := contents{Metadata: map[string]string{}}
	for _, x := range f.Tensors() {
		c.Tensors = append(c.Tensors, fmt.Sprintf("%s %v %v %x", x.Name, x.DType, []int(x.Shape), sha256.Sum256(x.Data)))
	}
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		x, err := v.Any()
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%T %[1]v", x)
		if len(text) > 200 {
			text = fmt.Sprintf("%T, %d, %x", x, v.Len(), sha256.Sum256([]byte(text)))
		}
		c.Metadata[key] = text
	}
	return c
}

// different are the keys whose values differ on purpose, by model, or which
// llama.cpp's converter does not write.
var different = map[string]map[string]string{
	// The converter knows only the special tokens that tokenizer_config.json names,
	// and calls <mask>, <|turn>, <turn|>, <|think|>, <|tool> and <tool|> normal
	// tokens: text could spell them, and a chat template's would be cut into
	// letters. tokenizer.json says that they are special.
	"tiny-gemma4":     {"tokenizer.ggml.token_type": "[]int32, 2048, special tokens are control tokens"},
	"tiny-gemma4-moe": {"tokenizer.ggml.token_type": "[]int32, 2048, special tokens are control tokens"},
}

// TestLlamaCpp compares with the files that llama.cpp's converter made of the same
// models (with gemma3.attention.sliding_window_pattern and attention.scale
// added, which it has no keys for): the same tensors in the same order, of the same
// types and bytes, and the same keys, types and values.
func TestLlamaCpp(t *testing.T) {
	const file = "testdata/llamacpp.json"
	want := map[string]contents{}
	if *update {
		for _, name := range []string{"tiny-llama", "tiny-qwen3", "tiny-gemma3", "tiny-gemma4", "tiny-gemma4-moe"} {
			want[name] = read(t, golden.Shared(t, "goldens/gguf/"+name+".bf16.gguf"))
		}
		b, err := json.MarshalIndent(want, "", " ")
		if err == nil {
			err = os.WriteFile(file, append(b, '\n'), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range want {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.gguf")
			run(t, golden.Model(t, name), path, convert.Options{})
			compare(t, read(t, path), want, different[name])
		})
	}
}

// TestMixes quantizes folders on the way to GGUF: tensors as in llama-quantize's
// files of the converter's files.
func TestMixes(t *testing.T) {
	for _, name := range []string{"tiny-llama.Q8_0", "tiny-gemma3.Q4_K_M", "tiny-gemma4-moe.MXFP4_MOE"} {
		theirs := golden.Shared(t, "goldens/gguf/"+name+".gguf")
		model, kind, _ := strings.Cut(name, ".")
		path := filepath.Join(t.TempDir(), "model.gguf")
		run(t, golden.Model(t, model), path, convert.Options{Type: kind})
		got, want := read(t, path), read(t, theirs)
		if !slices.Equal(got.Tensors, want.Tensors) || got.Metadata["general.file_type"] != want.Metadata["general.file_type"] {
			t.Errorf("%s: %q, want %q", name, got.Tensors, want.Tensors)
		}
	}
}

func compare(t *testing.T, got, want contents, different map[string]string) {
	t.Helper()
	for i := range max(len(got.Tensors), len(want.Tensors)) {
		if i >= len(got.Tensors) || i >= len(want.Tensors) || got.Tensors[i] != want.Tensors[i] {
			t.Errorf("tensor %d of %d differs, of %d: %v", i, len(got.Tensors), len(want.Tensors), got.Tensors[i:min(i+1, len(got.Tensors))])
		}
	}
	for key, v := range want.Metadata {
		switch got := got.Metadata[key]; {
		case different[key] != "" && got == v:
			t.Errorf("key %s is as in llama.cpp's file, and not: %s", key, different[key])
		case different[key] == "" && got != v:
			t.Errorf("key %s: %q, want %q", key, got, v)
		}
	}
	for key, v := range got.Metadata {
		if _, ok := want.Metadata[key]; !ok {
			t.Errorf("key %s = %s is not in llama.cpp's file", key, v)
		}
	}
}
