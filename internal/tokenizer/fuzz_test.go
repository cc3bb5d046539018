package tokenizer_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/dev/golden"
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

// there converts a tokenizer of whatever file to GGUF and to a folder: what is no error can be read.
func there(t *testing.T, f tokenizer.Files, tok *tokenizer.Tokenizer) {
	g, _, err := tokenizer.ToGGUF(f, tok.VocabSize(), tok.VocabSize()%2 == 0, "", nil)
	if err != nil {
		return
	}
	if _, err := tokenizer.FromGGUF(g); err != nil {
		t.Fatalf("the GGUF form: %v", err)
	}
	if f, err = tokenizer.ToJSON(g); err != nil {
		return
	}
	if _, err := tokenizer.FromJSON(f.JSON, f.Config); err != nil {
		t.Fatalf("the folder's form: %v", err)
	}
}

func FuzzJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, file, config []byte, text string) {
		if tok, err := tokenizer.FromJSON(file, config); err == nil && len(text) < 1<<12 {
			use(t, tok, text)
			there(t, tokenizer.Files{JSON: file, Config: config}, tok)
		}
	})
}

func FuzzSentencePiece(f *testing.F) {
	f.Fuzz(func(t *testing.T, file, config []byte, text string) {
		if tok, err := tokenizer.FromSentencePiece(file, config); err == nil && len(text) < 1<<12 {
			use(t, tok, text)
			there(t, tokenizer.Files{Model: file, Config: config}, tok)
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

// FuzzGGUF makes a tokenizer of whatever a GGUF file's keys say. Tokens and merges are lines; a type, and an id of ids,
// which are those of BOS, EOS, EOT, UNK, SEP and PAD, is a byte; a score four.
func FuzzGGUF(f *testing.F) {
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types, scores, ids []byte, flags byte, text string) {
		g := tokenizer.GGUF{Model: model, Pre: pre, Tokens: strings.Split(tokens, "\n")}
		if merges != "" {
			g.Merges = strings.Split(merges, "\n")
		}
		for _, x := range types {
			g.Types = append(g.Types, int32(int8(x)))
		}
		for ; len(scores) >= 4; scores = scores[4:] {
			g.Scores = append(g.Scores, math.Float32frombits(binary.LittleEndian.Uint32(scores)))
		}
		for i, id := range []**int{&g.BOS, &g.EOS, &g.EOT, &g.UNK, &g.SEP, &g.PAD} {
			if i < len(ids) {
				*id = new(int(int8(ids[i])))
			}
		}
		for i, flag := range []**bool{&g.AddBOS, &g.AddEOS, &g.AddSEP, &g.AddSpacePrefix} {
			if flags>>(2*i)&1 != 0 {
				*flag = new(flags>>(2*i+1)&1 != 0)
			}
		}
		tok, err := tokenizer.FromGGUF(g)
		if err != nil {
			if strings.HasPrefix(err.Error(), "tokenizer: ") {
				t.Fatal(err)
			}
			return
		}
		if len(text) < 1<<12 {
			use(t, tok, text)
		}
		folder, err := tokenizer.ToJSON(g)
		if err != nil {
			return
		}
		if _, err := tokenizer.FromJSON(folder.JSON, folder.Config); err != nil {
			t.Fatalf("the folder's form: %v", err)
		}
	})
}
