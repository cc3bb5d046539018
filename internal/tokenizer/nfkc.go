package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// nfkcData is the characters that are compatible with others, decomposed fully.
var nfkcData = sync.OnceValue(func() map[rune]string {
	to := map[rune]string{}
	for all := []rune(compatible); len(all) > 0; {
		n := 2 + int(all[1])
		to[all[0]], all = string(all[2:n]), all[n:]
	}
	return to
})

// nfkc returns the text in Unicode's Normalization Form KC (UAX 15): the form C of the text
// with characters replaced by compatible ones. It ends early where w does.
func nfkc(s string, w *watch) string {
	const firstLead = 0xC2 // of U+00A0; text without such a byte is in NFKC
	i := 0
	for i < len(s) && s[i] < firstLead && w.did(1) {
		i++
	}
	if i == len(s) {
		return s
	}
	to := nfkcData()
	var out strings.Builder
	out.Grow(len(s))
	for i := 0; i < len(s) && w.did(1); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if other, ok := to[r]; ok {
			out.WriteString(other)
		} else {
			out.WriteString(s[i : i+n])
		}
		i += n
	}
	return nfc(out.String(), w)
}
