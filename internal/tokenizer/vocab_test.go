package tokenizer_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// vocabularies are the published ones in the shared folder.
var vocabularies = []string{"deepseek-llm", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"}

// TestVocabularies compares with the ids that the models' own tokenizers gave.
func TestVocabularies(t *testing.T) {
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			tok := fromGGUF(t, unpack(t, name))
			base := golden.Shared(t, "vocab/ggml-vocab-"+name+".gguf.inp")
			const border = "\n__ggml_vocab_test__\n"
			texts := strings.Split(strings.TrimSuffix(readFile(t, base), border), border)
			lines := strings.Split(strings.TrimSuffix(readFile(t, strings.TrimSuffix(base, "inp")+"out"), "\n"), "\n")
			if len(texts) != len(lines) {
				t.Fatalf("%d texts, %d lines of ids", len(texts), len(lines))
			}
			for i, text := range texts {
				var want []int
				for _, field := range strings.Fields(lines[i]) {
					id, err := strconv.Atoi(field)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, id)
				}
				if got := tok.Encode(text, tokenizer.Options{}); !slices.Equal(got, want) {
					t.Errorf("%q:\n got %v\nwant %v", text, got, want)
				}
			}
		})
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
