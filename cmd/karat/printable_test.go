package main

import (
	"strings"
	"testing"
	"unicode"
)

// TestPrintable: no character of a stranger's text is hidden, turns the direction of writing, or is obeyed by a terminal. What a model
// says keeps the characters that scripts need.
func TestPrintable(t *testing.T) {
	for r := range unicode.MaxRune + 1 {
		s := oneLine("a" + string(r) + "b")
		if strings.ContainsFunc(s, func(c rune) bool {
			return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
		}) || len(s) < 3 {
			t.Errorf("%U: %q", r, s)
		}
	}
	for in, want := range map[string]string{"a\u202eb": `a\u202eb`, "x\U000e0041": `x\U000e0041`, "é漢\u00ad": `é漢\u00ad`, "\x1b[2J": "�[2J", "a\nb": "a\nb", "\xff": "�"} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := answerText("👩\u200d🚀 \u2067א\u2069 \u202ex\x1b"); got != "👩\u200d🚀 \u2067א\u2069 �x�" {
		t.Errorf("%q", got)
	}
}
