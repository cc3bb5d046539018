package checkpoint

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// TestVocabularyOnly opens GGUF files without tensors, of architectures that no graph is for, too.
func TestVocabularyOnly(t *testing.T) {
	for name, size := range map[string]int{"gpt-2": 50257, "phi-3": 32064} {
		in, err := os.Open(golden.Shared(t, "vocab/ggml-vocab-"+name+".gguf.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		z, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "v.gguf")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		tok, err := OpenTokenizer(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		const text = "The color of the sky"
		if ids := tok.Encode(text, tokenizer.Options{}); tok.VocabSize() != size || tok.Decode(ids, true) != text {
			t.Errorf("%s: %d tokens, %v", name, tok.VocabSize(), ids)
		}
		if err := os.WriteFile(path, data[:len(data)/2], 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokenizer(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: half a file: %v", name, err)
		}
	}
}

// TestTokenizerNamed: an error of a tokenizer names its file once, whatever the file's name.
func TestTokenizerNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"foo.model", "tokenizer.model", "bar.json"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("\x0a\x03\x0a\x01a"), 0o666); err != nil { // a Unigram model with the piece "a"
			t.Fatal(err)
		}
		want := path + ": "
		if filepath.Ext(name) == ".model" {
			want += "model_type 1 (UNIGRAM) is not supported"
		}
		if _, err := OpenTokenizer(path); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "tokenizer.") > strings.Count(name, "tokenizer.") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
