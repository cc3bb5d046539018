package tokenizer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tokenizer"
)

// wordPieces returns GGUF's metadata of a vocabulary, with its special tokens before it.
func wordPieces(vocabulary []string, lower bool) tokenizer.GGUF {
	id := func(n int) *int { return &n }
	g := tokenizer.GGUF{Model: tokenizer.WordPiece, Tokens: []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]"}, Types: []int32{3, 3, 3, 3},
		UNK: id(1), BOS: id(2), EOS: id(3), Lowercase: &lower}
	for _, text := range vocabulary {
		g.Tokens, g.Types = append(g.Tokens, text), append(g.Types, int32(tokenizer.Normal))
	}
	return g
}

// TestWordPiece: words, their pieces, unknown words, and texts of them.
func TestWordPiece(t *testing.T) {
	vocabulary := []string{"▁un", "aff", "able", "▁,", "▁caf", "e", "▁空", "▁i", "▁É", "▁İ"}
	for text, want := range map[string][]string{
		"unaffable":                         {"un", "##aff", "##able"},
		"UNaffable, unaffablx":              {"un", "##aff", "##able", ",", "[UNK]"},
		"Café cafe\u0301\u200b\tun\x00able": {"caf", "##e", "caf", "##e", "un", "##able"},
		"空un空":                              {"空", "un", "空"},
		strings.Repeat("i", 101):            {"[UNK]"},
		"İ":                                 {"i"},
		"":                                  nil,
		" \n ":                              nil,
	} {
		tok, err := tokenizer.FromGGUF(wordPieces(vocabulary, true))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, id := range tok.Encode(text, tokenizer.Options{}) {
			piece, _ := tok.Token(id)
			got = append(got, piece)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	tok, err := tokenizer.FromGGUF(wordPieces(vocabulary, false))
	if err != nil {
		t.Fatal(err)
	}
	ids := tok.Encode("É unaffable", tokenizer.Options{AddSpecial: true})
	if text := tok.Decode(ids, true); text != "É unaffable" || ids[0] != 2 || ids[len(ids)-1] != 3 {
		t.Errorf("%v is %q", ids, text)
	}
}

// TestAccents keeps accents in a vocabulary of small letters, or strips them in one of both, where the file says so: from
// GGUF, from the folder of it, and from GGUF again.
func TestAccents(t *testing.T) {
	for _, lower := range []bool{true, false} {
		g := wordPieces([]string{"▁café", "▁cafe"}, lower)
		strip := !lower
		g.StripAccents = &strip
		f, err := tokenizer.ToJSON(g)
		if err != nil {
			t.Fatal(err)
		}
		folder, err := tokenizer.FromJSON(f.JSON, f.Config)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := tokenizer.ToGGUF(f, len(g.Tokens), false, "default", nil)
		if err != nil || back.StripAccents == nil || *back.StripAccents != strip {
			t.Fatalf("%v, %v", back.StripAccents, err)
		}
		file, err := tokenizer.FromGGUF(back)
		if err != nil {
			t.Fatal(err)
		}
		want := []int{4}
		if strip {
			want = []int{5}
		}
		for _, tok := range []*tokenizer.Tokenizer{folder, file} {
			if ids := tok.Encode("café", tokenizer.Options{}); !slices.Equal(ids, want) {
				t.Errorf("lower %v: %v, want %v", lower, ids, want)
			}
		}
	}
}

func FuzzWordPiece(f *testing.F) {
	f.Add("▁un\naff\nable", true, "UNaffable [CLS] é")
	f.Add("▁a\n##\n▁\n▁▁", false, "a\xff\u0301##")
	f.Fuzz(func(t *testing.T, vocabulary string, lower bool, text string) {
		if tok, err := tokenizer.FromGGUF(wordPieces(strings.Split(vocabulary, "\n"), lower)); err == nil && len(text) < 1<<12 {
			use(t, tok, text)
		}
	})
}
