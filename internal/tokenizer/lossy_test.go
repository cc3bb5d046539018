package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/tokenizer"
)

// TestMissingBytes encodes with vocabularies that lack a byte or a character. The wanted ids are what BPE::merge_word
// of the tokenizers library gives: nothing, or the unknown token, fused where fuse_unk says so.
func TestMissingBytes(t *testing.T) {
	for _, x := range []struct {
		name, model string
		want        []int
	}{
		{"dropped", `"unk_token": null`, []int{3, 2}},
		{"unknown", `"unk_token": "?"`, []int{0, 4, 4, 1, 2}},
		{"fused", `"unk_token": "?", "fuse_unk": true`, []int{0, 4, 1, 2}},
	} {
		b := `{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", ` + x.model +
			`, "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "?": 4}, "merges": ["a b"]}}`
		encodes(t, x.name, b, "añbc", x.want) // ñ is two bytes without tokens: a and b meet where they are dropped
	}
	for _, x := range []struct {
		name, text, model string
		want              []int
	}{
		{"characters", "aéòb", `"unk_token": "<unk>"`, []int{0, 5, 5, 1}},
		{"characters, fused", "aéòb", `"unk_token": "<unk>", "fuse_unk": true`, []int{0, 5, 1}},
		{"characters, dropped", "aéb", `"unk_token": null`, []int{3}},
		{"byte tokens without fallback", "aAb", `"unk_token": "<unk>", "byte_fallback": false`, []int{0, 5, 1}},
		{"some bytes", "aAéb", `"unk_token": "<unk>", "byte_fallback": true`, []int{0, 4, 5, 1}},
	} {
		b := `{"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "model": {"type": "BPE", ` + x.model +
			`, "vocab": {"a": 0, "b": 1, "▁": 2, "ab": 3, "<0x41>": 4, "<unk>": 5}, "merges": ["a b"]}}`
		encodes(t, x.name, b, x.text, x.want)
	}
}

func encodes(t *testing.T, name, file, text string, want []int) {
	t.Helper()
	tok, err := tokenizer.FromJSON([]byte(file), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, o := range []tokenizer.Options{{}, {Most: len(want)}} {
		if got := tok.Encode(text, o); !slices.Equal(got, want) {
			t.Errorf("%s: %q is %v, want %v", name, text, got, want)
		}
	}
}

// TestMissingBytesConvert converts a byte-level vocabulary without the bytes of ñ: both forms give its ids. An unknown
// token in their place has no key in GGUF: an error.
func TestMissingBytesConvert(t *testing.T) {
	spellings := map[string]int{"<|end|>": 256}
	for b := range 256 {
		if b != 'ñ'>>6|0xC0 {
			spellings[spell(byte(b))] = b
		}
	}
	spellings[spell('a')+spell('b')] = 0xC3 // the free id
	vocab, err := json.Marshal(spellings)
	if err != nil {
		t.Fatal(err)
	}
	file := func(unknown string) tokenizer.Files {
		return tokenizer.Files{JSON: fmt.Appendf(nil, `{"added_tokens": [{"id": 256, "content": "<|end|>", "special": true}],
			"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "unk_token": %s, "vocab": %s, "merges": ["a b"]}}`, unknown, vocab)}
	}
	g, _, err := tokenizer.ToGGUF(file("null"), 257, false, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := tokenizer.ToJSON(g)
	if err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]func() (*tokenizer.Tokenizer, error){
		"gguf": func() (*tokenizer.Tokenizer, error) { return tokenizer.FromGGUF(g) },
		"json": func() (*tokenizer.Tokenizer, error) { return tokenizer.FromJSON(back.JSON, back.Config) },
	} {
		tok, err := load()
		if err != nil {
			t.Fatal(name, err)
		}
		if got, want := tok.Encode("añb", tokenizer.Options{}), []int{'a', 0xB1, 'b'}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if _, _, err := tokenizer.ToGGUF(file(`"<|end|>"`), 257, false, "", nil); err == nil {
		t.Error("an unknown token that GGUF cannot say is no error")
	}
}
