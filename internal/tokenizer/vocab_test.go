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

// turnEnds are the ids, by their tokens, that stop a reply of a published vocabulary.
var turnEnds = map[string][]string{
	"deepseek-llm": {"<｜end▁of▁sentence｜>"},
	"gemma-4":      {"<eos>", "<|tool_response>", "<turn|>"},
	"gpt-2":        {"<|endoftext|>"},
	"llama-bpe":    {"<|end_of_text|>", "<|eot_id|>"},
	"llama-spm":    {"</s>"},
	"phi-3":        {"</s>", "<|endoftext|>", "<|end|>"},
	"qwen2":        {"<|endoftext|>", "<|im_end|>"},
}

// TestVocabularies compares with the ids that the models' own tokenizers gave, and checks the ids that stop a reply.
func TestVocabularies(t *testing.T) {
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			tok := fromGGUF(t, unpack(t, name))
			var ends []string
			for _, id := range tok.EndOfTurn() {
				token, _ := tok.Token(id)
				ends = append(ends, token)
			}
			if want := turnEnds[name]; want != nil && !slices.Equal(ends, want) {
				t.Errorf("%q stop a reply, want %q", ends, want)
			}
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
