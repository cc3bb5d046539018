package tokenizer_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// ggufOf returns the path of one GGUF file of a model, or "" where its goldens
// have none.
func ggufOf(t testing.TB, model string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(golden.Dir(t), "gguf", model+".*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) > 0 {
		return paths[0]
	}
	if model == "demo" {
		return filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf")
	}
	return ""
}

// TestRecords compares with the ids of every prompt of every record, from each
// form of the model's tokenizer.
func TestRecords(t *testing.T) {
	for _, model := range golden.Models(t) {
		dir := golden.Model(t, model)
		forms := map[string]*tokenizer.Tokenizer{"json": fromJSON(t, dir)}
		if _, err := os.Stat(filepath.Join(dir, "tokenizer.model")); err == nil {
			forms["sentencepiece"] = fromSentencePiece(t, dir)
		}
		if path := ggufOf(t, model); path != "" {
			forms["gguf"] = fromGGUF(t, path)
		}
		for form, tok := range forms {
			t.Run(model+"/"+form, func(t *testing.T) {
				for _, p := range golden.Record(t, model).Prompts {
					o := tokenizer.Options{AddSpecial: true}
					if p.Prompt.Chat != nil {
						o = tokenizer.Options{ParseSpecial: true}
					}
					if got := tok.Encode(p.Text, o); !slices.Equal(got, p.IDs) {
						t.Errorf("prompt %d:\n got %v\nwant %v", p.Index, got, p.IDs)
					}
					if got := tok.Decode(p.GreedyIDs, false); got != p.GreedyText {
						t.Errorf("prompt %d: decoded %q, want %q", p.Index, got, p.GreedyText)
					}
				}
			})
		}
	}
}
