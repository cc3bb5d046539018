package tokenizer_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// use encodes and decodes with a tokenizer of whatever file.
func use(t *testing.T, tok *tokenizer.Tokenizer, text string) {
	for _, o := range []tokenizer.Options{{}, {ParseSpecial: true, AddSpecial: true}} {
		ids := tok.Encode(text, o)
		for _, id := range ids {
			if id < 0 || id >= tok.VocabSize() {
				t.Fatalf("%+q: id %d of %d", text, id, tok.VocabSize())
			}
			if _, kind := tok.Token(id); !o.ParseSpecial && kind == tokenizer.Control {
				t.Fatalf("%+q: id %d is a special token", text, id)
			}
		}
		if s := tok.Decode(ids, false); !utf8.ValidString(s) {
			t.Fatalf("%+q: decoded %+q", text, s)
		}
		checkStreamed(t, tok, ids)
	}
	tok.EndOfTurn()
}

// checkStreamed is checkStream where Decode may take off a leading space.
func checkStreamed(t *testing.T, tok *tokenizer.Tokenizer, ids []int) {
	d := tok.Decoder(false)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Write(id))
	}
	b.WriteString(d.Flush())
	if got, want := b.String(), tok.Decode(ids, false); got != want && got != " "+want {
		t.Fatalf("%v: streamed %+q, decoded %+q", ids, got, want)
	}
}

func FuzzJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, file, config []byte, text string) {
		if tok, err := tokenizer.FromJSON(file, config); err == nil && len(text) < 1<<12 {
			use(t, tok, text)
		}
	})
}

func FuzzSentencePiece(f *testing.F) {
	f.Fuzz(func(t *testing.T, file, config []byte, text string) {
		if tok, err := tokenizer.FromSentencePiece(file, config); err == nil && len(text) < 1<<12 {
			use(t, tok, text)
		}
	})
}

// FuzzEncode checks that text comes back.
func FuzzEncode(f *testing.F) {
	llama := fromJSON(f, golden.Model(f, "tiny-llama"))
	qwen := fromJSON(f, golden.Model(f, "tiny-qwen3"))
	gemma := fromJSON(f, golden.Model(f, "tiny-gemma4"))
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range []*tokenizer.Tokenizer{llama, qwen, gemma} {
			use(t, tok, text)
			if !utf8.ValidString(text) {
				continue
			}
			want := text
			switch tok {
			case qwen:
				want = tokenizer.NFC(text)
			case gemma:
				want = strings.ReplaceAll(text, "▁", " ")
			}
			for _, special := range []bool{false, true} {
				ids := tok.Encode(text, tokenizer.Options{ParseSpecial: special})
				if got := tok.Decode(ids, false); got != want {
					t.Fatalf("%+q: decoded %+q, want %+q", text, got, want)
				}
			}
		}
	})
}
