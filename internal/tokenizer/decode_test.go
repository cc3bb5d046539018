package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// TestRoundTrip decodes what was encoded, whole and token by token.
func TestRoundTrip(t *testing.T) {
	for _, model := range golden.Models(t) {
		tok := fromJSON(t, golden.Model(t, model))
		t.Run(model, func(t *testing.T) {
			for _, text := range texts(6, 2000, specials(tok), false) {
				ids := tok.Encode(text, tokenizer.Options{})
				want := text
				if strings.Contains(model, "qwen") {
					want = tokenizer.NFC(text)
				} else if strings.Contains(model, "gemma") || model == "demo" {
					want = strings.ReplaceAll(text, "▁", " ")
				}
				if got := tok.Decode(ids, true); got != want {
					t.Fatalf("%+q: decoded %+q, want %+q", text, got, want)
				}
				checkStream(t, tok, ids)
			}
		})
	}
}

// checkStream decodes ids token by token: each step gives whole characters and nothing that is complete stays behind.
func checkStream(t *testing.T, tok *tokenizer.Tokenizer, ids []int) {
	t.Helper()
	var b strings.Builder
	d := tok.Decoder(false)
	for i, id := range ids {
		s := d.Write(id)
		if !utf8.ValidString(s) {
			t.Fatalf("%v: step %d gives %+q", ids, i, s)
		}
		b.WriteString(s)
	}
	b.WriteString(d.Flush())
	if got, want := b.String(), tok.Decode(ids, false); got != want {
		t.Fatalf("%v: streamed %+q, decoded %+q", ids, got, want)
	}
}

// TestDecoder looks at each step of a character of four bytes.
func TestDecoder(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-gemma4"} {
		tok := fromJSON(t, golden.Model(t, model))
		ids := bytesOf(t, tok, "a\U0010ABCDb")
		d := tok.Decoder(false)
		var steps []string
		for _, id := range ids {
			steps = append(steps, d.Write(id))
		}
		if want := []string{"a", "", "", "", "\U0010ABCD", "b"}; !slices.Equal(steps, want) {
			t.Errorf("%s: %+q, want %+q", model, steps, want)
		}
		if rest := d.Flush(); rest != "" {
			t.Errorf("%s: %+q is left", model, rest)
		}
	}
}

// bytesOf returns the tokens of each byte of text.
func bytesOf(t *testing.T, tok *tokenizer.Tokenizer, text string) (ids []int) {
	t.Helper()
	const hex = "0123456789ABCDEF"
	for _, b := range []byte(text) {
		id, ok := tok.ID("<0x" + hex[b>>4:b>>4+1] + hex[b&15:b&15+1] + ">")
		if !ok {
			id, ok = tok.ID(spell(b))
		}
		if !ok {
			t.Fatalf("no token for byte %#x", b)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestDecodeInvalid decodes bytes that are no UTF-8 as the references do: byte-level as Rust's from_utf8_lossy (the
// examples are from the Unicode standard, table 3-8), byte tokens as one U+FFFD each.
func TestDecodeInvalid(t *testing.T) {
	llama := fromJSON(t, golden.Model(t, "tiny-llama"))
	gemma := fromJSON(t, golden.Model(t, "tiny-gemma4"))
	for _, c := range []struct{ in, llama, gemma string }{
		{"a\xe2\x82", "a\ufffd", "a\ufffd\ufffd"},
		{"\xe2\x82a", "\ufffda", "\ufffd\ufffda"},
		{"\xf0\x9f\x98", "\ufffd", "\ufffd\ufffd\ufffd"},
		{"\xff\xfe", "\ufffd\ufffd", "\ufffd\ufffd"},
		{"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a\ufffd\ufffd\ufffdb\ufffdc\ufffd\ufffdd",
			"a" + strings.Repeat("\ufffd", 6) + "b\ufffdc\ufffd\ufffdd"},
		{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", strings.Repeat("\ufffd", 8) + "A", strings.Repeat("\ufffd", 8) + "A"},
		{"\xed\xa0\x80\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", strings.Repeat("\ufffd", 8) + "A\ufffd\ufffdB",
			strings.Repeat("\ufffd", 8) + "A\ufffd\ufffdB"},
	} {
		for tok, want := range map[*tokenizer.Tokenizer]string{llama: c.llama, gemma: c.gemma} {
			ids := bytesOf(t, tok, c.in)
			if got := tok.Decode(ids, false); got != want {
				t.Errorf("%+q: decoded %+q, want %+q", c.in, got, want)
			}
			checkStream(t, tok, ids)
		}
	}
}

// TestDecodeSpecial decodes special tokens and ids that do not exist.
func TestDecodeSpecial(t *testing.T) {
	tok := fromJSON(t, golden.Model(t, "tiny-llama"))
	bos, _ := tok.BOS()
	ids := append([]int{bos, -1, tok.VocabSize(), 1 << 40}, tok.Encode("Hello<|eot_id|> world", tokenizer.Options{ParseSpecial: true})...)
	if got, want := tok.Decode(ids, false), "<|begin_of_text|>Hello<|eot_id|> world"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := tok.Decode(ids, true), "Hello world"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSpacePrefix checks the space that Llama 2 puts before a text: Decode takes it off, a Decoder, which continues a
// text, does not.
func TestSpacePrefix(t *testing.T) {
	tok := fromGGUF(t, unpack(t, "llama-spm"))
	ids := tok.Encode("Hello world", tokenizer.Options{})
	if got := tok.Decode(ids, false); got != "Hello world" {
		t.Errorf("%q", got)
	}
	if got := tok.Decoder(false).Write(ids[0]); got != " Hello" {
		t.Errorf("%q", got)
	}
}
