package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// nfcShrinks is how many times as long as its normal form C a text may be: iota with three marks, which can have 7
// bytes, is one character of 2. Of form KC a mathematical iota has 2 bytes more.
const nfcShrinks, nfkcShrinks = 4, 8

// Exceeds reports whether text has more than so many ids for sure, by its length: a token is only so much text. What it
// looks at grows with ids, not with the text.
func (t *Tokenizer) Exceeds(text string, ids int) bool {
	shrinks := nfcShrinks
	if t.norm.nfkc {
		shrinks = nfkcShrinks
	}
	if (t.norm.nfc || t.norm.nfkc) && !t.exceedsNormal(text, shrinks*ids) && strings.ContainsFunc(text, func(r rune) bool {
		return r >= utf8.RuneSelf
	}) {
		return false
	}
	return t.exceedsNormal(text, ids)
}

// exceedsNormal reports what Exceeds does of normalized text.
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

// setWidest finds the most text that is one token, added ones but for the white space that they take.
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
