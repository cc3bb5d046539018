package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// agree compares the ids of generated texts, and what ends a turn.
func agree(t *testing.T, a, b *tokenizer.Tokenizer) {
	t.Helper()
	sameIDs(t, a, b)
	if x, y := a.EndOfTurn(), b.EndOfTurn(); !slices.Equal(x, y) {
		t.Errorf("ends of a turn: %v became %v", x, y)
	}
}

func sameIDs(t *testing.T, a, b *tokenizer.Tokenizer) {
	t.Helper()
	for _, text := range texts(7, 100, nil, true) {
		for _, special := range []bool{false, true} {
			o := tokenizer.Options{AddSpecial: true, ParseSpecial: special}
			if x, y := a.Encode(text, o), b.Encode(text, o); !slices.Equal(x, y) {
				t.Fatalf("%q: %v became %v", text, x, y)
			}
		}
	}
}

// TestConvertVocabularies takes published vocabularies from GGUF to a folder's files and back: three of them, or in
// the long ring all.
func TestConvertVocabularies(t *testing.T) {
	names := []string{"llama-spm", "phi-3", "starcoder"}
	if golden.Slow() {
		names = vocabularies // a minute
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			g := metadata(t, unpack(t, name))
			files, err := tokenizer.ToJSON(g)
			if err != nil {
				t.Fatal(err)
			}
			there, err := tokenizer.FromJSON(files.JSON, files.Config)
			if err != nil {
				t.Fatal(err)
			}
			here, err := tokenizer.FromGGUF(g)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, here, there)
			again, _, err := tokenizer.ToGGUF(files, len(g.Tokens), g.Model == "gemma4", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(again.Tokens, g.Tokens) || !slices.Equal(again.Merges, g.Merges) || again.Model != g.Model {
				t.Errorf("%s with %d tokens and %d merges became %s with %d and %d", g.Model, len(g.Tokens), len(g.Merges), again.Model, len(again.Tokens), len(again.Merges))
			}
			back, err := tokenizer.FromGGUF(again)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, here, back)
		})
	}
}

func filesOf(t *testing.T, dir string) tokenizer.Files {
	t.Helper()
	var f tokenizer.Files
	for name, to := range map[string]*[]byte{"tokenizer.json": &f.JSON, "tokenizer.model": &f.Model, "tokenizer_config.json": &f.Config} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			*to = b
		}
	}
	return f
}

// TestConvertFolders takes the models' tokenizers to GGUF and back, and a SentencePiece model from either of its forms.
func TestConvertFolders(t *testing.T) {
	for _, name := range golden.Models(t) {
		files := filesOf(t, golden.Model(t, name))
		forms := map[string]tokenizer.Files{name: files}
		if files.Model != nil {
			forms[name+" tokenizer.json"] = tokenizer.Files{JSON: files.JSON, Config: files.Config}
			forms[name+" tokenizer.model"] = tokenizer.Files{Model: files.Model, Config: files.Config}
		}
		for form, f := range forms {
			t.Run(form, func(t *testing.T) {
				here := fromJSON(t, golden.Model(t, name))
				g, notes, err := tokenizer.ToGGUF(f, here.VocabSize()+3, strings.Contains(name, "gemma4"), "", nil)
				if err != nil || len(notes) > 0 {
					t.Fatal(err, notes)
				}
				if n := len(g.Tokens); g.Tokens[n-1] != fmt.Sprintf("[PAD%d]", n-1) {
					t.Errorf("the vocabulary ends in %q", g.Tokens[n-3:])
				}
				there, err := tokenizer.FromGGUF(g)
				if err != nil {
					t.Fatal(err)
				}
				agree(t, here, there)
				back, err := tokenizer.ToJSON(g)
				if err != nil {
					t.Fatal(err)
				}
				again, err := tokenizer.FromJSON(back.JSON, back.Config)
				if err != nil {
					t.Fatal(err)
				}
				agree(t, here, again)
			})
		}
	}
}

// TestConvertTokenizerErrors names what GGUF cannot say.
func TestConvertTokenizerErrors(t *testing.T) {
	f := filesOf(t, golden.Model(t, "tiny-llama"))
	var short bytes.Buffer
	if err := json.Compact(&short, f.JSON); err != nil { // the repository's has no white space
		t.Fatal(err)
	}
	f.JSON = short.Bytes()
	for name, edit := range map[string]struct{ old, new, want string }{
		"normalizer":      {`"normalizer":null`, `"normalizer":{"type":"NFC"}`, "no name for a pre-tokenizer"},
		"unknown pattern": {`\\p{N}{1,3}`, `\\p{N}{1,4}`, "unknown regular expression"},
	} {
		changed := f
		changed.JSON = []byte(strings.Replace(string(f.JSON), edit.old, edit.new, 1))
		if string(changed.JSON) == string(f.JSON) {
			t.Fatalf("%s: %s is not in the file", name, edit.old)
		}
		if _, _, err := tokenizer.ToGGUF(changed, 2048, false, "", nil); err == nil || !strings.Contains(err.Error(), edit.want) {
			t.Errorf("%s: %v, want %q", name, err, edit.want)
		}
	}
	merging := f
	merging.JSON = []byte(strings.Replace(string(f.JSON), `"ignore_merges":true`, `"ignore_merges":false`, 1))
	if g, _, err := tokenizer.ToGGUF(merging, 2048, false, "", nil); err != nil || g.Pre != "dbrx" {
		t.Errorf("merges not ignored: pre-tokenizer %q, %v", g.Pre, err)
	}
	if _, err := tokenizer.ToJSON(tokenizer.GGUF{Model: "bert"}); err == nil {
		t.Error("a WordPiece vocabulary: no error")
	}
}

// TestSame finds differences.
func TestSame(t *testing.T) {
	llama, qwen := fromJSON(t, golden.Model(t, "tiny-llama")), fromJSON(t, golden.Model(t, "tiny-qwen3"))
	if err := tokenizer.Same(llama, llama); err != nil {
		t.Error(err)
	}
	if err := tokenizer.Same(llama, qwen); err == nil {
		t.Error("Llama's is Qwen's")
	}
}
