package tokenizer

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pieceIDs is about how many ids are handed over at once.
const pieceIDs = 1 << 10

// An encoder encodes a text, and hands its ids over in pieces.
type encoder struct {
	watch
	t      *Tokenizer
	o      Options
	yield  func(ids []int) bool
	out    []int
	count  int // ids handed over so far
	merger merger
	path   []pathStep // Unigram
	ends   []int32    // Unigram
}

// errLeft ends the work when the caller wants no more.
var errLeft = errors.New("left")

// run encodes text. The error is errLeft, ErrMost or the context's.
func (e *encoder) run(text string) error {
	e.merger.watch = &e.watch
	if e.look(); e.o.Most > 0 && e.t.Exceeds(text, e.o.Most) {
		e.err = ErrMost
	}
	if e.err == nil {
		if e.o.AddSpecial {
			e.out = append(e.out, e.t.special.prefix...)
		}
		e.encode(text)
		if e.o.AddSpecial {
			e.out = append(e.out, e.t.special.suffix...)
		}
		e.flush()
	}
	return e.err
}

// hasRoom reports whether the work goes on, within the maximum of ids.
func (e *encoder) hasRoom() bool {
	if e.err == nil && e.o.Most > 0 && e.count+len(e.out) > e.o.Most {
		e.err = ErrMost
	}
	return e.err == nil
}

// flush hands over the pending ids.
func (e *encoder) flush() {
	if !e.hasRoom() || len(e.out) == 0 {
		return
	}
	e.count += len(e.out)
	if !e.yield(e.out) && e.err == nil {
		e.err = errLeft
	}
	e.out = e.out[:0]
}

// add appends an id.
func (e *encoder) add(id int32) {
	if len(e.out) >= pieceIDs {
		e.flush()
	}
	e.out = append(e.out, int(id))
}

// encode appends the ids of text: added tokens are cut out first, then the text between them is normalized, searched
// again, split and merged.
func (e *encoder) encode(text string) {
	t := e.t
	t.raw.split(text, &e.watch, e.special, func(s string, id int32, at int) {
		if id >= 0 {
			e.add(id)
			return
		}
		first := at == 0
		whole := e.special(at, at+len(s)) // places in the normalized text differ from places in text
		s = t.norm.segment(s, &e.watch)
		if room := e.o.Most - e.count - len(e.out); e.o.Most > 0 && t.exceedsNormal(s, room) {
			e.err = ErrMost
			return
		}
		t.cooked.split(s, &e.watch, func(int, int) bool { return whole }, func(s string, id int32, at int) {
			if id >= 0 {
				e.add(id)
				return
			}
			if t.uni != nil {
				e.unigram(s, first && at == 0)
				return
			}
			e.text(t.norm.piece(s, first && at == 0))
		})
	})
}

// special reports whether the name of a special token at text[from:to] stands for the token.
func (e *encoder) special(from, to int) bool {
	if !e.o.ParseSpecial {
		return false
	}
	l := e.o.Literal
	i := sort.Search(len(l), func(i int) bool { return l[i].To > from })
	return i == len(l) || l[i].From >= to
}

// text appends the ids of normalized text.
func (e *encoder) text(s string) {
	if e.t.pieces != nil {
		e.wordPieces(s)
		return
	}
	if e.t.byteLevel || e.t.bpe.spaced {
		e.split(s, e.t.bpe.stages)
		return
	}
	if e.t.lossy && e.t.unknown < 0 { // the neighbors of a dropped character may merge
		s = strings.Map(func(r rune) rune {
			if e.t.isUnknown(r, utf8.RuneLen(r)) {
				return -1
			}
			return r
		}, s)
	}
	for len(s) > 0 && e.hasRoom() {
		n := e.t.bpe.joints.next(s)
		for e.t.fuse && n < len(s) && e.t.isUnknown(utf8.DecodeLastRuneInString(s[:n])) &&
			e.t.isUnknown(utf8.DecodeRuneInString(s[n:])) {
			n += e.t.bpe.joints.next(s[n:])
		}
		e.word(s[:n])
		s = s[n:]
	}
}

// isUnknown reports whether a character of n bytes has no token, nor tokens of its bytes.
func (t *Tokenizer) isUnknown(r rune, n int) bool {
	if _, ok := t.bpe.runes[r]; ok && (r != utf8.RuneError || n > 1) {
		return false
	}
	for _, b := range []byte(string(r)) {
		if t.bytes[b] < 0 {
			return true
		}
	}
	return false
}

// split runs the pre-tokenizer's stages, each on the pieces of the previous stage.
func (e *encoder) split(s string, stages []splitter) {
	if len(stages) == 0 {
		e.word(s)
		return
	}
	for len(s) > 0 && e.hasRoom() {
		n := stages[0](s)
		e.spend(n)
		e.split(s[:n], stages[1:])
		s = s[n:]
	}
}

// Values of Tokenizer.whole.
const (
	untried = iota
	isWhole
	isMerged
)

// word appends the ids of a word: no merge crosses its borders.
func (e *encoder) word(s string) {
	if len(s) == 0 || !e.spend(len(s)) {
		return
	}
	t := e.t
	if t.bpe.spaced {
		if c, _ := classAt(s, 0); c == blank {
			return
		}
	}
	id, known := int32(0), false
	if len(s) <= t.bpe.longest {
		id, known = t.bpe.words[s]
	}
	state := uint32(untried)
	if known {
		if state = isWhole; !t.bpe.allWhole {
			state = t.bpe.whole[id].Load()
		}
		if state == isWhole {
			e.add(id)
			return
		}
	}
	e.symbols(s)
	e.merger.merge(&t.bpe.pairs)
	if known && state == untried && e.err == nil {
		state = isMerged
		if len(e.merger.ids) == 1 && e.merger.ids[0] == id {
			state = isWhole
		}
		t.bpe.whole[id].Store(state)
	}
	e.emit()
}

// symbols fills the merger with the first symbols: bytes, or characters, and the bytes of characters without a symbol.
func (e *encoder) symbols(s string) {
	t := e.t
	ids := e.merger.ids[:0]
	if t.byteLevel {
		ids = slices.Grow(ids, len(s))
		for i := 0; i < len(s) && e.spend(1); i++ {
			ids = appendByte(t, ids, s[i])
		}
		e.merger.ids = ids
		return
	}
	ids = slices.Grow(ids, utf8.RuneCountInString(s))
	for i := 0; i < len(s) && e.spend(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if id, ok := t.bpe.runes[r]; ok && (r != utf8.RuneError || n > 1) {
			ids = append(ids, id)
		} else {
			ids = t.appendBytes(ids, s[i:i+n])
		}
		i += n
	}
	e.merger.ids = ids
}

const replacement = string(utf8.RuneError)

// appendByte appends a byte's token. Bytes that occur in no UTF-8 text, and have no token, become U+FFFD.
func appendByte(t *Tokenizer, ids []int32, b byte) []int32 {
	if t.bytes[b] < 0 && !inUTF8(b) {
		for i := range len(replacement) {
			ids = t.appendBytes(ids, replacement[i:i+1])
		}
		return ids
	}
	return t.appendBytes(ids, string([]byte{b}))
}

// appendBytes appends the tokens of the bytes of a character, or of a single byte. If any is missing, the unknown token
// stands for all bytes, or nothing (BPE::merge_word in tokenizers/src/models/bpe/model.rs).
func (t *Tokenizer) appendBytes(ids []int32, s string) []int32 {
	n := len(ids)
	for _, b := range []byte(s) {
		if t.bytes[b] >= 0 {
			ids = append(ids, t.bytes[b])
			continue
		}
		ids = ids[:n]
		if t.unknown < 0 || t.fuse && n > 0 && ids[n-1] == t.unknown {
			return ids
		}
		return append(ids, t.unknown)
	}
	return ids
}

// emit appends the merged ids. A character without a token, useful in merges only, comes out as its bytes.
func (e *encoder) emit() {
	t := e.t
	for _, id := range e.merger.ids {
		if !e.spend(1) {
			return
		}
		if int(id) < len(t.tokens) {
			e.add(id)
			continue
		}
		var bytes [utf8.UTFMax]int32
		for _, id := range t.appendBytes(bytes[:0], t.bpe.letters[int(id)-len(t.tokens)]) {
			e.add(id)
		}
	}
}

// nfcShrinks is the maximal ratio of a text's length to its normal form C's: iota with three marks, up to 7 bytes, is a
// single character of 2. In form KC a mathematical iota has 2 bytes more.
const nfcShrinks, nfkcShrinks = 4, 8

// Exceeds reports whether the length alone shows that text has more than so many ids: a token is only so much text. The
// bytes examined grow with ids, not with the text.
func (t *Tokenizer) Exceeds(text string, ids int) bool {
	shrinks := nfcShrinks
	if t.norm.nfkc {
		shrinks = nfkcShrinks
	}
	if (t.norm.nfc || t.norm.nfkc) && !t.exceedsNormal(text, shrinks*ids) &&
		strings.ContainsFunc(text, func(r rune) bool {
			return r >= utf8.RuneSelf
		}) {
		return false
	}
	return t.exceedsNormal(text, ids)
}

// exceedsNormal implements Exceeds for normalized text.
func (t *Tokenizer) exceedsNormal(s string, ids int) bool {
	if t.lossy { // any length of text may have no id
		return false
	}
	most := ids * t.widest
	if len(s) <= most || !t.strips {
		return len(s) > most
	}
	for i := 0; i < len(s) && most >= 0; { // an added token may take any white space
		r, n := utf8.DecodeRuneInString(s[i:])
		if i += n; !unicode.IsSpace(r) {
			most -= n
		}
	}
	return most < 0
}

// setWidest finds the longest text of a single token, for added tokens without the white space taken.
func setWidest(t *Tokenizer, added []addedToken) {
	t.widest = max(t.bpe.longest, utf8.UTFMax)
	for _, k := range t.tokens {
		if k.kind == UserDefined {
			t.widest = max(t.widest, len(k.text))
		}
	}
	for _, a := range added {
		t.widest = max(t.widest, len(a.content))
		t.strips = t.strips || a.lstrip || a.rstrip
	}
}

// A Decoder turns ids into text as they come. Each Write returns complete characters; bytes that are not UTF-8 become
// U+FFFD. A Decoder continues a text: the space that some vocabularies put before a text is kept.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	pending     []byte
}

// Decoder returns a new decoder; with skipSpecial, control tokens are no text.
func (t *Tokenizer) Decoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial}
}

// Decode returns the text of ids, from the beginning of a text. An id outside the vocabulary has no text.
func (t *Tokenizer) Decode(ids []int, skipSpecial bool) string {
	d := t.Decoder(skipSpecial)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Write(id))
	}
	b.WriteString(d.Flush())
	if t.norm.prepend != prependNever || t.pieces != nil || t.bpe.spaced {
		return strings.TrimPrefix(b.String(), " ")
	}
	return b.String()
}

// Write takes the next id and returns the characters it completes.
func (d *Decoder) Write(id int) string {
	d.pending = d.t.appendText(d.pending, id, d.skipSpecial)
	n := len(d.pending)
	for k := 1; k < utf8.UTFMax && k <= n; k++ {
		if c := d.pending[n-k]; utf8.RuneStart(c) {
			if !utf8.FullRune(d.pending[n-k:]) {
				n -= k
			}
			break
		}
	}
	return d.take(n)
}

// Whole reports whether no character is begun.
func (d *Decoder) Whole() bool { return len(d.pending) == 0 }

// Flush returns the pending bytes, an incomplete character, as U+FFFD.
func (d *Decoder) Flush() string { return d.take(len(d.pending)) }

// take removes the first n pending bytes and returns them as valid text.
func (d *Decoder) take(n int) string {
	text := d.pending[:n]
	s := ""
	if utf8.Valid(text) {
		s = string(text)
	} else {
		s = repair(d.t, text)
	}
	d.pending = append(d.pending[:0], d.pending[n:]...)
	return s
}

// repair replaces bytes that are not UTF-8. The references differ: each byte token becomes a U+FFFD (ByteFallback,
// SentencePiece); in byte-level vocabularies the longest beginning of a character becomes a U+FFFD (Rust's
// from_utf8_lossy).
func repair(t *Tokenizer, b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && t.byteLevel {
			for n < len(b) && !utf8.FullRune(b[:n]) && isCharStart(b[:n+1]) {
				n++
			}
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// isCharStart reports whether b is a character, or the beginning of a character.
func isCharStart(b []byte) bool {
	r, n := utf8.DecodeRune(b)
	return !utf8.FullRune(b) || r != utf8.RuneError || n == len(b)
}

// appendText appends the bytes of a token.
func (t *Tokenizer) appendText(b []byte, id int, skipSpecial bool) []byte {
	text, kind := t.Token(id)
	switch {
	case kind == Unused, skipSpecial && (kind == Control || kind == Unknown):
		return b
	case t.bpe.spaced: // as without a decoder
		return append(append(b, ' '), text...)
	case kind == Control || kind == Unknown:
		return append(b, text...)
	case kind == Byte:
		return append(b, unhex(text[3])<<4|unhex(text[4]))
	case t.pieces != nil:
		if rest, ok := strings.CutPrefix(text, continuation); ok {
			return append(b, rest...)
		}
		return append(append(b, ' '), text...)
	case !t.byteLevel:
		return append(b, strings.ReplaceAll(text, space, " ")...)
	case kind == Normal:
		if s, ok := unspell(text); ok {
			return append(b, s...)
		}
	}
	return append(b, text...)
}

// Bytes returns the bytes of a token, nil for an id outside the vocabulary.
func (t *Tokenizer) Bytes(id int) []byte { return t.appendText(nil, id, false) }

// unhex returns the value of an upper-case hexadecimal digit.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}
