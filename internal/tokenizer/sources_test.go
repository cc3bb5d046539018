package tokenizer_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tokenizer"
)

// metadata reads the tokenizer's keys of a GGUF file.
func metadata(t testing.TB, path string) tokenizer.GGUF {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const keys = "tokenizer.ggml."
	fail := func(err error) {
		if err != nil && !errors.Is(err, gguf.ErrNoKey) {
			t.Fatal(err)
		}
	}
	var g tokenizer.GGUF
	g.Model, err = f.Metadata.String(keys + "model")
	fail(err)
	g.Pre, err = f.Metadata.String(keys + "pre")
	fail(err)
	g.Tokens, err = f.Metadata.Strings(keys + "tokens")
	fail(err)
	g.Merges, err = f.Metadata.Strings(keys + "merges")
	fail(err)
	types, err := f.Metadata.Ints(keys + "token_type")
	fail(err)
	for _, k := range types {
		g.Types = append(g.Types, int32(k))
	}
	scores, err := f.Metadata.Floats(keys + "scores")
	fail(err)
	for _, s := range scores {
		g.Scores = append(g.Scores, float32(s))
	}
	for key, to := range map[string]**int{"bos": &g.BOS, "eos": &g.EOS, "eot": &g.EOT, "eom": &g.EOM} {
		id, err := f.Metadata.Int(keys + key + "_token_id")
		fail(err)
		if i := int(id); err == nil {
			*to = &i
		}
	}
	for key, to := range map[string]**bool{"add_bos_token": &g.AddBOS, "add_eos_token": &g.AddEOS, "add_space_prefix": &g.AddSpacePrefix} {
		flag, err := f.Metadata.Bool(keys + key)
		fail(err)
		if err == nil {
			*to = &flag
		}
	}
	return g
}

// fromGGUF makes the tokenizer of a GGUF file.
func fromGGUF(t testing.TB, path string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.FromGGUF(metadata(t, path))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return tok
}

// unpack unpacks one of the published vocabularies and returns its path.
func unpack(t testing.TB, name string) string {
	t.Helper()
	in, err := os.Open(golden.Shared(t, "vocab/ggml-vocab-"+name+".gguf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, z); err != nil {
		t.Fatal(err)
	}
	return path
}

// fromJSON makes the tokenizer of a Hugging Face folder.
func fromJSON(t testing.TB, dir string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.FromJSON(read(t, dir, "tokenizer.json"), read(t, dir, "tokenizer_config.json"))
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return tok
}

// fromSentencePiece makes the tokenizer of a folder's tokenizer.model.
func fromSentencePiece(t testing.TB, dir string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.FromSentencePiece(read(t, dir, "tokenizer.model"), read(t, dir, "tokenizer_config.json"))
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return tok
}

func read(t testing.TB, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
