// Package tokenizer turns text into token ids and back, exactly as the model's own tokenizer does.
//
// WordPiece (BERT) and Unigram (XLM-RoBERTa) are implemented, and two families of byte-pair encoders: byte-level
// encoders (GPT-2, Llama 3, Qwen, DeepSeek), whose text is first cut into words by a pre-tokenizer, and character-level
// encoders with byte fallback (SentencePiece's BPE models, Gemma). A tokenizer is read from a Hugging Face
// tokenizer.json (FromJSON), a SentencePiece tokenizer.model (FromSentencePiece) or a GGUF file's metadata (FromGGUF),
// and the same model gives the same ids from each.
//
// The reference is Hugging Face's tokenizers library 0.22 (its behaviour, with Oniguruma's regular expressions), and
// SentencePiece 0.2 for tokenizer.model. Known differences, all deliberate: bytes that are not UTF-8 become byte tokens
// instead of U+FFFD; text never becomes a special token unless the caller asks for that, even where merges spell the
// token; clean_up_tokenization_spaces is ignored. Unicode classes are the Go release's (Unicode 15.0 in Go 1.26): a
// character assigned later is neither letter nor number here.
//
// Files in reading order: tojson.go, togguf.go, unigram.go, tokenizer.go, sentencepiece.go, json.go, gguf.go,
// pipeline.go, encode.go, splitruns.go, pre.go, wordpiece.go, vocab.go, split.go, bpe.go, normalize.go, watch.go.
package tokenizer

import (
	"context"
	"errors"
	"iter"
	"slices"
	"unicode/utf8"
)

// Options says how to encode. The zero value treats everything as text.
type Options struct {
	// ParseSpecial lets the names of special tokens in the text stand for the tokens, as in a rendered chat template.
	// Never set ParseSpecial for text of a user.
	ParseSpecial bool
	// Literal lists, in order and disjoint, the parts of the text that ParseSpecial does not affect: text of users
	// inside a rendered template.
	Literal []Span
	// AddSpecial adds the model's tokens around a text: BOS for most, EOS for a few. A rendered chat template has the
	// tokens already.
	AddSpecial bool
	// Most is the maximum of ids of a text; 0 means any number. A longer text is found by its length if possible, and
	// else as soon as there are more ids.
	Most int
}

// Span is text[From:To].
type Span struct{ From, To int }

// ErrMost reports a text with more ids than Options.Most.
var ErrMost = errors.New("the text has too many tokens")

// Encode returns the ids of text, at most Options.Most of them. The time grows as n log n, whatever the text.
func (t *Tokenizer) Encode(text string, o Options) []int {
	out := make([]int, 0, len(text)/4+8)
	e := encoder{t: t, o: o, yield: func(ids []int) bool { out = append(out, ids...); return true }}
	e.run(text) // the only error is ErrMost
	return out
}

// IDs yields the ids of text in pieces, each valid until the next. An error ends the sequence: ErrMost, or ctx's,
// checked after a bounded amount of work. Beside the text, and a copy if a normalizer changes the text, at most 15
// bytes of memory are in use for a byte of the longest word, and in Unigram 20.
func (t *Tokenizer) IDs(ctx context.Context, text string, o Options) iter.Seq2[[]int, error] {
	return func(yield func([]int, error) bool) {
		e := encoder{watch: watch{ctx: ctx}, t: t, o: o, yield: func(ids []int) bool { return yield(ids, nil) }}
		if err := e.run(text); err != nil && err != errLeft {
			yield(nil, err)
		}
	}
}

// VocabSize returns the number of ids: every id is below it. A model's embedding may have more rows.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// HasToken reports whether an id has a token. Files fill a vocabulary up to the rows of the embedding: GGUF's with
// tokens called [PAD...].
func (t *Tokenizer) HasToken(id int) bool {
	text, kind := t.Token(id)
	return text != "" && (kind != Unused || text != padName(id))
}

// LastToken returns the highest id with a token.
func (t *Tokenizer) LastToken() int {
	for id := len(t.tokens) - 1; id >= 0; id-- {
		if t.HasToken(id) {
			return id
		}
	}
	return -1
}

// Missing returns the bytes without a token: text with these bytes has no ids for them, or the unknown token's.
func (t *Tokenizer) Missing() (bytes []byte) {
	for b := range 256 {
		if t.lossy && inUTF8(byte(b)) && t.bytes[b] < 0 {
			bytes = append(bytes, byte(b))
		}
	}
	return bytes
}

// Token returns a token in the vocabulary's own spelling ("Ġthe", "▁the", "<0x0A>") and its kind, or "" and Unused for
// an id outside the vocabulary.
func (t *Tokenizer) Token(id int) (text string, kind Kind) {
	if id < 0 || id >= len(t.tokens) {
		return "", Unused
	}
	return t.tokens[id].text, t.tokens[id].kind
}

// ID returns the id of a token in the vocabulary's own spelling.
func (t *Tokenizer) ID(token string) (id int, ok bool) {
	i, ok := t.ids[token]
	return int(i), ok
}

// Unreachable counts the tokens of text that no merge makes, and all tokens of text with more than one symbol. Text
// never becomes an unreachable token.
func (t *Tokenizer) Unreachable() (n, of int) {
	if t.bpe.allWhole {
		return 0, len(t.bpe.words)
	}
	made := make([]bool, len(t.tokens))
	for _, s := range t.bpe.pairs.slots {
		if s.key != 0 {
			made[s.into] = true
		}
	}
	for text, id := range t.bpe.words {
		single := len(text) == 1
		if !t.byteLevel {
			r, size := utf8.DecodeRuneInString(text)
			single = size == len(text) && r != utf8.RuneError
		}
		if t.tokens[id].kind != Normal || single {
			continue
		}
		if of++; !made[id] {
			n++
		}
	}
	return n, of
}

// BOS returns the token beginning a text.
func (t *Tokenizer) BOS() (id int, ok bool) { return t.special.bos, t.special.bos >= 0 }

// EOS returns the token ending a text.
func (t *Tokenizer) EOS() (id int, ok bool) { return t.special.eos, t.special.eos >= 0 }

// AddsBOS reports whether AddSpecial puts BOS before the text.
func (t *Tokenizer) AddsBOS() bool {
	return t.special.bos >= 0 && slices.Contains(t.special.prefix, t.special.bos)
}

// EndsTexts reports whether a token ends each text.
func (t *Tokenizer) EndsTexts() bool { return len(t.special.suffix) > 0 }

// EndOfTurn returns the ids, ascending, after which generation stops: EOS, in GGUF also EOT and EOM, and every token
// whose known name ends a turn. The caller adds the ids of generation_config.json.
func (t *Tokenizer) EndOfTurn() []int { return slices.Clone(t.special.endOfTurn) }
