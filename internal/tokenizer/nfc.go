package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns the text in Unicode's Normalization Form C (UAX 15). Bytes that are no UTF-8 stay as they are. It ends
// early where w does.
func nfc(s string, w *watch) string { return normalForm(norm.NFC, norm.NFD, 0xCC, s, w) } // U+0300 begins with 0xCC

// nfkc returns the text in Normalization Form KC as nfc does in form C.
func nfkc(s string, w *watch) string { return normalForm(norm.NFKC, norm.NFKD, 0xC2, s, w) } // U+00A0: 0xC2

const (
	// longSegment is the number of characters from which package norm gets no segment: it breaks runs of more than 30
	// combining characters with U+034F (its stream-safe format), which the reference does not. A character decomposes to
	// at most 4 combining ones.
	longSegment = 7
	// formPiece is the number of bytes that package norm gets at once, before the next look at the context.
	formPiece = 4096
)

// normalForm returns the text in a form. Text whose bytes are all below firstLead is in the form already.
func normalForm(form, decomposed norm.Form, firstLead byte, s string, w *watch) string {
	i := 0
	for i < len(s) && s[i] < firstLead && w.did(1) {
		i++
	}
	if i == len(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s) && w.did(1); {
		piece := s[i:min(i+formPiece, len(s))]
		if n, _ := form.SpanString(piece, i+len(piece) == len(s)); n > 0 { // in the form already
			out = append(out, piece[:n]...)
			i += n
			w.did(n)
			continue
		}
		end, size := segment(form, s, i, w)
		if size < longSegment {
			out = form.AppendString(out, s[i:end])
		} else {
			out = appendLong(out, decomposed, s[i:end], w)
		}
		i = end
	}
	return string(out)
}

// segment returns the end of the segment at s[begin:], characters that may act on each other, and their number.
func segment(form norm.Form, s string, begin int, w *watch) (end, size int) {
	for end = begin; end < len(s) && w.did(1); size++ {
		p := form.PropertiesString(s[end:])
		if size > 0 && p.BoundaryBefore() {
			break
		}
		end += max(p.Size(), 1) // 0 is a character that s cuts
	}
	return end, size
}

// appendLong appends the normal form of a segment.
func appendLong(out []byte, decomposed norm.Form, s string, w *watch) []byte {
	runes := make([]rune, 0, len(s)/2)
	var parts []byte
	for i := 0; i < len(s) && w.did(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError { // a segment begins with it
			out = append(out, s[i:i+n]...)
		} else {
			parts = decomposed.AppendString(parts[:0], s[i:i+n])
			for j := 0; j < len(parts); j += n {
				r, n = utf8.DecodeRune(parts[j:])
				runes = append(runes, r)
			}
			_, n = utf8.DecodeRuneInString(s[i:])
		}
		i += n
	}
	for i := 0; i < len(runes) && w.did(1); i++ {
		if combiningClass(runes[i]) != 0 {
			i += sortMarks(runes[i:], w)
		}
	}
	for _, r := range compose(runes, w) {
		out = utf8.AppendRune(out, r)
	}
	return out
}

func combiningClass(r rune) uint8 {
	var b [utf8.UTFMax]byte
	return norm.NFC.Properties(utf8.AppendRune(b[:0], r)).CCC()
}

// sortMarks sorts the combining characters that runes begins with by their class, stably, and returns their number.
func sortMarks(runes []rune, w *watch) int {
	var ends [256]int // by class
	n := 0
	for ; n < len(runes) && w.did(1); n++ {
		class := combiningClass(runes[n])
		if class == 0 {
			break
		}
		ends[class]++
	}
	for c := 1; c < len(ends); c++ {
		ends[c] += ends[c-1]
	}
	old := slices.Clone(runes[:n])
	for i := n - 1; i >= 0 && w.did(1); i-- {
		class := combiningClass(old[i])
		ends[class]--
		runes[ends[class]] = old[i]
	}
	return n
}

// compose composes characters in canonical order, in place. A character composes with the last starter unless one of
// its own class or higher stands between.
func compose(runes []rune, w *watch) []rune {
	out := runes[:0]
	starter, last := -1, -1 // index in out; the class of the character between, -1 for none
	var pair []byte
	for _, r := range runes {
		if !w.did(1) {
			break
		}
		class := int(combiningClass(r))
		if starter >= 0 && last < class {
			pair = norm.NFC.AppendString(pair[:0], string([]rune{out[starter], r}))
			if c, n := utf8.DecodeRune(pair); n == len(pair) {
				out[starter] = c
				continue
			}
		}
		last = class
		if class == 0 {
			starter, last = len(out), -1
		}
		out = append(out, r)
	}
	return out
}
