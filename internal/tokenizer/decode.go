package tokenizer

import (
	"strings"
	"unicode/utf8"
)

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
