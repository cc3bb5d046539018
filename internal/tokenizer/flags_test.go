package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/tokenizer"
)

// TestFlagsConvert converts added tokens that take white space, or are none inside a word, to GGUF and back: the ids of
// texts with such a token stay.
func TestFlagsConvert(t *testing.T) {
	vocab := map[string]int{}
	for b := range 256 {
		vocab[spell(byte(b))] = b
	}
	vocab[spell('a')+spell('b')] = 256
	list, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	for flag, ids := range map[string][]int{
		`"lstrip": true`:      {'a', 257, ' ', 'b', 257, 'c'},
		`"rstrip": true`:      {'a', ' ', 257, 'b', 257, 'c'},
		`"single_word": true`: {'a', ' ', 257, ' ', 'b', '<', 'x', '>', 'c'},
	} {
		f := tokenizer.Files{JSON: fmt.Appendf(nil, `{"added_tokens": [{"id": 257, "content": "<x>", "special": true, %s}],
			"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": %s, "merges": ["a b"]}}`, flag, list)}
		g, _, err := tokenizer.ToGGUF(f, 258, false, "", nil)
		if err != nil {
			t.Fatal(flag, err)
		}
		back, err := tokenizer.ToJSON(g)
		if err != nil {
			t.Fatal(flag, err)
		}
		for i, load := range []func() (*tokenizer.Tokenizer, error){
			func() (*tokenizer.Tokenizer, error) { return tokenizer.FromJSON(f.JSON, nil) },
			func() (*tokenizer.Tokenizer, error) { return tokenizer.FromGGUF(g) },
			func() (*tokenizer.Tokenizer, error) { return tokenizer.FromJSON(back.JSON, back.Config) },
		} {
			tok, err := load()
			if err != nil {
				t.Fatal(flag, err)
			}
			got := tok.Encode("a <x> b<x>c", tokenizer.Options{ParseSpecial: true})
			if !slices.Equal(got, ids) {
				t.Errorf("%s, form %d: %v, want %v", flag, i, got, ids)
			}
		}
		if g.Flags = nil; tokenizer.Same(must(tokenizer.FromJSON(f.JSON, nil)), must(tokenizer.FromGGUF(g))) == nil {
			t.Errorf("%s: a file without the flags is called the same", flag)
		}
	}
}

func must(t *tokenizer.Tokenizer, err error) *tokenizer.Tokenizer {
	if err != nil {
		panic(err)
	}
	return t
}
