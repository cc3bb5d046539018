package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// ErrNoMerges reports a byte-pair vocabulary without merges: text would fall apart into characters.
var ErrNoMerges = errors.New("there are no merges")

// ErrNone reports a model without a tokenizer.
var ErrNone = errors.New("there is no tokenizer")

// A Kind is the role of a token. The values are tokenizer.ggml.token_type's in GGUF files.
type Kind int

// The kinds of tokens.
const (
	Normal      Kind = 1 + iota // a piece of text
	Unknown                     // for text that cannot be encoded; never produced here
	Control                     // a special token: steers the model, is no text
	UserDefined                 // an added token with the meaning of text
	Unused                      // an id without a token
	Byte                        // a single byte, spelled <0xNN>
)

// isText reports whether text can become tokens of the kind without a search for special tokens, byte tokens aside.
func (k Kind) isText() bool { return k == Normal || k == UserDefined }

type token struct {
	text string
	kind Kind
}

// A Tokenizer is the vocabulary of a model and its rules. A Tokenizer never changes after its making, and many
// goroutines may use it at once.
type Tokenizer struct {
	tokens []token          // by id
	ids    map[string]int32 // by the vocabulary's spelling
	bytes  [256]int32       // the token of each byte, -1 where there is none

	unknown int32 // token of text without a token; -1 where such text is dropped
	fuse    bool  // a run of such text is a single token
	lossy   bool  // some text has no token

	byteLevel bool // the vocabulary spells bytes in GPT-2's alphabet
	norm      normalizer
	raw       matcher // added tokens found in the text before normalization
	cooked    matcher // added tokens found in the normalized text

	bpe    bpe        // empty for other models
	pieces *wordPiece // nil for other models
	uni    *unigram   // nil for other models

	widest  int  // maximal bytes of normalized text in a token
	strips  bool // some added token takes the white space beside it
	special special
	pair    []part // form of two texts; nil for plain concatenation
}

// bpe is a model of byte-pair encoding.
type bpe struct {
	stages   []splitter // pre-tokenizer, byte-level or spaced only
	spaced   bool       // words between white space, which has no tokens, and a space before each token's text
	joints   joints     // where a merge may happen, character-level only
	pairs    pairTable
	allWhole bool             // ignore_merges: a word in the vocabulary is never merged
	words    map[string]int32 // normal tokens by their text, as bytes
	longest  int              // bytes of the longest of words
	whole    []atomic.Uint32  // by id: whether merging a word's text gives the id back
	runes    map[rune]int32   // symbols of single characters, character-level only
	letters  []string         // characters of the symbols after the last id
}

// padName returns the name of an id without a token in a GGUF file.
func padName(id int) string { return "[PAD" + strconv.Itoa(id) + "]" }

// special are the tokens around texts and answers.
type special struct {
	prefix    []int
	suffix    []int
	bos, eos  int // -1 where there is none
	endOfTurn []int
}

const (
	// maxTokenBytes bounds a token's spelling. The longest in published vocabularies, runs of spaces and dashes, have
	// some hundred bytes.
	maxTokenBytes = 4096
	// maxGap bounds the ids without a token below the highest id.
	maxGap = 1 << 16
	// maxSplitWork bounds the bytes hashed in turning a vocabulary's scores into merges. Gemma's 262,144 tokens need a
	// twentieth of the bound.
	maxSplitWork = 1 << 29
)

// newTokenizer indexes a vocabulary of byte-pair encoding and checks it.
func newTokenizer(tokens []token, byteLevel bool) (*Tokenizer, error) {
	t, err := indexVocabulary(tokens, false)
	if err != nil {
		return nil, err
	}
	t.bpe.whole = make([]atomic.Uint32, len(tokens))
	if t.byteLevel = byteLevel; byteLevel {
		indexBytes(t)
	} else {
		indexCharacters(t)
	}
	return t, nil
}

// indexVocabulary returns any vocabulary. With twice, two tokens may have equal text: the later counts.
func indexVocabulary(tokens []token, twice bool) (*Tokenizer, error) {
	t := &Tokenizer{tokens: tokens, ids: make(map[string]int32, len(tokens)), unknown: -1,
		special: special{bos: -1, eos: -1}}
	if len(tokens) > math.MaxInt32/2 {
		return nil, fmt.Errorf("vocabulary: %d tokens", len(tokens))
	}
	for i := range tokens {
		text := tokens[i].text
		if text == "" {
			tokens[i].kind = Unused
			continue
		}
		if len(text) > maxTokenBytes {
			return nil, fmt.Errorf("token %d: %d bytes, at most %d are supported", i, len(text), maxTokenBytes)
		}
		if other, ok := t.ids[text]; ok && !twice {
			return nil, fmt.Errorf("token %d: %q is token %d already", i, text, other)
		}
		if tokens[i].kind == Byte && !isByteName(text) {
			return nil, fmt.Errorf("token %d: a byte, spelled %q", i, text)
		}
		t.ids[text] = int32(i)
	}
	return t, nil
}

// indexBytes fills words and bytes of a byte-level vocabulary. For example, StarCoder2, SmolLM and Granite 3 have no
// token for byte 0xF1, absent from their training text.
func indexBytes(t *Tokenizer) {
	t.bpe.words = make(map[string]int32, len(t.tokens))
	for i, k := range t.tokens {
		if text, ok := unspell(k.text); ok && k.kind == Normal {
			t.bpe.words[text] = int32(i)
			t.bpe.longest = max(t.bpe.longest, len(text))
		}
	}
	for b := range 256 {
		id, ok := t.bpe.words[string([]byte{byte(b)})]
		if !ok { // DeepSeek has some as added tokens only
			id, ok = t.ids[string(byteRunes[b])]
			ok = ok && t.tokens[id].kind.isText()
		}
		if !ok {
			id = -1
		}
		t.bytes[b] = id
		t.lossy = t.lossy || !ok && inUTF8(byte(b))
	}
}

// isByteName reports whether a token is spelled <0xNN>.
func isByteName(text string) bool {
	if len(text) != 6 || text[:3] != "<0x" || text[5] != '>' {
		return false
	}
	const digits = "0123456789ABCDEF"
	return strings.IndexByte(digits, text[3]) >= 0 && strings.IndexByte(digits, text[4]) >= 0
}

// inUTF8 reports whether some UTF-8 text has the byte.
func inUTF8(b byte) bool { return b != 0xC0 && b != 0xC1 && b < 0xF5 }

// indexCharacters fills words, bytes and runes of a character-level vocabulary.
func indexCharacters(t *Tokenizer) {
	for b := range 256 {
		id, ok := t.ids[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			t.bytes[b], t.lossy = -1, true
			continue
		}
		t.bytes[b] = id
		t.tokens[id].kind = Byte
	}
	t.bpe.words = make(map[string]int32, len(t.tokens))
	t.bpe.runes = map[rune]int32{}
	for i, k := range t.tokens {
		if !k.kind.isText() {
			continue
		}
		t.bpe.words[k.text] = int32(i)
		t.bpe.longest = max(t.bpe.longest, len(k.text))
		if r, n := utf8.DecodeRuneInString(k.text); n == len(k.text) {
			t.bpe.runes[r] = int32(i)
		}
	}
}

// checkBytes returns an error for a SentencePiece vocabulary with some byte tokens and not all: SentencePiece demands
// all of them for byte fallback (trainer_interface.cc).
func checkBytes(t *Tokenizer) error {
	if b := slices.Index(t.bytes[:], -1); b >= 0 && slices.Max(t.bytes[:]) >= 0 {
		return fmt.Errorf("vocabulary: no byte token <0x%02X>, though there are others", b)
	}
	return nil
}

// setAdded sets the added tokens. Their ids are valid.
func setAdded(t *Tokenizer, added []addedToken) {
	var raw, cooked []addedToken
	for _, a := range added {
		if a.normalized {
			a.content = t.norm.segment(a.content, &watch{})
			cooked = append(cooked, a)
		} else {
			raw = append(raw, a)
		}
	}
	t.raw, t.cooked = newMatcher(raw), newMatcher(cooked)
	setWidest(t, append(raw, cooked...))
}

// addMerge adds a merge, in the vocabulary's spelling. A merge whose result is no text, as a special token, is left
// out: text never makes the token.
func addMerge(t *Tokenizer, left, right string, rank int) error {
	var buf [64]byte
	l, okL := t.ids[left]
	r, okR := t.ids[right]
	into, ok := t.ids[string(append(append(buf[:0], left...), right...))]
	switch {
	case !okL:
		return fmt.Errorf("merge %d: %q is not in the vocabulary", rank, left)
	case !okR:
		return fmt.Errorf("merge %d: %q is not in the vocabulary", rank, right)
	case !ok:
		return fmt.Errorf("merge %d: %q + %q is not in the vocabulary", rank, left, right)
	}
	if !t.tokens[into].kind.isText() {
		return nil
	}
	if !t.byteLevel {
		if t.tokens[l].kind == Byte || t.tokens[r].kind == Byte {
			return fmt.Errorf("merge %d: %q + %q: a byte token cannot merge", rank, left, right)
		}
		t.bpe.joints.add(left, right)
	}
	t.bpe.pairs.add(l, r, into, uint32(rank))
	return nil
}

// setScores makes the merges of a SentencePiece vocabulary: any two adjacent symbols merge whose texts together are a
// token, the token of the highest score first. The characters of tokens are symbols even if they are not tokens alone.
func setScores(t *Tokenizer, scores []float32) error {
	order := slices.Clone(scores)
	for i, s := range order {
		if s != s {
			return fmt.Errorf("token %d: its score is NaN", i)
		}
	}
	slices.SortFunc(order, func(a, b float32) int { return cmp.Compare(b, a) })
	order = slices.Compact(order)
	work, count := 0, 0
	for text := range t.bpe.words {
		work += len(text) * len(text)
		count += utf8.RuneCountInString(text) - 1
	}
	if work > maxSplitWork {
		return fmt.Errorf("vocabulary: its tokens are too long to find their parts")
	}
	t.bpe.pairs = newPairTable(count)
	for text, id := range t.bpe.words {
		for _, r := range text {
			if _, ok := t.bpe.runes[r]; !ok && r != utf8.RuneError {
				t.bpe.runes[r] = int32(len(t.tokens) + len(t.bpe.letters))
				t.bpe.letters = append(t.bpe.letters, string(r))
			}
		}
		rank, _ := slices.BinarySearchFunc(order, scores[id], func(a, b float32) int { return cmp.Compare(b, a) })
		for k := range text {
			if k > 0 {
				addSplit(t, text[:k], text[k:], id, uint32(rank))
			}
		}
	}
	return nil
}

// addSplit adds the merge of left and right if both are symbols.
func addSplit(t *Tokenizer, left, right string, into int32, rank uint32) {
	l, ok := symbolOf(t, left)
	if !ok {
		return
	}
	if r, ok := symbolOf(t, right); ok {
		t.bpe.joints.add(left, right)
		t.bpe.pairs.add(l, r, into, rank)
	}
}

// symbolOf returns the symbol of a text: a token or a single character.
func symbolOf(t *Tokenizer, text string) (int32, bool) {
	if id, ok := t.bpe.words[text]; ok {
		return id, true
	}
	r, n := utf8.DecodeRuneInString(text)
	id, ok := t.bpe.runes[r]
	return id, ok && n == len(text)
}

// setID checks an id of a file and stores it.
func (t *Tokenizer) setID(to *int, id int, name string) error {
	if id < 0 || id >= len(t.tokens) {
		return fmt.Errorf("%s: id %d is outside the vocabulary of %d", name, id, len(t.tokens))
	}
	*to = id
	return nil
}

// byteRunes is GPT-2's alphabet: the character that spells each byte in a byte-level vocabulary. Printable Latin-1
// characters spell themselves, the others take U+0100 and up in order (bytes_to_unicode in GPT-2's encoder.py).
var byteRunes = func() (runes [256]rune) {
	next := rune(0x100)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xA1 && b != 0xAD {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes, -1 for other characters.
var runeBytes = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// unspell returns the bytes that a token of a byte-level vocabulary spells.
func unspell(token string) (string, bool) {
	plain := true
	for i := range len(token) {
		plain = plain && token[i] >= '!' && token[i] <= '~'
	}
	if plain {
		return token, true
	}
	var b strings.Builder
	b.Grow(len(token))
	for _, r := range token {
		if r >= rune(len(runeBytes)) || runeBytes[r] < 0 {
			return "", false
		}
		b.WriteByte(byte(runeBytes[r]))
	}
	return b.String(), true
}

// turnEnds lists the names of tokens that end a turn or a text, by the chat templates of the families: Llama 3 and 4,
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

// An addedToken is found in the text before any splitting or merging. The flags are named as in tokenizer.json.
type addedToken struct {
	content    string
	id         int32
	special    bool // only where the caller parses special tokens
	normalized bool // looked for in the normalized text
	lstrip     bool // takes the white space on the left
	rstrip     bool // takes the white space on the right
	singleWord bool // only where no word continues on either side
}

// RStrip is the flag in GGUF.Flags of a token taking the white space on the right; 1 means white space on the left, and
// 4 no match inside a word.
const RStrip = 2

// flags returns the GGUF flags of a.
func (a *addedToken) flags() (f int32) {
	for i, on := range []bool{a.lstrip, a.rstrip, a.singleWord} {
		if on {
			f |= 1 << i
		}
	}
	return f
}

// setFlags sets the flags of a from GGUF's flags.
func (a *addedToken) setFlags(f int32) {
	a.lstrip, a.rstrip, a.singleWord = f&1 != 0, f&RStrip != 0, f&4 != 0
}

// A matcher finds added tokens: the leftmost, and the longest at the same place. The tokens are sorted, so that reading
// a text byte by byte narrows a range of tokens: no tree is built, whatever a file holds.
type matcher struct {
	tokens []addedToken
	first  [257]int32 // tokens[first[b]:first[b+1]] begin with byte b
}

// newMatcher makes a matcher. Of tokens with equal text, for example after normalization, the lowest id is found.
func newMatcher(tokens []addedToken) (m matcher) {
	var list []*addedToken // a sort of pointers shares its code with all others
	for i, a := range tokens {
		if a.content != "" {
			list = append(list, &tokens[i])
		}
	}
	slices.SortFunc(list, func(a, b *addedToken) int {
		return cmp.Or(cmp.Compare(a.content, b.content), cmp.Compare(a.id, b.id))
	})
	for _, a := range list {
		if n := len(m.tokens); n == 0 || m.tokens[n-1].content != a.content {
			m.tokens = append(m.tokens, *a)
		}
	}
	for b := range 257 {
		m.first[b] = int32(sort.Search(len(m.tokens), func(i int) bool { return int(m.tokens[i].content[0]) >= b }))
	}
	return m
}

// longest returns the longest token at the beginning of text, or nil.
func (m *matcher) longest(text string) (best *addedToken) {
	b := text[0]
	lo, hi := int(m.first[b]), int(m.first[int(b)+1])
	for n := 1; lo < hi; n++ {
		if len(m.tokens[lo].content) == n {
			best = &m.tokens[lo]
			lo++
		}
		if n == len(text) {
			break
		}
		rest, c := m.tokens[lo:hi], text[n]
		hi = lo + sort.Search(len(rest), func(i int) bool { return rest[i].content[n] > c })
		lo += sort.Search(len(rest), func(i int) bool { return rest[i].content[n] >= c })
	}
	return best
}

// split calls yield for each added token in text, with its id, and for each piece of text between tokens, with id -1;
// at is the offset of either. Special tokens count if special approves their place in text. The split ends early if w
// does.
func (m *matcher) split(text string, w *watch, special func(from, to int) bool,
	yield func(s string, id int32, at int)) {
	done := 0
	for i := 0; i < len(text) && len(m.tokens) > 0 && w.spend(1); {
		if b := text[i]; m.first[b] == m.first[int(b)+1] {
			i++
			continue
		}
		a := m.longest(text[i:])
		if a == nil {
			i++
			continue
		}
		from, to := i, i+len(a.content)
		i = to
		if a.special && !special(from, to) || a.singleWord && insideWord(text, from, to) {
			continue
		}
		if a.lstrip {
			from = done + len(strings.TrimRightFunc(text[done:from], unicode.IsSpace))
		}
		if a.rstrip {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
			i = to
		}
		if done < from {
			yield(text[done:from], -1, done)
		}
		yield("", a.id, from)
		done = to
	}
	if done < len(text) && w.err == nil {
		yield(text[done:], -1, done)
	}
}

// insideWord reports whether a word goes on before or after text[from:to].
func insideWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return from > 0 && inWord(before) || to < len(text) && inWord(after)
}

// inWord reports whether r is in the class \w of Unicode's regular expressions (UTS 18, annex C).
func inWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control)
}
