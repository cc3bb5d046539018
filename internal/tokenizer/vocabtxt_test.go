package tokenizer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// TestVocab: a folder with a vocab.txt alone has the tokenizer of one with tokenizer.json.
func TestVocab(t *testing.T) {
	dir := filepath.Join(golden.Repo(t), "encoders", "bert")
	want := fromJSON(t, dir)
	vocab, err := os.ReadFile(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := tokenizer.FromVocab(vocab, config)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokenizer.FromJSON(file, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := tokenizer.Same(want, got); err != nil {
		t.Error(err)
	}
	a, _ := want.Pair([]int{9}, []int{8, 7})
	if b, _ := got.Pair([]int{9}, []int{8, 7}); len(a) != 6 || len(b) != 6 || a[0] != b[0] || a[5] != b[5] {
		t.Errorf("pairs %v and %v", a, b)
	}
	for text, want := range map[string]string{
		"[UNK]\n[CLS]\n[SEP]\na\na\n": `line 5: "a" is empty, or the token of line 4`,
		"[UNK]\n\n[CLS]":              "line 2",
		"[UNK]\n[CLS]":                "it has no [SEP]",
		"":                            "line 1",
	} {
		if _, err := tokenizer.FromVocab([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	file, err = tokenizer.FromVocab([]byte("[UNK]\r\n[CLS]\r\n[SEP]\r\nÄ\r\n"), []byte(`{"do_lower_case":false}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err = tokenizer.FromJSON(file, nil); err != nil {
		t.Fatal(err)
	}
	if ids := got.Encode("Ä", tokenizer.Options{}); len(ids) != 1 || ids[0] != 3 {
		t.Errorf("with capitals: %v", ids)
	}
}
