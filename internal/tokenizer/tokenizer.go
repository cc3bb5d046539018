// Package tokenizer turns text into token ids and back, exactly as the model's own tokenizer does.
//
// WordPiece (BERT) and Unigram (XLM-RoBERTa) are implemented, and two families of byte-pair encoders: byte-level ones
// (GPT-2, Llama 3, Qwen, DeepSeek), whose text is first cut into words by a pre-tokenizer, and character-level ones
// with byte fallback (SentencePiece's BPE models, Gemma). They are read from a Hugging Face tokenizer.json (FromJSON),
// a SentencePiece tokenizer.model (FromSentencePiece) or a GGUF file's metadata (FromGGUF), and the same model gives
// the same ids from each.
//
// The reference is Hugging Face's tokenizers library 0.22 (its behaviour, with Oniguruma's regular expressions), and
// SentencePiece 0.2 for tokenizer.model. Known differences, all deliberate: bytes that are not UTF-8 become byte tokens
// instead of U+FFFD; no special token comes out of text unless the caller asks for it, even where merges spell it;
// clean_up_tokenization_spaces is ignored. Unicode classes are those of the Go release (Unicode 15.0 in Go 1.26): a
// character assigned later is neither letter nor number here.
//
// Files in reading order: tokenizer; togguf, tojson, same; json, sentencepiece, gguf; config, pipeline, jsonvocab;
// wordpiece, unigram; encode, decode; added, normalize, bpe; pre, split, splitruns; vocab.
package tokenizer

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"unicode/utf8"
)

// ErrNoMerges is the error for byte-pair vocabularies whose merges are missing: without them a text would fall apart
// into characters.
var ErrNoMerges = errors.New("there are no merges")

// ErrNone is the error of a model that has no tokenizer.
var ErrNone = errors.New("there is no tokenizer")

// A Kind says what a token stands for. The values are those of tokenizer.ggml.token_type in GGUF files.
type Kind int

// The kinds of tokens.
const (
	Normal      Kind = 1 + iota // a piece of text
	Unknown                     // stands for what cannot be encoded; never produced here
	Control                     // a special token: steers the model, is no text
	UserDefined                 // an added token that is text
	Unused                      // an id without a token
	Byte                        // one byte, spelled <0xNN>
)

// isText reports whether text can become tokens of the kind without a search for special tokens, byte tokens aside.
func (k Kind) isText() bool { return k == Normal || k == UserDefined }

// A Tokenizer is the vocabulary of one model and its rules. It does not change after it was made and may be used by
// many goroutines at once.
type Tokenizer struct {
	tokens []token          // by id
	ids    map[string]int32 // by the vocabulary's spelling
	bytes  [256]int32       // the token of each byte, -1 where there is none

	unknown int32 // the token of text that has none; -1 where such text is dropped
	fuse    bool  // a run of such text is one token
	lossy   bool  // some text has no token

	byteLevel bool // the vocabulary spells bytes in GPT-2's alphabet
	norm      normalizer
	raw       matcher // added tokens found in the text as it is
	cooked    matcher // added tokens found in the normalized text

	bpe    bpe        // empty for other models
	pieces *wordPiece // nil for other models
	uni    *unigram   // nil for other models

	widest  int  // bytes of the most normalized text that is one token
	strips  bool // some added token takes the white space beside it
	special special
	pair    []part // what two texts become; nil for one after the other
}

// bpe is a model of byte-pair encoding.
type bpe struct {
	stages   []splitter // pre-tokenizer, byte-level only
	joints   joints     // where a merge may happen, character-level only
	pairs    pairTable
	allWhole bool             // ignore_merges: a word in the vocabulary is never merged
	words    map[string]int32 // normal tokens by their text, as bytes
	longest  int              // bytes of the longest of words
	whole    []atomic.Uint32  // by id: whether merging a word's text gives it back
	runes    map[rune]int32   // symbols of single characters, character-level only
	letters  []string         // characters of the symbols after the last id
}

// special are the tokens around texts and answers.
type special struct {
	prefix    []int
	suffix    []int
	bos, eos  int // -1 where there is none
	endOfTurn []int
}

type token struct {
	text string
	kind Kind
}

// Options says how to encode. The zero value treats everything as text.
type Options struct {
	// ParseSpecial lets the names of special tokens in the text stand for these tokens, as in a rendered chat template.
	// Never set it for text of a user.
	ParseSpecial bool
	// Literal are the parts of the text in which ParseSpecial does not hold, in order and apart from each other: what
	// users said inside a rendered template.
	Literal []Span
	// AddSpecial adds the tokens that the model wants around a text: BOS for most, EOS for a few. A rendered chat template
	// holds them already.
	AddSpecial bool
	// Most is how many ids a text may have; 0 is any number. One that has more is found by its length where that tells,
	// and else as soon as there are more.
	Most int
}

// Span is text[From:To].
type Span struct{ From, To int }

// ErrMost is the error of a text that has more ids than Options.Most.
var ErrMost = errors.New("the text has too many tokens")

// Encode returns the ids of text, at most Options.Most of them. Its time grows as n log n, whatever the text.
func (t *Tokenizer) Encode(text string, o Options) []int {
	out := make([]int, 0, len(text)/4+8)
	e := encoder{t: t, o: o, yield: func(ids []int) bool { out = append(out, ids...); return true }}
	e.run(text) // its only error is ErrMost
	return out
}

// IDs yields the ids of text in pieces, each of which is valid until the next one. An error ends them: ErrMost, or that
// of ctx, which is looked at after a bounded amount of work. Beside the text, and a copy of it where a normalizer
// changes it, at most 15 bytes of memory are in use for a byte of the longest word, and of Unigram 20.
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

// HasToken reports whether an id stands for a token. Files fill a vocabulary up to the rows of the embedding: GGUF's
// with tokens that are called [PAD...].
func (t *Tokenizer) HasToken(id int) bool {
	text, kind := t.Token(id)
	return text != "" && (kind != Unused || text != padName(id))
}

// LastToken returns the highest id that stands for a token.
func (t *Tokenizer) LastToken() int {
	for id := len(t.tokens) - 1; id >= 0; id-- {
		if t.HasToken(id) {
			return id
		}
	}
	return -1
}

// padName returns the name of an id without a token in a GGUF file.
func padName(id int) string { return "[PAD" + strconv.Itoa(id) + "]" }

// Missing returns the bytes without a token: text that has them has no ids for them, or the unknown token's.
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

// Unreachable counts the tokens of text that no merge makes, of all that have more than one symbol: text never becomes
// one of them.
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

// BOS returns the token that begins a text.
func (t *Tokenizer) BOS() (id int, ok bool) { return t.special.bos, t.special.bos >= 0 }

// EOS returns the token that ends a text.
func (t *Tokenizer) EOS() (id int, ok bool) { return t.special.eos, t.special.eos >= 0 }

// AddsBOS reports whether AddSpecial puts BOS before the text.
func (t *Tokenizer) AddsBOS() bool {
	return t.special.bos >= 0 && slices.Contains(t.special.prefix, t.special.bos)
}

// EndsTexts reports whether a token ends each text.
func (t *Tokenizer) EndsTexts() bool { return len(t.special.suffix) > 0 }

// EndOfTurn returns the ids, ascending, after which generation stops: EOS, in GGUF also EOT and EOM, and every token
// that is known by its name to end a turn. The caller adds those of generation_config.json.
func (t *Tokenizer) EndOfTurn() []int { return slices.Clone(t.special.endOfTurn) }

// turnEnds are the names of tokens that end a turn or a text, by the chat templates of the families: Llama 3 and 4,
// ChatML (Qwen), Gemma 3 and 4 (which leaves the word to a tool with <|tool_response>), gpt-oss, Phi, DeepSeek, Llama
// 2.
var turnEnds = []string{
	"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|eot|>", "<|eom|>",
	"<|im_end|>", "<|endoftext|>",
	"<end_of_turn>", "<turn|>", "<|tool_response>", "<eos>",
	"<|return|>", "<|call|>",
	"<|end|>", "<｜end▁of▁sentence｜>", "</s>",
}

// messageEnd ends a message alone where an answer has several: where there is <|return|> or <|channel|>.
const messageEnd = "<|end|>"

// findEndOfTurn collects the ids of EndOfTurn.
func findEndOfTurn(t *Tokenizer, more ...*int) {
	ends := make([]int, 0, 4)
	if t.special.eos >= 0 {
		ends = append(ends, t.special.eos)
	}
	for _, id := range more {
		if id != nil {
			ends = append(ends, *id)
		}
	}
	for _, name := range turnEnds {
		if id, ok := t.ids[name]; ok && (t.tokens[id].kind == Control || t.tokens[id].kind == UserDefined) {
			ends = append(ends, int(id))
		}
	}
	slices.Sort(ends)
	t.special.endOfTurn = slices.Compact(ends)
	if end, ok := t.ids[messageEnd]; ok && t.ids["<|return|>"]+t.ids["<|channel|>"] > 0 {
		t.special.endOfTurn = slices.DeleteFunc(t.special.endOfTurn, func(id int) bool { return id == int(end) })
	}
}
